"""The model that answers a prompt again: the chat's, or another one."""

from collections.abc import Sequence

from textual.content import Content

from specchat.clean import one_line
from specchat.tui.composing.fuzzy import ranked
from specchat.tui.screens.filter import FilterDialog
from specchat.tui.text.lines import styled

_SHOWN = 100


class AgainScreen(FilterDialog[str]):
    """Its entries are ids of pairs; the first is the chat's own, ""."""

    DIALOG_TITLE = "answer again by"
    DIALOG_HINT = "enter answers · type to search · esc closes"

    def __init__(self, name: str, others: Sequence[tuple[str, str]]) -> None:
        """`name` is the chat's model; `others` are ids of pairs with a word about each."""
        super().__init__()
        self._all = [("", f"the same model: {name}" if name else "the same model"), *others]

    def find(self, query: str) -> list[tuple[str, Content]]:
        found = ranked(query.strip(), self._all, lambda one: " ".join(one), _SHOWN)
        return [(pair, _row(pair, about)) for (pair, about), _ in found]


def _row(pair: str, about: str) -> Content:
    words = one_line(about, 60)
    return styled(words) if not pair else styled(f"{one_line(pair, 30)}  ") + styled(words, ".quiet")
