"""The rows of a chat: its turns made into sections, and laid out, around what is being read."""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any, Literal

from specchat.chat.tree import Conversation
from specchat.chat.turn import Turn
from specchat.dataclass import dataclass
from specchat.tui.text.pictures import Graphics
from specchat.tui.text.prompt_rows import shown_prompt
from specchat.tui.text.window import ROWS, Place, Row, SectionWindow

if TYPE_CHECKING:  # the app starts sooner without
    from specchat.tui.text.turn import TurnView

_TURNS, _CHARACTERS = 30, 60_000
"""At most so many turns, and about so much text, are taken in at a time."""


@dataclass(frozen=True)
class Said:
    """One message: what `by` said in `turn`."""

    turn: Turn
    by: Literal["you", "model"]

    @property
    def text(self) -> str:
        """The message as far as it can be shown; offsets in it are those of its sections."""
        if self.by == "you":
            return shown_prompt(self.turn.prompt)
        return self.turn.reply.text if self.turn.reply else ""


class ChatRows:
    """Turns and rows are taken in at both ends as they are needed. A `width` of 0 lays out nothing yet."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        token_view: bool = False,
        unfolded: Container[str] = (),
        version_keys: str = "",
        graphics: Graphics | None = None,
    ) -> None:
        self._version_keys = version_keys
        self.conversation = conversation
        self.token_view = token_view
        self.window = SectionWindow()
        self._shown_as: dict[str, Any] = {"token_view": token_view, "unfolded": unfolded, "graphics": graphics}
        self._views: list[TurnView] = []
        """The turns from number `_oldest` on."""
        self._oldest = 0
        self._known = 0
        self._stable = 0
        """Sections of all these turns but the last."""

    @property
    def rows(self) -> list[Row]:
        return self.window.rows

    @property
    def at_start(self) -> bool:
        """True if the beginning of the chat is laid out."""
        return self._oldest == 0 and self.window.complete

    @property
    def at_end(self) -> bool:
        """True if the end of the chat is laid out."""
        return self._newest == len(self.conversation.turns) and self.window.complete_below

    @property
    def _newest(self) -> int:
        return self._oldest + len(self._views)

    # Taking in turns

    @property
    def stale(self) -> bool:
        """True if the turns taken in are not those of the chat any more; then it must be laid out anew."""
        turns = self.conversation.turns
        if not self._views:
            return bool(turns)
        return self._newest > len(turns) or self._views[-1].turn is not turns[self._newest - 1]

    def sync(self, width: int) -> tuple[int | None, bool]:
        """Take in what changed at the end: the first row that did (None when none did), and whether a turn was added.

        Where the end is not taken in, only an added turn is reported.
        """
        turns = self.conversation.turns
        newest, known, self._known = self._newest, self._known, len(turns)
        grown = len(turns) > known
        if newest < known:
            return None, grown
        changed: list[int | None] = []
        if self._views:
            changed.append(self.window.replace(self._stable, self._views[-1].sections(), width))
        for number in range(newest, len(turns)):
            self._stable = len(self.window.sections)
            self._views.append(self._view(number, turns[number]))
            changed.append(self.window.replace(self._stable, self._views[-1].sections(), width))
        return min((row for row in changed if row is not None), default=None), grown

    def _view(self, number: int, turn: Turn) -> "TurnView":
        from specchat.tui.text.turn import TurnView

        siblings = self.conversation.siblings(turn)
        keys = self._version_keys if number == len(self.conversation.turns) - 1 else ""
        return TurnView(turn, first=number == 0, version_keys=keys, siblings=siblings, **self._shown_as)

    def _start_at(self, number: int) -> None:
        """Forget all turns taken in; those around `number` come next."""
        self._views, self._oldest, self._stable, self.window = [], number, 0, SectionWindow()
        self._known = len(self.conversation.turns)

    def _some(self, numbers: Iterable[int]) -> "list[TurnView]":
        """The first of the turns `numbers`: those that are taken in at a time."""
        views: list[TurnView] = []
        size = 0
        for number in numbers:
            if len(views) >= _TURNS or size >= _CHARACTERS:
                break
            turn = self.conversation.turns[number]
            size += len(turn.prompt) + (turn.reply.length if turn.reply else 0)
            views.append(self._view(number, turn))
        return views

    def _add_older(self) -> bool:
        views = self._some(reversed(range(self._oldest)))[::-1]
        sections = [section for view in views for section in view.sections()]
        if views and not self._views:
            self._stable = -len(views[-1].shown)
        self._views[:0], self._oldest = views, self._oldest - len(views)
        self.window.prepend(sections)
        self._stable += len(sections)
        return bool(views)

    def _add_newer(self) -> bool:
        views = self._some(range(self._newest, len(self.conversation.turns)))
        for view in views:
            self._stable = len(self.window.sections)
            self.window.append(view.sections())
        self._views += views
        return bool(views)

    # Laying out

    def open_end(self, width: int) -> None:
        """Lay out the end of the chat."""
        total = len(self.conversation.turns)
        if not self._views or self._newest != total:
            self._start_at(total)
            self._add_older()
        if width:
            self._open(len(self.window.sections), width)

    def _open(self, index: int, width: int) -> int:
        """Lay out anew around section `index`; gives its first row."""
        self.window.open_at(index, width)
        above = self.window.start_of(index)
        at = len(self.rows) if above is None else above
        while at < ROWS and (added := self.extend(width)):
            at += added
        while above is not None and len(self.rows) - at < ROWS and self.extend_below(width):
            pass
        return at

    def extend(self, width: int) -> int:
        """Lay out more rows above; gives their number, 0 at the beginning of the chat."""
        while self.window.complete and self._add_older():
            pass
        return self.window.extend(width)

    def extend_below(self, width: int) -> int:
        """Lay out more rows below; gives their number, 0 at the end of the chat."""
        while self.window.complete_below and self._newest < len(self.conversation.turns) and self._add_newer():
            pass
        return self.window.extend_below(width)

    # Messages and places

    def said_at(self, row: int) -> Said | None:
        """The message that `row` belongs to."""
        found = self.window.section_at(row)
        if found is None:
            return None
        index = found[0]
        for view in self._views:
            if index < len(view.shown):
                return Said(view.turn, "you" if index < view.prompt_sections else "model")
            index -= len(view.shown)
        return None

    def row_of(self, said: Said, width: int, offset: int | None = None) -> int | None:
        """First row of a message, or of its section at `offset`, laid out if need be; None where it is not there."""
        index = self._index_of(said, offset)
        if index is None or not width:
            return None
        row = self.window.start_of(index)
        if row is None:
            row = self._open(index, width)
        while offset is None and row + 1 < len(self.rows) and not self.rows[row][0].content:
            row += 1
        return row

    def next_message(self, row: int, direction: int, width: int) -> int | None:
        """The first row of the message after (1) that at `row`, or of it or the one before it (-1)."""
        said = self.said_at(row)
        index = self._index_of(said) if said else None
        if said is None or index is None:
            return None
        start = self.window.start_of(index)
        if direction < 0 and (start is None or start < row):
            head = self.row_of(said, width)
            if start is None or (head is not None and head < row):
                return head
        other = self._neighbour(said, direction)
        return self.row_of(other, width) if other is not None else None

    def _index_of(self, said: Said, offset: int | None = None) -> int | None:
        found = self._reach(said.turn)
        if found is None:
            return None
        view, base = found
        if said.by == "you":
            return base + (0 if offset is None else 1)
        if offset is None:
            return base + max(min(view.prompt_sections, len(view.shown) - 1), 0)
        shows = [i for i, section in enumerate(view.shown) if section.reply is not None]
        return base + next((i for i in shows if view.shown[i].end > offset), shows[-1] if shows else 0)

    def _neighbour(self, said: Said, direction: int) -> Said | None:
        """The message after (1) or before (-1); nobody said the results of calls."""
        other = self._beside(said, direction)
        while other is not None and other.by == "you" and other.turn.results:
            other = self._beside(other, direction)
        return other

    def _beside(self, said: Said, direction: int) -> Said | None:
        turns = self.conversation.turns
        if direction > 0 and said.by == "you" and said.turn.reply is not None:
            return Said(said.turn, "model")
        if direction < 0 and said.by == "model":
            return Said(said.turn, "you")
        number = turns.index(said.turn) + direction
        if not 0 <= number < len(turns):
            return None
        turn = turns[number]
        return Said(turn, "model" if direction < 0 and turn.reply is not None else "you")

    def place(self, row: int) -> Place | None:
        """Place of `row`."""
        place, said = self.window.place(row), self.said_at(row)
        if place is None or said is None:
            return None
        section, inside = place
        turn = section.reply.turn if section.reply is not None and section.reply.turn else said.turn
        return Place(turn, section, inside)

    def row_at(self, place: Place, width: int, *, anew: bool = False) -> int | None:
        """The row of `place`, laid out if need be, all rows `anew`; None when it is not there any more."""
        found = self._reach(place.turn)
        if found is None or not width:
            return None
        view, base = found
        inside = next((i for i, section in enumerate(view.shown) if section.shows_start_of(place.section)), None)
        if inside is None:
            return None
        start = None if anew else self.window.start_of(base + inside)
        if start is None:
            start = self._open(base + inside, width)
        return place.row_in(view.shown[inside], start, width)

    def laid_out_at(self, place: Place, width: int) -> int | None:
        """The row of `place` where it is laid out already."""
        for index, section in enumerate(self.window.sections):
            if section.shows_start_of(place.section):
                start = self.window.start_of(index)
                return None if start is None else place.row_in(section, start, width)
        return None

    def _reach(self, turn: Turn) -> "tuple[TurnView, int] | None":
        """The view of a turn, taken in if need be, and the index of its first section; None when it is not shown."""
        base = 0
        for view in self._views:
            if view.turn is turn:
                return view, base
            base += len(view.shown)
        if turn not in self.conversation.turns:
            return None
        self._start_at(self.conversation.turns.index(turn))
        self._add_newer()
        return self._views[0], 0
