"""The list of chats, with a search over titles and messages."""

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specchat.chat.rows import ChatEntry
from specchat.chat.schema import in_words
from specchat.chat.store import Store
from specchat.chat.tags import asked_for, has_all
from specchat.chat.tree import Conversation
from specchat.dataclass import dataclass
from specchat.tui.chat_list import ListRow, by_date, of_hits
from specchat.tui.text.lines import styled
from specchat.tui.widgets.line_input import LineInput
from specchat.tui.widgets.options import Options

_HITS = 100
"""Places that are looked for at most; a chat is listed once, with the best of its own."""


class Entry(Option):
    """A row of the list. It stays what was chosen when the list is filled anew before that is heard of."""

    def __init__(self, row: ListRow) -> None:
        super().__init__(row.content, disabled=row.key is None)
        self.row = row


class Search(LineInput):
    """Down goes to the list, enter opens what is marked there."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key in ("down", "enter") and isinstance(self.parent, Sidebar):
            event.stop()
            event.prevent_default()
            if event.key == "down":
                self.parent.to_list()
            else:
                self.parent.list.action_select()


class Sidebar(Vertical):
    """Reads the store whenever it is shown or something changed: `reload`."""

    @dataclass
    class Chosen(Message):
        """A chat is to be opened, at `message` if that is not None."""

        key: str
        message: str | None

    def __init__(self, store: Store) -> None:
        super().__init__(disabled=True)  # hidden at first, and nothing hidden may get the focus
        self.list = Options(id="chat-list", markup=False)
        self._store = store
        self._rows: list[ListRow] = []
        self._shown = self._title = ""
        self._answered: Collection[str] = ()
        self._width = 0
        """Cells of a row, as they were drawn last."""

    @staticmethod
    def outer(width: int) -> int:
        """Cells that it takes beside the chat in a window of `width` cells."""
        return min(max(width * 36 // 100, 32), 56)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Draw the rows anew where they have another width."""
        if not self.disabled and self.list.scrollable_content_region.width != self._width:
            self.reload()

    def compose(self) -> ComposeResult:
        yield Search(placeholder="search chats, #tag", id="chat-search")
        yield self.list

    @property
    def marked(self) -> str | None:
        """The key of the chat under the cursor while the list has the focus."""
        at = self.list.highlighted
        return self._rows[at].key if self.list.has_focus and at is not None and at < len(self._rows) else None

    def reload(self, shown: Conversation | None = None, running: Collection[str] = ()) -> None:
        """List the chats anew, or what the search finds; `shown` is the open one, `running` those being answered."""
        if shown is not None:
            self._shown, self._title, self._answered = shown.key, shown.title, running
        at = self.list.highlighted
        marked = self._rows[at] if at is not None and at < len(self._rows) else None
        text, now = self.query_one(Search).value, datetime.now()
        tags, rest = asked_for(text)
        self._width = self.list.scrollable_content_region.width
        try:
            listed = [] if rest.strip() else [chat for chat in self._chats() if has_all(chat.tags, tags)]
            found = (
                of_hits(self._store.search(text, _HITS), now, self._width)
                if text.strip() and not listed
                else by_date(listed, now, self._width, self._shown, self._answered)
            )
            self._rows = list(found)
        except sqlite3.Error as error:
            words = styled(in_words(error, self._store.path))
            self._rows = [ListRow(row) for row in words.wrap(max(self._width, 20))]
        self.list.clear_options()
        self.list.add_options([Entry(row) for row in self._rows])
        self.list.highlighted = self._nearest(at or 0, marked)

    def _chats(self) -> Sequence[ChatEntry]:
        """The store's chats; the open chat's title may be newer than what is saved."""
        chats = self._store.chats()
        return [replace(chat, title=self._title) if chat.key == self._shown else chat for chat in chats]

    def _nearest(self, at: int, marked: ListRow | None) -> int | None:
        """New place of the marked row, for the order changes; where it is gone, a chat at or near `at`."""
        chats = [index for index, row in enumerate(self._rows) if row.key is not None]
        for index in chats:
            row = self._rows[index]
            if marked is not None and (row.key, row.message) == (marked.key, marked.message):
                return index
        return min(chats, key=lambda index: (abs(index - at), index)) if chats else None

    def to_list(self) -> None:
        """Put the focus on the list, from the search box or onto the chat that is open."""
        if not self.has_focus_within:
            shown = next((index for index, row in enumerate(self._rows) if row.key == self._shown), None)
            self.list.highlighted = self.list.highlighted if shown is None else shown
        self.screen.set_focus(self.list)

    def to_search(self, words: str = "") -> None:
        """Put the focus on the search box, to look for `words` if there are any."""
        box = self.query_one(Search)
        if words:
            box.value = words
        self.screen.set_focus(box)

    def forget_search(self) -> None:
        """Empty the search box: next time all chats are listed."""
        self.query_one(Search).value = ""

    @on(Input.Changed, "#chat-search")
    def _typed(self) -> None:
        self.list.highlighted = None  # what is found best is marked
        self.reload()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        entry = event.option
        if isinstance(entry, Entry) and entry.row.key is not None:
            self.post_message(self.Chosen(entry.row.key, entry.row.message))
