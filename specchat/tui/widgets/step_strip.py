"""The verify steps of the reply being read, one cell each, beside the scrollbar of the token view."""

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.tui.text.heat import Stretch, step_glyph


class StepStrip(Widget):
    """Steps whose text is on the screen are bright. Of more steps than cells those around that text are shown."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"step-near", "step-far", "step-here"}

    @dataclass
    class Clicked(Message):
        """Verify step number `step` of a reply was clicked."""

        reply: Reply
        step: int

    def __init__(self) -> None:
        super().__init__()
        self._stretch: Stretch | None = None
        self._steps = 0

    def show(self, stretch: Stretch | None) -> None:
        """Show the reply that `stretch` is of."""
        steps = len(stretch.reply.steps) if stretch else 0
        if (stretch, steps) != (self._stretch, self._steps):
            self._stretch, self._steps = stretch, steps
            self.refresh()

    def render_line(self, y: int) -> Strip:
        step = self._step_at(y)
        if step is None or self._stretch is None:
            return Strip([Segment(" " * self.size.width, self.rich_style)])
        low, high = self._stretch.steps
        here = step == self._stretch.step
        style = self.get_visual_style("step-here" if here else "step-near" if low <= step < high else "step-far")
        glyph = "◂" if here else step_glyph(self._stretch.reply.steps[step])
        return Strip([Segment(glyph, (self.visual_style + style).rich_style)])

    def _step_at(self, y: int) -> int | None:
        if self._stretch is None:
            return None
        step = self._stretch.first_cell(self.size.height) + y
        return step if step < len(self._stretch.reply.steps) else None

    def on_click(self, event: events.Click) -> None:
        step = self._step_at(event.y)
        if step is not None and self._stretch is not None:
            self.post_message(self.Clicked(self._stretch.reply, step))
