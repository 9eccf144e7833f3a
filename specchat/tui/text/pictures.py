"""Pictures as rows of cells: by the terminal's graphics, else half blocks, each two pixels, one above the other."""

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from textual.content import Content

from specchat.attachments.pictures import SMALL, AttachedPicture
from specchat.dataclass import dataclass
from specchat.engine.errors import EngineError
from specchat.engine.pictures.decode import opened, upright

if TYPE_CHECKING:
    from PIL.Image import Image

ROWS, UNFOLDED_ROWS = 8, 30
"""Most rows of a picture."""
COLUMNS = 80
SQUARE = 2.0
"""Height of a cell by its width where nothing else is known: two pixels of a half block make a cell."""


@dataclass(eq=False)
class Drawing:
    """The rows of a picture, which are to be shown no longer than this object is held."""

    rows: tuple[Content, ...] = ()


class Graphics(Protocol):
    """Draws pictures by the terminal's own means."""

    def draw(self, picture: AttachedPicture, small: "Image", width: int, *, unfolded: bool) -> Drawing | None:
        """The drawing, at most `width` cells wide; None where the terminal draws none."""


def drawing(picture: AttachedPicture, width: int, *, unfolded: bool, graphics: Graphics | None = None) -> Drawing:
    """A picture, at most `width` cells wide; no rows where its small copy cannot be read."""
    width = min(width, COLUMNS)
    if graphics is not None and (small := small_copy(picture.small)) is not None:
        drawn = graphics.draw(picture, small, width, unfolded=unfolded)
        if drawn is not None:
            return drawn
    return Drawing(half_blocks(picture.small, width, unfolded))


def small_copy(data: bytes) -> "Image | None":
    """A picture's small copy as it is to be seen; None where it is broken or large, as in a chat from elsewhere."""
    try:
        with opened(data) as small:
            return upright(small) if max(small.size) <= SMALL else None
    except EngineError:
        return None


def scaled(picture: AttachedPicture, size: tuple[int, int]) -> "Image | None":
    """The whole picture, within `size` pixels; None where it is lost or cannot be read."""
    data = picture.load()
    try:
        with opened(data or b"") as image:
            image.draft("RGB", (2 * size[0], 2 * size[1]))
            found = upright(image)
    except EngineError:
        return None
    found.thumbnail(size)
    return found


def cells(size: tuple[int, int], width: int, unfolded: bool, tall: float = SQUARE) -> tuple[int, int]:
    """Columns and rows of a picture of a `size` in pixels, where a cell is `tall` times as high as wide."""
    scale = min(width / size[0], tall * (UNFOLDED_ROWS if unfolded else ROWS) / size[1])
    return max(1, int(size[0] * scale)), max(1, round(size[1] * scale / tall))


@lru_cache(maxsize=256)
def half_blocks(data: bytes, width: int, unfolded: bool, tall: float = SQUARE) -> tuple[Content, ...]:
    """The rows of a small copy, by cells `tall` times as high as wide; none where it cannot be read."""
    image = small_copy(data)
    if image is None:
        return ()
    columns, rows = cells(image.size, width, unfolded, tall)
    pixels = image.resize((columns, 2 * rows)).tobytes()

    def colour(column: int, row: int) -> str:
        at = 3 * (row * columns + column)
        red, green, blue = pixels[at : at + 3]
        return f"rgb({red},{green},{blue})"

    return tuple(
        Content.assemble(*(("▀", f"{colour(x, 2 * y)} on {colour(x, 2 * y + 1)}") for x in range(columns)))
        for y in range(rows)
    )
