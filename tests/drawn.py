"""Pictures for tests."""

from io import BytesIO

from PIL import Image


def drawn(format: str = "PNG", size: tuple[int, int] = (40, 20), orientation: int = 1) -> bytes:
    """The file of a picture whose left half is red and whose right half is blue."""
    image = Image.new("RGB", size, (250, 0, 0))
    image.paste((0, 0, 250), (size[0] // 2, 0, *size))
    exif, file = Image.Exif(), BytesIO()
    exif[0x0112] = orientation
    image.save(file, format, **({"exif": exif} if format == "JPEG" else {}))
    return file.getvalue()
