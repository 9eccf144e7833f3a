"""The models there are: pairs and what was found on this machine, with where they fit and what they take."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.config.catalog import Catalog, Pair
from specchat.models import words
from specchat.models.library import Library, look
from specchat.models.machine import Machine, this_machine
from specchat.models.offers import Offer, offers, with_draft
from specchat.tui.screens.dialog import Dialog
from specchat.tui.session import Session
from specchat.tui.text.lines import EMPTY, hang, styled
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import Plain

_COLUMNS = (("size", 12), ("fits", 6), ("strategies", 20), ("licence", 16))
_ROOMY = 90
"""Cells from which all columns are shown; in fewer, name, size and fit."""
_NAMES = 13
_EVERY_S = 0.5


class AboutModel(Plain):
    """What is known of the marked one."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"quiet", "bad"}


class ModelsScreen(Dialog[Pair | None]):
    """Gives the pair chosen, None when closed. It looks for models while it is shown already."""

    CSS_PATH = "models.tcss"
    DIALOG_TITLE = "models"
    DIALOG_HINT = "enter loads · d with a draft · x stops or goes on · esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop_or_go", "Stop or go on", show=False),
        Binding("d", "with_draft", "With a draft", show=False),
    ]

    def __init__(self, session: Session, catalog: Catalog) -> None:
        super().__init__()
        self._session = session
        self._catalog = catalog
        self._rows: list[tuple[Pair, Offer | None]] = [(pair, None) for pair in catalog.pairs]
        self._problems: Sequence[str] = ()

    def compose_content(self) -> ComposeResult:
        yield Plain(id="columns")
        yield Options(markup=False)
        yield AboutModel()

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self._progressed)
        loaded = self._session.loaded.id
        ids = [pair.spec.id for pair, _ in self._rows]
        self._list(ids.index(loaded) if loaded in ids else 0)
        self.query_one(OptionList).focus()
        self.run_worker(self._look, thread=True, exit_on_error=False)

    def on_resize(self) -> None:
        self.call_after_refresh(self._list_again)

    def _look(self) -> None:
        """Read what is on the disk; in a thread of its own."""
        places = self._session.fetching.places
        library = look(places()) if places is not None else Library((), ())
        found = offers(self._catalog, library, self._machine())
        self.app.call_from_thread(self._looked, found, library.problems)

    def _machine(self) -> Machine:
        """What there is room for once the loaded pair has made way."""
        machine, info = this_machine(), self._session.loaded.info
        if info is None:
            return machine
        if info.gpu:
            return replace(machine, gpu=machine.gpu and machine.gpu + info.memory)
        return replace(machine, memory=machine.memory and machine.memory + info.memory)

    def _looked(self, found: Sequence[Offer], problems: Sequence[str]) -> None:
        if not self.is_attached:  # closed in the meantime
            return
        marked = self._marked
        self._rows = [(offer.pair, offer) for offer in found]
        self._problems = problems
        specs = [pair.spec for pair, _ in self._rows]
        self._list(specs.index(marked.spec) if marked is not None and marked.spec in specs else 0)

    @property
    def _marked(self) -> Pair | None:
        at = self.query_one(OptionList).highlighted
        return self._rows[at][0] if at is not None and at < len(self._rows) else None

    # Drawing

    def _list_again(self) -> None:
        self._list(self.query_one(OptionList).highlighted or 0)

    def _list(self, highlighted: int) -> None:
        options = self.query_one(OptionList)
        width = max(options.scrollable_content_region.width, 20)
        columns = _COLUMNS if width >= _ROOMY else _COLUMNS[:2]
        room = max(width - sum(cells for _, cells in columns), 8)
        head = "model".ljust(room) + "".join(name.ljust(cells) for name, cells in columns)
        self.query_one("#columns", Plain).show(head[:width])
        options.set_options([Option(self._row(pair, offer, room, columns)) for pair, offer in self._rows])
        options.highlighted = highlighted if self._rows else None
        self._describe()

    def _row(self, pair: Pair, offer: Offer | None, room: int, columns: Sequence[tuple[str, int]]) -> Content:
        loaded = self._session.loaded.id == pair.spec.id and self._session.loaded.info is not None
        mark = " · loaded" * loaded
        name = one_line(pair.spec.name, room - len(mark) - 1)
        cells = (*self._facts(pair, offer), *([""] * len(columns)))[: len(columns)]
        tail = "".join(one_line(cell, size - 1).ljust(size) for cell, (_, size) in zip(cells, columns, strict=True))
        title = Content.styled(name, "bold") + Content.styled(mark, "$accent")
        return title + " " * max(room - title.cell_length, 0) + Content.styled(tail, "$quiet")

    def _facts(self, pair: Pair, offer: Offer | None) -> tuple[str, ...]:
        fetching = self._session.fetching
        share = fetching.share if fetching.is_for(pair) else ""
        if offer is None:
            return (share or "…", "…")
        return (share or words.amount(offer), offer.fit.verdict, words.drafting(offer), offer.licence)

    @on(OptionList.OptionHighlighted)
    def _describe(self) -> None:
        pane = self.query_one(AboutModel)
        at = self.query_one(OptionList).highlighted
        if at is None or at >= len(self._rows):
            pane.show(EMPTY, layout=True)
            return
        pair, offer = self._rows[at]
        rows = words.about(offer) if offer is not None else [("target", pair.spec.target.label)]
        fetching = self._session.fetching
        if fetching.is_for(pair) and fetching.task is not None:
            rows.insert(0, ("download", str(fetching) or f"{fetching.task.state}; x goes on"))
        width = max(pane.content_size.width, 20)
        lines = [line for name, text in rows for line in self._lines(name, text, width)]
        lines += [line for problem in self._problems for line in self._lines("not read", problem, width)]
        pane.show(Content("\n").join(lines), layout=True)

    def _lines(self, name: str, text: str, width: int) -> list[Content]:
        first = styled(name.ljust(_NAMES), ".quiet")
        return [line.content for line in hang(Content(one_line(text, 300)), width, first, Content(" " * _NAMES))]

    def _progressed(self) -> None:
        if self._session.fetching.task is not None:
            self._list_again()

    # What is chosen

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index][0])

    def action_with_draft(self) -> None:
        """Load the marked one with the first model that could draft for it."""
        at = self.query_one(OptionList).highlighted
        pair, offer = self._rows[at] if at is not None and at < len(self._rows) else (None, None)
        if pair is not None and offer is not None and offer.drafts.proposals:
            self.dismiss(with_draft(pair, offer.drafts.proposals[0].source))

    def action_stop_or_go(self) -> None:
        self._session.fetching.toggle()
        self._list_again()
