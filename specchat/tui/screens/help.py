"""All keys."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content

from specchat.tui.actions.table import ACTIONS
from specchat.tui.screens.dialog import Dialog
from specchat.tui.text.lines import EMPTY, Line, hang, styled
from specchat.tui.text.sources import REJECTED, SOURCES
from specchat.tui.widgets.plain import Plain

_KEY_WIDTH = 20
_ABOUT = (
    "specchat answers with a local model, faster by speculative decoding: a cheap drafter guesses the next tokens, "
    "the model checks them all in one step and keeps those it would have written itself. "
    "The text is the same with and without it; only the speed differs."
)


class HelpText(Plain):
    """Keys, then the colours of the token view."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "key", "quiet", "head",
        "spec-draft", "spec-lookup", "spec-swift", "spec-target", "spec-bonus", "spec-plain", "spec-rejected",
    }  # fmt: skip

    def on_resize(self) -> None:
        entries = [(action.shown, Content(action.help)) for action in ACTIONS if action.keys]
        commands = [(f"/{action.slash}", Content(action.help)) for action in ACTIONS if action.slash]
        legend = [(source.name, styled(source.words, source.style)) for source in (*SOURCES.values(), REJECTED)]
        rows = [
            *hang(styled(_ABOUT, ".quiet"), self.content_size.width),
            Line(EMPTY), Line(styled("keys", ".head")), *self._entries(entries),
            Line(EMPTY), Line(styled("commands in the prompt", ".head")), *self._entries(commands),
            Line(EMPTY), Line(styled("token view", ".head")), *self._entries(legend),
        ]  # fmt: skip
        self.show(Content("\n").join(row.content for row in rows), layout=True)

    def _entries(self, entries: list[tuple[str, Content]]) -> Iterable[Line]:
        space = Content(" " * _KEY_WIDTH)
        for name, words in entries:
            yield from hang(words, self.content_size.width, styled(name.ljust(_KEY_WIDTH), ".key"), space)


class HelpScreen(Dialog[None]):
    CSS_PATH = "help.tcss"
    DIALOG_TITLE = "help"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("f1,q,enter", "close", "Close", show=False)]

    def compose_content(self) -> ComposeResult:
        yield HelpText()
