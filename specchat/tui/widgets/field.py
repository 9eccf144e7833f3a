"""The settings panel's lines of text: a field, what it is for, and the system prompt."""

from textual import events
from textual.content import Content
from textual.widgets import TextArea

from specchat.clean import clean
from specchat.tui.settings import Field, nudged
from specchat.tui.widgets.line_input import LineInput
from specchat.tui.widgets.plain import Plain


class FieldInput(LineInput):
    """A field's text; up and down change a number, and typing replaces it."""

    def __init__(self, field: Field, value: str) -> None:
        super().__init__(value, id=field.key)
        self.field = field
        self.select_on_focus = bool(field.nudge)

    async def _on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down") and self.field.nudge:
            self.value = nudged(self.field, self.value, 1 if event.key == "up" else -1)
            self.action_select_all()
            event.stop()
            event.prevent_default()
            self.post_message(self.Submitted(self, self.value))


class FieldNote(Plain):
    """The purpose of a field in one row, or the mistake in it, whole."""

    def say(self, words: str, *, bad: bool) -> None:
        changed = self.has_class("-bad") != bad
        self.set_class(bad, "-bad")
        self.show(words, layout=bad or changed)


class SystemInput(TextArea):
    """The chat's system prompt."""

    def __init__(self, text: str) -> None:
        super().__init__(text, id="system", compact=True, highlight_cursor_line=False, tab_behavior="focus")
        self.placeholder = Content("what the model should always keep to")
        self.cursor_blink = False

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.insert(clean(event.text.replace("\r\n", "\n").replace("\r", "\n")))
