"""Pictures that go along with a message."""

from collections.abc import Callable
from dataclasses import field
from io import BytesIO

from specchat.dataclass import dataclass
from specchat.engine.pictures.decode import opened, upright
from specchat.engine.protocol.options import Picture

MAGICS = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM"
SMALL = 160
ORIENTATION, LYING = 0x0112, 5
"""EXIF's tag for how a camera was held, and the first value of one held upright, whose pictures lie on a side."""


@dataclass(frozen=True)
class AttachedPicture:
    """A picture by the digest of its file's bytes, which `load` gives; None where they are lost.

    Attributes:
        format: of the file, such as "PNG".
        width, height: in pixels.
        small: a JPEG of at most SMALL pixels a side, to be shown.
    """

    digest: str
    format: str
    width: int
    height: int
    small: bytes = field(repr=False)
    load: Callable[[], bytes | None] = field(compare=False, repr=False)

    @property
    def picture(self) -> Picture | None:
        """The same for the engine; None where its bytes are gone."""
        data = self.load()
        return None if data is None else Picture(data)


def is_picture(head: bytes) -> bool:
    """True for the beginning of a picture's file, of a format that is read."""
    webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return webp or (head.startswith(MAGICS) and (head[:2] != b"BM" or b"\0" in head))


def attached(data: bytes) -> AttachedPicture:
    """The picture that a file holds.

    Raises:
        EngineError: "request": it is too large, broken, or of another format.
    """
    with opened(data) as image:
        lies = image.getexif().get(ORIENTATION, 1) >= LYING
        format, (width, height) = str(image.format), image.size[::-1] if lies else image.size
        image.draft("RGB", (2 * SMALL, 2 * SMALL))
        small, written = upright(image), BytesIO()
        small.thumbnail((SMALL, SMALL))
        small.save(written, "JPEG", quality=85)
    return AttachedPicture(Picture(data).digest, format, width, height, written.getvalue(), lambda: data)
