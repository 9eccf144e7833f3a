"""The pair switcher."""

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.tui.launch import Catalog, Pair
from specchat.tui.screens.dialog import Dialog
from specchat.tui.session import Session


class PairsScreen(Dialog[Pair | None]):
    """Gives the pair chosen, None when closed."""

    CSS_PATH = "pairs.tcss"
    DIALOG_TITLE = "models"
    DIALOG_HINT = "enter loads · esc closes"

    def __init__(self, session: Session, catalog: Catalog) -> None:
        super().__init__()
        self._session = session
        self._pairs = list(catalog.pairs)

    def compose_content(self) -> ComposeResult:
        yield OptionList(*[Option(self._entry(pair)) for pair in self._pairs], markup=False)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        current = self._session.pair
        options.highlighted = self._pairs.index(current) if current in self._pairs else 0
        options.focus()

    def _entry(self, pair: Pair) -> Content:
        loaded = self._session.pair is pair and self._session.info is not None
        name = Content.styled(one_line(pair.spec.name, 60), "bold") + Content.styled(" · loaded" * loaded, "$accent")
        lines = [name, Content.styled(one_line(line, 200), "$foreground 60%")] if (line := needs(pair)) else [name]
        return Content("\n").join(lines)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._pairs[event.option_index])


def needs(pair: Pair) -> str:
    """Target, draft, and what the catalog says the pair needs, in one line."""
    spec = pair.spec
    parts = [spec.target.label, f"draft {spec.draft.label}" if spec.draft else "no draft model", spec.backend]
    requires = getattr(pair, "requires", None)
    for field, words in (("vram_gib", "GiB of GPU memory"), ("ram_gib", "GiB of memory"), ("disk_gib", "GiB of disk")):
        amount = requires.get(field) if isinstance(requires, dict) else getattr(requires, field, None)
        if amount:
            parts.append(f"{amount:g} {words}")
    return " · ".join(parts)
