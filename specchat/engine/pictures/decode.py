"""From a file's bytes to pixels, within bounds: pictures come from anywhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

from specchat.clean import one_line
from specchat.engine.errors import EngineError

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 20 << 20
MOST_PIXELS = 64_000_000
FORMATS = "PNG", "JPEG", "WEBP", "GIF", "BMP"
OTHER_FILE = f"Send it as a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file."


def decoded(data: bytes) -> "Image":
    """The first frame of a picture, upright, as RGB.

    Raises:
        EngineError: "request": it is too large, broken, or of another format.
    """
    with opened(data) as image:
        return upright(image)


def upright(image: "Image") -> "Image":
    """An opened picture as it is to be seen, as RGB."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image).convert("RGB")


@contextmanager
def opened(data: bytes) -> Iterator["Image"]:
    """A picture whose pixels are read as they are asked for.

    Raises:
        EngineError: "request": it is too large, broken, or of another format.
    """
    from PIL import Image, UnidentifiedImageError

    if len(data) > MOST_BYTES:
        raise EngineError("request", f"A picture has more than {MOST_BYTES >> 20} MiB. Send a smaller copy of it.")
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height <= MOST_PIXELS:
                yield image
                return
    except Image.DecompressionBombError:
        pass
    except UnidentifiedImageError:
        raise EngineError("request", f"A picture is of a format that is not read. {OTHER_FILE}") from None
    except Exception as error:  # a decoder meets whatever the file holds
        words = one_line(str(error), 100) or type(error).__name__
        raise EngineError("request", f"A picture cannot be read ({words}). {OTHER_FILE}") from None
    most = MOST_PIXELS // 1_000_000
    raise EngineError("request", f"A picture has more than {most} million pixels. Send a smaller copy of it.")
