"""The cells of the screen where pictures of the transcript stand."""

from dataclasses import field

from rich.console import RenderableType
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region

from specchat.attachments.pictures import AttachedPicture
from specchat.dataclass import dataclass
from specchat.tui.text.prompt_rows import PictureSection
from specchat.tui.widgets.chat_view import ChatView


@dataclass(frozen=True)
class Spot:
    """The rows of a picture that the screen shows.

    Attributes:
        cells: of the screen.
        above: rows of the picture above these.
        rows: of the whole picture.
    """

    picture: AttachedPicture = field(compare=False)
    digest: str
    cells: Region
    above: int
    rows: int

    @property
    def by_row(self) -> list[Region]:
        """The cells, row by row."""
        return [Region(self.cells.x, y, self.cells.width, 1) for y in self.cells.line_range]


def spots_of(view: ChatView) -> list[Spot]:
    """The pictures on the screen that nothing covers, without the screen's last row: pixels there may scroll it."""
    screen = view.screen
    widgets = screen._compositor.visible_widgets  # the first one is in front
    if view.app.screen is not screen or view not in widgets:
        return []
    content, window, top = view.scrollable_content_region, view.chat_rows.window, round(view.scroll_y)
    shown = content.intersection(widgets[view][1]).intersection(screen.size.region.shrink((0, 0, 1, 0)))
    first, last = (min(top + y - content.y, len(window.rows)) for y in (shown.y, shown.bottom))
    found: list[Spot] = []
    row = first
    while row < last and (at := window.section_at(row)) is not None:
        section = window.sections[at[0]]
        after = row + 1
        if isinstance(section, PictureSection) and (rows := section.drawing.rows):
            after = min(row - at[1] + len(rows), last)
            cells = Region(content.x + section.LEFT, content.y + row - top, rows[0].cell_length, after - row)
            found.append(Spot(section.picture, section.picture.digest, cells, at[1], len(rows)))
        row = after
    before = list(widgets)[: list(widgets).index(view)]
    covers = [widgets[widget][0].intersection(widgets[widget][1]) for widget in before] if found else []
    return [spot for spot in found if not any(cover.overlaps(spot.cells) for cover in covers)]


def written(update: RenderableType | None) -> list[Region]:
    """The cells that an update of Textual's writes."""
    match update:
        case LayoutUpdate():
            return [update.region]
        case ChopsUpdate():
            return [Region(first, y, last - first, 1) for y, first, last in update.spans]
    return []
