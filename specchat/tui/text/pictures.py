"""Pictures as rows of half blocks: each cell shows two pixels, one above the other, in any terminal with colours."""

from functools import lru_cache

from textual.content import Content

from specchat.attachments.pictures import SMALL, AttachedPicture
from specchat.engine.errors import EngineError
from specchat.engine.pictures.decode import opened, upright

ROWS, UNFOLDED_ROWS = 8, 30
"""Most rows of a picture."""
_COLUMNS = 80


def picture_rows(picture: AttachedPicture, width: int, *, unfolded: bool) -> tuple[Content, ...]:
    """The rows of a picture, at most `width` cells wide; none where its small copy cannot be read."""
    return _drawn(picture.small, min(width, _COLUMNS), UNFOLDED_ROWS if unfolded else ROWS)


@lru_cache(maxsize=256)
def _drawn(data: bytes, width: int, most: int) -> tuple[Content, ...]:
    try:
        with opened(data) as small:
            if max(small.size) > SMALL:  # of a chat from elsewhere: it would hold up the window
                return ()
            image = upright(small)
    except EngineError:
        return ()
    scale = min(width / image.width, 2 * most / image.height)
    columns, rows = max(1, int(image.width * scale)), max(1, round(image.height * scale / 2))
    pixels = image.resize((columns, 2 * rows)).tobytes()

    def colour(column: int, row: int) -> str:
        at = 3 * (row * columns + column)
        red, green, blue = pixels[at : at + 3]
        return f"rgb({red},{green},{blue})"

    return tuple(
        Content.assemble(*(("▀", f"{colour(x, 2 * y)} on {colour(x, 2 * y + 1)}") for x in range(columns)))
        for y in range(rows)
    )
