"""The models there are: pairs and what was found on this machine, with where they fit and what they take."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.clean import one_line
from specchat.config.catalog import Catalog, Pair
from specchat.engine.errors import EngineError
from specchat.engine.protocol.pair import PairSpec
from specchat.models import words
from specchat.models.library import Library, look
from specchat.models.machine import FreeMemory, this_machine
from specchat.models.offers import Offer, offers, with_draft
from specchat.tui.screens.dialog import CORNERS, Dialog
from specchat.tui.session import AppSession
from specchat.tui.text.lines import named
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import FactRows, Plain

_COLUMNS = (("size", 17), ("fits", 20), ("plain", 9), ("licence", 16))
_NARROW = (("size", 10), ("fits", 6))
_ROOMY = 100
"""Cells from which all columns are shown; in fewer, name, size and fit, in `_SHORT` words below that."""
_SHORT = 56
_NAMES = 14
_EVERY_S = 0.5
_LONGEST = 2000
"""Characters of a sentence that are shown: what to repair stands at its end."""

_LOOKING = "looking for the models on this machine ..."


class ModelsScreen(Dialog[Pair | str | None]):
    """Gives the pair chosen, the id of an action for the loaded one, or None when closed.

    It looks for models while it is shown already.
    """

    CSS_PATH = "models.tcss"
    DIALOG_TITLE = "models"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "stop_or_go", "Stop or go on", show=False),
        Binding("d", "with_draft", "With a draft", show=False),
        Binding("a", "add", "Add", show=False),
        Binding("t", "do('tune')", "Tune on my chats", show=False),
        Binding("r", "do('recommend')", "What is fastest here", show=False),
        Binding("enter", "choose", "Choose", show=False),
        Binding("down", "early(1)", "Down", show=False, priority=True),
        Binding("up", "early(-1)", "Up", show=False, priority=True),
        Binding("enter,space", "early(0)", "Choose", show=False, priority=True),
    ]

    def __init__(self, session: AppSession, catalog: Catalog, changed: Callable[[Catalog], None]) -> None:
        """`changed` receives all pairs once one was added."""
        super().__init__()
        self._session = session
        self._catalog = catalog
        listed = {offer.pair.id: (offer.pair, offer) for offer in session.fetching.listed}
        self._rows: list[tuple[Pair, Offer]] = list(listed.values()) if session.loaded.id in listed else []
        """Empty until this machine's models are known, with the loaded pair among them."""
        self._early_moves, self._early_choice = 0, False
        """Keys that came before there was a list."""
        self._changed = changed
        self._problems: Sequence[str] = ()
        self._outcomes: dict[str, str] = {}
        """Outcome of each request to add a model, by the ids of pairs."""
        self._described: PairSpec | None = None
        self._adding = False
        self._added = ""
        """The id of the pair that was added last, to be marked once it is listed."""

    def compose_content(self) -> ComposeResult:
        yield Plain(id="columns")
        yield Options(markup=False)
        with VerticalScroll(id="about"):
            yield FactRows()

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self._progressed)
        self._list(self._at_loaded)
        self.query_one(OptionList).focus()
        self.run_worker(self._look, thread=True, exit_on_error=False)

    def on_resize(self) -> None:
        self.call_after_refresh(self._list_again)

    def _look(self) -> None:
        """Read what is on the disk; in a thread of its own."""
        places = self._session.fetching.places
        library = look(places()) if places is not None else Library((), ())
        found = offers(self._catalog, library, self._machine(), self._session.loaded.pair)
        self.app.call_from_thread(self._looked, found, library.problems)

    def _machine(self) -> FreeMemory:
        """Free memory once the loaded pair has made way."""
        machine, info = this_machine(), self._session.loaded.info
        if info is None:
            return machine
        if info.load.gpu:
            return replace(machine, gpu=machine.gpu and machine.gpu + info.load.memory)
        return replace(machine, memory=machine.memory and machine.memory + info.load.memory)

    def _looked(self, found: Sequence[Offer], problems: Sequence[str]) -> None:
        if not self.is_attached:  # closed in the meantime
            return
        marked, added, early = self._marked, self._added, not self._rows
        self._session.fetching.listed = tuple(found)
        self._rows = [(offer.pair, offer) for offer in found]
        self._problems, self._added = problems, ""
        if early:
            self._list(max(0, min(self._at_loaded + self._early_moves, len(found) - 1)))
            if self._early_choice:
                self.action_choose()
            return
        at = (n for n, (pair, _) in enumerate(self._rows) if marked and (pair.id == added or pair.spec == marked.spec))
        self._list(next(at, 0))

    @property
    def _at_loaded(self) -> int:
        """The row of the loaded pair, else the first."""
        loaded = self._session.loaded.id
        return next((n for n, (pair, _) in enumerate(self._rows) if pair.spec.id == loaded), 0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "early" or not self._rows

    def action_early(self, move: int) -> None:
        """Keep a key that came before the list: a move, or 0 for a choice."""
        if not self._early_choice:
            self._early_moves, self._early_choice = self._early_moves + move, move == 0

    @property
    def _marked_row(self) -> tuple[Pair, Offer] | None:
        at = self.query_one(OptionList).highlighted
        return self._rows[at] if at is not None and at < len(self._rows) else None

    @property
    def _marked(self) -> Pair | None:
        return self._marked_row[0] if self._marked_row is not None else None

    # Drawing

    def _list_again(self) -> None:
        if self.is_attached:
            self._list(self.query_one(OptionList).highlighted or 0)

    def _list(self, highlighted: int) -> None:
        options = self.query_one(OptionList)
        width = max(options.scrollable_content_region.width, 20)
        columns = _COLUMNS if width >= _ROOMY else _COLUMNS[:3] if width >= _SHORT else _NARROW
        room = max(width - sum(cells for _, cells in columns), 8)
        head = "model".ljust(room) + "".join(name.ljust(cells) for name, cells in columns)
        self.query_one("#columns", Plain).show(head[:width])
        options.set_options([Option(self._row(pair, offer, room, columns)) for pair, offer in self._rows])
        options.highlighted = highlighted if self._rows else None
        self._describe()

    def _row(self, pair: Pair, offer: Offer, room: int, columns: Sequence[tuple[str, int]]) -> Content:
        loaded = self._session.loaded.id == pair.spec.id and self._session.loaded.info is not None
        mark = " · loaded" * loaded
        name = one_line(pair.spec.name, room - len(mark) - 1)
        cells = (*self._facts(pair, offer, short=columns is _NARROW), "")[: len(columns)]
        tail = "".join(one_line(cell, size - 1).ljust(size) for cell, (_, size) in zip(cells, columns, strict=True))
        title = Content.styled(name, "bold") + Content.styled(mark, "$accent")
        return title + " " * max(room - title.cell_length, 0) + Content.styled(tail, "$quiet")

    def _facts(self, pair: Pair, offer: Offer, *, short: bool) -> tuple[str, ...]:
        fetching = self._session.fetching
        share = fetching.share if fetching.is_for(pair) else ""
        if short:
            return (share or words.amount(offer).removeprefix("download "), offer.fit.verdict)
        return (share or words.amount(offer), words.fits(offer), words.speed(offer), offer.licence)

    @on(OptionList.OptionHighlighted)
    def _describe(self) -> None:
        pane, options = self.query_one(FactRows), self.query_one(OptionList)
        if self._marked_row is None:
            pane.show(Content(_LOOKING), layout=True)
            return
        pair, offer = self._marked_row
        rows = words.about(offer)
        if pair.name in str(options.get_option_at_index(options.highlighted or 0).prompt):
            rows = [row for row in rows if row[0] != "name"]
        fetching = self._session.fetching
        if fetching.is_for(pair) and fetching.task is not None:
            rows.insert(0, ("download", str(fetching) or f"{fetching.task.state}; x goes on"))
        if pair.id in self._outcomes:
            rows.insert(0, ("models.toml", self._outcomes[pair.id]))
        fallback = self._session.launch.service.fallback
        if fallback is not None and pair.spec == fallback.spec:
            settings = self._session.launch.config.settings_file or "config.toml"
            own = f"model_folders in {settings}; specchat --target FOLDER loads one at once"
            rows.insert(0, ("other folders", own))
        width = max(pane.content_size.width, 20)
        rows += [("not read", problem) for problem in self._problems]
        lines = [line for name, text in rows for line in named(name, text, width, _NAMES, longest=_LONGEST)]
        pane.show(Content("\n").join(lines), layout=True)
        if pair.spec != self._described:
            self._described = pair.spec
            self.query_one("#about", VerticalScroll).scroll_home(animate=False)
        self.call_after_refresh(self._say_keys)

    def _say_keys(self) -> None:
        if self.is_attached and self._marked_row is not None:
            box = self.query_one("#dialog")
            hints = list(self._hints(self._marked_row[1]))
            short = [few for _, few in hints if few]
            versions = [whole for whole, _ in hints], [whole for whole, few in hints if few], short, short[:-1]
            lines = [" · ".join(words) for words in versions]
            room = box.outer_size.width - CORNERS
            self.show_hint(next((line for line in lines if len(line) <= room), lines[-1]))

    def _hints(self, offer: Offer) -> Iterator[tuple[str, str]]:
        """Words about the keys for the marked one, and the same in fewer cells; none where they can be left out."""
        enter = "enter downloads" if offer.missing else "enter loads"
        yield enter, enter
        if offer.drafts.proposals:
            yield "d with a draft", "d drafts"
        if self._on_loaded:
            yield "t tunes it", "t tunes"
            yield "r measures it", ""
        if self._can_be_added(offer):
            yield "a adds to models.toml", "a adds"
        if self._session.fetching.task is not None:
            words = "x stops" if self._session.fetching.busy else "x goes on"
            yield words, words
        if self.query_one("#about", VerticalScroll).max_scroll_y:
            yield "tab reads on", "tab more"
        yield "esc closes", "esc closes"

    def _progressed(self) -> None:
        if self._session.fetching.task is not None:
            self._list_again()

    # What is chosen

    @on(OptionList.OptionSelected)
    def action_choose(self) -> None:
        """Load the marked one, wherever the focus is."""
        if self._marked is not None:
            self.dismiss(self._marked)

    def action_with_draft(self) -> None:
        """Load the marked one with the first model that could draft for it."""
        pair, offer = self._marked_row or (None, None)
        if pair is not None and offer is not None and offer.drafts.proposals:
            self.dismiss(with_draft(pair, offer.drafts.proposals[0]))

    @property
    def _on_loaded(self) -> bool:
        """True if the loaded pair is marked."""
        loaded = self._session.loaded
        return self._marked is not None and loaded.info is not None and self._marked.spec.id == loaded.id

    def action_do(self, action: str) -> None:
        """Close, and do something with the loaded pair."""
        if self._on_loaded:
            self.dismiss(action)

    def action_add(self) -> None:
        """Write the marked one, if it was not declared, into the user's models.toml, with its draft or one here."""
        _, offer = self._marked_row or (None, None)
        if offer is not None and self._can_be_added(offer) and not self._adding:
            self._adding = True
            self._outcomes[offer.pair.id] = "looking at the model"
            self._describe()
            self.run_worker(partial(self._add, offer), thread=True, exit_on_error=False)

    def _can_be_added(self, offer: Offer) -> bool:
        return not offer.declared and self._session.launch.models.add is not None

    def _add(self, offer: Offer) -> None:
        """In a thread of its own: vocabularies are compared."""
        add, target, own = self._session.launch.models.add, offer.pair, offer.pair.spec.draft
        assert add is not None
        here = ((proposal.source, proposal.name) for proposal in offer.drafts.proposals if proposal.about is not None)
        draft = (own, own.label) if own is not None else next(here, None)
        name = target.name if own is None or offer.target is None else offer.target.name
        try:
            added = add((target.spec.target, name), draft)
        except EngineError as error:
            self._outcomes[target.id] = f"not written: {error.message}"
            self.app.call_from_thread(self._list_again)
            return
        finally:
            self._adding = False
        self._added = str(added.table["id"])
        self._outcomes[self._added] = f"written to {added.file}{f', with {draft[1]} to draft' if draft else ''}"
        self._catalog = added.catalog
        self.app.call_from_thread(self._changed, added.catalog)
        self._look()

    def action_stop_or_go(self) -> None:
        self._session.fetching.toggle()
        self._list_again()
