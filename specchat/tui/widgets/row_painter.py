"""Painter of a chat's rows: text on its background, with the cursor's mark and the heat beside it."""

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.content import Content
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from specchat.tui.text.heat import GLYPHS, glyph_of


class RowPainter:
    """Paints with the component styles of `view`; `forget` when these have changed."""

    def __init__(self, view: Widget, style_of: Callable[[str | Style], Style]) -> None:
        """`style_of` gives the styles that the text of rows names."""
        self._view = view
        self._style_of = style_of
        self._known: tuple[RichStyle, dict[str, Segment]] | None = None
        self.drawn: dict[int, Strip] = {}
        """Rows that need not be painted again, by their numbers."""

    def forget(self) -> None:
        self.drawn.clear()
        self._known = None

    @property
    def background(self) -> RichStyle:
        return self._looks()[0]

    def paint(
        self, row: int, content: Content, heat: float | None, *, width: int, beside: int, band: bool, cursor: bool
    ) -> Strip:
        """Row number `row`, `width` cells wide. The last `beside` cells, 1 or 2, are the mark and what shows `heat`.

        `band` puts it on the tint of prompts, `cursor` under the cursor.
        """
        view, (background, heat_cells) = self._view, self._looks()
        base = view.visual_style
        if band:
            base += view.get_visual_style("band")
            background = base.rich_style
        mark = Segment(" ", background)
        if cursor:
            base += view.get_visual_style("cursor")
            background = base.rich_style
            mark = Segment("◂", (base + view.get_visual_style("cursor-mark")).rich_style)
        rendered = content.render(base, end="", parse_style=self._style_of)
        # Measured piece by piece, as the compositor does: a style may end inside of what is one glyph elsewhere.
        strip, room = Strip([Segment(text, style.rich_style) for text, style in rendered]), width - beside
        if strip.cell_length > room:  # what is cut inside of a glyph may be narrower than it says
            strip = Strip(list(strip.adjust_cell_length(room)))
        strip = strip.adjust_cell_length(room, background)
        right = Segment(" ", background) if heat is None else heat_cells[glyph_of(heat)]
        return Strip([*strip.apply_offsets(0, row), mark, *([right] if beside > 1 else [])], width)

    def _looks(self) -> tuple[RichStyle, dict[str, Segment]]:
        """The background, and the cell at the right edge by heat glyph."""
        if self._known is None:
            cells: dict[str, Segment] = {}
            for least, glyph in GLYPHS:
                style = self._view.visual_style + self._view.get_visual_style("heat" if least else "heat-low")
                cells[glyph] = Segment(glyph, (style + Style.from_meta({"heat": True})).rich_style)
            self._known = self._view.rich_style, cells
        return self._known
