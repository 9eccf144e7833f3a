"""The models there are: pairs and what was found on this machine and by the hub, with fit, speed and needs of each."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.config.catalog import Catalog, Pair
from specchat.engine.protocol.pair import PairSpec
from specchat.models.library import Library
from specchat.models.offers import Offer, with_draft
from specchat.tui.screens.dialog import CORNERS, Dialog
from specchat.tui.screens.hub_search import HubSearch
from specchat.tui.screens.model_adding import Adding
from specchat.tui.screens.model_facts import facts
from specchat.tui.screens.model_hints import ListState, hint_line
from specchat.tui.screens.model_list import ModelList
from specchat.tui.screens.model_rows import ModelRows
from specchat.tui.session import AppSession
from specchat.tui.text.lines import named
from specchat.tui.widgets.line_input import LineInput
from specchat.tui.widgets.options import Options
from specchat.tui.widgets.plain import FactRows, Plain

_NAMES = 14
_MOVES = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
"""Rows that keys move by, unless the facts have the focus."""
_PLACEHOLDER = "type to filter; ctrl+f searches the hub"
_EVERY_S = 0.5
_LONGEST = 2000  # characters of a sentence, which says at its end what to repair
_LOOKING = "looking for the models on this machine ..."


class ModelsScreen(Dialog[Pair | str | None]):
    """Gives the pair chosen, the id of an action for the loaded one, or None when closed.

    It looks for models while it is shown already.
    """

    CSS_PATH = "models.tcss"
    DIALOG_TITLE = "models"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+x", "stop_or_go", "Stop or go on", show=False, priority=True),
        Binding("ctrl+d", "with_draft", "With a draft", show=False, priority=True),
        Binding("ctrl+s", "add", "Save", show=False, priority=True),
        Binding("ctrl+t", "do('tune')", "Tune on my chats", show=False, priority=True),
        Binding("ctrl+r", "do('recommend')", "What is fastest here", show=False, priority=True),
        Binding("ctrl+o", "other", "Other download", show=False, priority=True),
        Binding("ctrl+f", "search", "Search the hub", show=False, priority=True),
        Binding("enter", "choose", "Choose", show=False),
        Binding("down", "early(1)", "Down", show=False, priority=True),
        Binding("up", "early(-1)", "Up", show=False, priority=True),
        Binding("enter", "early(0)", "Choose", show=False, priority=True),
        *(Binding(key, f"move({by})", show=False, priority=True) for key, by in _MOVES.items()),
    ]

    def __init__(self, session: AppSession, catalog: Catalog, changed: Callable[[Catalog], None]) -> None:
        """`changed` receives all pairs once one was added."""
        super().__init__()
        self._session = session
        self._catalog = catalog
        self._listed = ModelList(HubSearch(session.fetching.places))
        if session.loaded.id in {offer.pair.id for offer in session.fetching.listed}:
            self._listed.take(session.fetching.listed)
        self._library = Library((), ())
        self._early_moves, self._early_choice = 0, False  # keys that came before there was a list
        self._changed = changed
        self._adding = Adding(session.launch.models.add)
        self._described: PairSpec | None = None

    def compose_content(self) -> ComposeResult:
        yield LineInput(placeholder=_PLACEHOLDER)
        yield Plain(id="columns")
        yield Options(markup=False)
        with VerticalScroll(id="about"):
            yield FactRows()

    def on_mount(self) -> None:
        self.set_interval(_EVERY_S, self._progressed)
        self.query_one(OptionList).can_focus = False
        self.query_one(Input).focus()
        self._list(self._first)
        self.run_worker(self._look, thread=True, exit_on_error=False)

    def on_unmount(self) -> None:
        self._listed.search.stop()

    def on_resize(self) -> None:
        self.call_after_refresh(self._list_again)

    def _look(self) -> None:
        """Read what is on the disk; in a thread of its own."""
        self._library, found = self._session.look(self._catalog)
        self.app.call_from_thread(self._looked, found)

    def _looked(self, found: Sequence[Offer]) -> None:
        if not self.is_attached:  # closed in the meantime
            return
        marked, added, early = self._marked, self._adding.added, not self._listed.offers
        self._session.fetching.listed = tuple(found)
        self._adding.added = ""
        self._listed.take(found)
        if early:
            self._list(max(0, min(self._first + self._early_moves, len(self.rows) - 1)))
            if self._early_choice:
                self.action_choose()
            return
        same = (offer.pair.id == added or (marked and offer.pair.spec == marked.pair.spec) for offer in self.rows)
        self._list(next((number for number, is_it in enumerate(same) if is_it), 0))

    @property
    def rows(self) -> Sequence[Offer]:
        """The listed offers."""
        return self._listed.rows

    @property
    def _first(self) -> int:
        """The row to be marked: the loaded pair's, else the first, as after a word was typed."""
        loaded = self._session.loaded.id if not self.query_one(Input).value.strip() else ""
        return next((number for number, offer in enumerate(self.rows) if offer.pair.id == loaded), 0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "early":
            return not self._listed.offers
        return action != "move" or not isinstance(self.focused, VerticalScroll)

    def action_early(self, move: int) -> None:
        """Keep a key that came before the list: a move, or 0 for a choice."""
        if not self._early_choice:
            self._early_moves, self._early_choice = self._early_moves + move, move == 0

    @property
    def _marked(self) -> Offer | None:
        at = self.query_one(OptionList).highlighted
        return self.rows[at] if at is not None and at < len(self.rows) else None

    # What is listed

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self._listed.filter(event.value.strip())
        self._list(self._first)

    def action_move(self, by: int) -> None:
        self.query_one(Options).move(by, len(self.rows))

    def action_other(self) -> None:
        """Show the next download of the same models in the row."""
        if self._marked is not None:
            self._listed.next_variant(self._marked)
            self._list_again()

    @property
    def _searchable(self) -> bool:
        """True if there are typed words for which the hub found nothing yet."""
        typed, search = self.query_one(Input).value.strip(), self._listed.search
        return bool(typed) and search.possible and (typed != search.words or not search.found)

    def action_search(self) -> None:
        """Ask the hub for the typed words."""
        if self._searchable:
            over = self._listed.search.begin(self.query_one(Input).value.strip())
            self._list_again()
            self.run_worker(partial(self._search, over), thread=True, exit_on_error=False)

    def _search(self, over: Event) -> None:
        """In a thread of its own."""
        found = partial(self.app.call_from_thread, self._list_again)
        self._listed.search.run(over, self._library, self._session.machine(), found)

    # Drawing

    def _list_again(self) -> None:
        if self.is_attached:
            self._listed.filter(self.query_one(Input).value.strip())
            self._list(self.query_one(OptionList).highlighted or 0)

    def _list(self, highlighted: int) -> None:
        options = self.query_one(Options)
        looks = ModelRows(max(options.scrollable_content_region.width, 20))
        self.query_one("#columns", Plain).show(looks.head)
        shown = [Option(looks.row(offer, *self._state(offer.pair))) for offer in self.rows]
        if self._listed.sentence:
            shown.append(Option(Content.styled(self._listed.sentence, "$quiet"), disabled=True))
        options.refill(shown, min(highlighted, len(self.rows) - 1) if self.rows else None)
        self._describe()

    def _state(self, pair: Pair) -> tuple[str, str]:
        """The mark of the loaded pair, and the progress of the one that is fetched."""
        loaded, fetching = self._session.loaded, self._session.fetching
        is_loaded = loaded.id == pair.id and loaded.info is not None
        return " · loaded" * is_loaded, fetching.share if fetching.is_for(pair) else ""

    @on(OptionList.OptionHighlighted)
    def _describe(self) -> None:
        pane, offer = self.query_one(FactRows), self._marked
        self.call_after_refresh(self._say_keys)
        if offer is None:
            pane.show(Content("" if self._listed.offers else _LOOKING), layout=True)
            return
        rows = facts(offer, self._session, self._adding.outcomes)
        row = self.query_one(OptionList).get_option_at_index(self.query_one(OptionList).highlighted or 0)
        if offer.pair.name in str(row.prompt):
            rows = [fact for fact in rows if fact[0] != "name"]
        rows += [("not read", problem) for problem in self._library.problems]
        pane.show_rows(lambda width: [line for row in rows for line in named(*row, width, _NAMES, longest=_LONGEST)])
        if offer.pair.spec != self._described:
            self._described = offer.pair.spec
            self.query_one("#about", VerticalScroll).scroll_home(animate=False)

    def _say_keys(self) -> None:
        if not self.is_attached or not self._listed.offers:
            return
        offer, fetching = self._marked, self._session.fetching
        now = ListState(
            loaded=self._on_loaded,
            addable=offer is not None and self._adding.possible(offer),
            fetching=fetching.busy if fetching.task is not None else None,
            searchable=self._searchable,
            more=bool(self.query_one("#about", VerticalScroll).max_scroll_y),
        )
        self.show_hint(hint_line(offer, now, self.query_one("#dialog").outer_size.width - CORNERS))

    def _progressed(self) -> None:
        if self._session.fetching.task is not None:
            self._list_again()

    # What is chosen

    @on(OptionList.OptionSelected)
    @on(Input.Submitted)
    def action_choose(self) -> None:
        """Load the marked one, wherever the focus is; where nothing holds the typed words search for them."""
        if self._marked is not None:
            self.dismiss(self._marked.pair)
        else:
            self.action_search()

    def action_with_draft(self) -> None:
        """Load the marked one with the first model that could draft for it."""
        if self._marked is not None and self._marked.drafts.proposals:
            self.dismiss(with_draft(self._marked.pair, self._marked.drafts.proposals[0]))

    @property
    def _on_loaded(self) -> bool:
        """True if the loaded pair is marked."""
        loaded = self._session.loaded
        return self._marked is not None and loaded.info is not None and self._marked.pair.id == loaded.id

    def action_do(self, action: str) -> None:
        """Close, and do something with the loaded pair."""
        if self._on_loaded:
            self.dismiss(action)

    def action_add(self) -> None:
        """Write the marked one, if it was not declared, into the user's models.toml, with its draft or one here."""
        if self._marked is not None and self._adding.begin(self._marked):
            self._describe()
            self.run_worker(partial(self._add, self._marked), thread=True, exit_on_error=False)

    def _add(self, offer: Offer) -> None:
        """In a thread of its own."""
        if (catalog := self._adding.run(offer)) is None:
            self.app.call_from_thread(self._list_again)
            return
        self._catalog = catalog
        self.app.call_from_thread(self._changed, catalog)
        self._look()

    def action_stop_or_go(self) -> None:
        self._session.fetching.toggle()
        self._list_again()
