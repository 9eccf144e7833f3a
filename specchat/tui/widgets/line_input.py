"""A box for one line of text."""

from textual import events
from textual.widgets import Input

from specchat.clean import one_line

_LONGEST = 1000
"""Characters of a paste that are taken."""


class LineInput(Input):
    """Pasted text is cleaned; the cursor does not blink, so that nothing runs while idle."""

    def __init__(self, value: str = "", *, placeholder: str = "", id: str | None = None) -> None:
        super().__init__(value, placeholder=placeholder, id=id, compact=True, select_on_focus=False)
        self.cursor_blink = False

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._insert(event.text)

    def action_paste(self) -> None:
        self._insert(self.app.clipboard)

    def _insert(self, pasted: str) -> None:
        self.replace(one_line(pasted, _LONGEST), *self.selection)
