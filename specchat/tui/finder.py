"""Going through the matches of a search in the chat."""

from bisect import bisect_left

from specchat.chat.tree import Conversation
from specchat.tui.text.chat_rows import Said
from specchat.tui.text.find import Match, find_all, pattern_of


class Finder:
    """The matches of one query, found again when the chat changed."""

    def __init__(self) -> None:
        self.pattern = pattern_of("")
        self._matches: list[Match] = []
        self._seen: object = None
        self.current: Match | None = None
        """The one gone to last."""

    def look_for(self, query: str) -> None:
        self.pattern, self._seen, self.current = pattern_of(query), None, None

    def _update(self, chat: Conversation) -> list[Match]:
        last = chat.last
        length = last.reply.length if last and last.reply else 0
        seen = (chat, tuple(map(id, chat.turns[-2:])), len(chat.turns), last and last.reply, length)
        if seen != self._seen:
            self._seen = seen
            self._matches = find_all(chat.turns, self.pattern) if self.pattern else []
        return self._matches

    def nearest(self, chat: Conversation, said: Said | None, offset: int) -> Match | None:
        """The first match from `offset` in `said` on; else the last of all, which is the nearest above."""
        matches = self._update(chat)
        if not matches or said is None:
            self.current = matches[-1] if matches else None
        else:
            here = (chat.turns.index(said.turn), said.by == "model", offset)
            after = bisect_left(matches, here, key=lambda match: match.order)
            self.current = matches[after] if after < len(matches) else matches[-1]
        return self.current

    def step(self, chat: Conversation, direction: int) -> Match | None:
        """The match after (1) or before (-1) the latest one, round the ends of the chat."""
        matches = self._update(chat)
        if not matches:
            self.current = None
        elif self.current is None:
            self.current = matches[0 if direction > 0 else -1]
        else:
            at = bisect_left(matches, self.current.order, key=lambda match: match.order)
            same = at < len(matches) and matches[at] == self.current
            self.current = matches[(at + (direction if same or direction < 0 else 0)) % len(matches)]
        return self.current

    def words(self, chat: Conversation) -> str:
        """`3 of 17`, or how many there are where none was gone to yet."""
        if self.pattern is None:
            return ""
        matches = self._update(chat)
        if not matches:
            return "no match"
        if self.current is None:
            return f"{len(matches):,} match{'es' * (len(matches) > 1)}"
        at = bisect_left(matches, self.current.order, key=lambda match: match.order)
        return f"{min(at + 1, len(matches)):,} of {len(matches):,}"
