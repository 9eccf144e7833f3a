"""The pair switcher."""

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.config.catalog import Catalog, Pair
from specchat.tui.screens.dialog import Dialog
from specchat.tui.session import Session
from specchat.tui.widgets.options import Options


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
        yield Options(
            *[Option(self._entry(pair), disabled=bool(pair.unsupported)) for pair in self._pairs], markup=False
        )

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        ids = [pair.spec.id for pair in self._pairs]
        current = self._session.loaded.id
        options.highlighted = ids.index(current) if current in ids else 0
        options.focus()

    def _entry(self, pair: Pair) -> Content:
        loaded = self._session.loaded.id == pair.spec.id and self._session.loaded.info is not None
        name = Content.styled(one_line(pair.spec.name, 60), "bold") + Content.styled(" · loaded" * loaded, "$accent")
        words = f"not here: {pair.unsupported}" if pair.unsupported else needs(pair)
        return name + Content.styled("\n" + one_line(words), "$quiet")

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._pairs[event.option_index])


def needs(pair: Pair) -> str:
    """Target, draft, and what the catalog says the pair needs, in one line."""
    spec, requires = pair.spec, pair.requires
    parts = [_name(spec.target.label), f"draft {_name(spec.draft.label)}" if spec.draft else "no draft model"]
    amounts = ((requires.vram_gib, "GPU memory"), (requires.ram_gib, "memory"), (requires.disk_gib, "disk"))
    parts += [f"{amount:g} GiB {words}" for amount, words in amounts if amount]
    return " · ".join(parts)


def _name(label: str) -> str:
    """A repository as it is, a folder by the end of its path."""
    return "/".join(label.rstrip("/").split("/")[-2:])
