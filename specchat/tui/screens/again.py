"""The model that answers a prompt again: the chat's, or another one."""

from collections.abc import Callable, Iterable, Sequence

from textual.content import Content
from textual.widgets import Input

from specchat.clean import one_line
from specchat.tui.composing.fuzzy import ranked
from specchat.tui.screens.filter import FilterDialog
from specchat.tui.text.lines import styled

_SHOWN = 100


class AgainScreen(FilterDialog[str]):
    """Its entries are ids of pairs; the first is the chat's own, "". Those that are not here come as one types."""

    DIALOG_TITLE = "answer again by"
    DIALOG_HINT = "enter answers · type to search · esc closes"

    def __init__(self, name: str, others: Sequence[tuple[str, str]], here: Callable[[], Iterable[str]]) -> None:
        """`name` is the chat's model; `others` are ids of pairs with a word about each.

        `here`, called in a thread, tells those whose models are on this machine.
        """
        super().__init__()
        self._all = [("", f"the same model: {name}"), *others]
        self._find_here = here
        self._here = {""}

    def on_mount(self) -> None:
        super().on_mount()
        self.run_worker(self._look, thread=True, exit_on_error=False)

    def _look(self) -> None:
        self._here |= set(self._find_here())
        self.app.call_from_thread(self._add)

    def _add(self) -> None:
        if self.is_mounted and not (query := self.query_one(Input).value).strip():
            self._list(query)

    def find(self, query: str) -> list[tuple[str, Content]]:
        known = self._all if query.strip() else [one for one in self._all if one[0] in self._here]
        found = ranked(query.strip(), known, " ".join, _SHOWN)
        return [(pair, _row(pair, about)) for (pair, about), _ in found]


def _row(pair: str, about: str) -> Content:
    words = one_line(about, 60)
    return styled(words) if not pair else styled(f"{one_line(pair, 30)}  ") + styled(words, ".quiet")
