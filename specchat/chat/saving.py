"""Saving of a chat: a prompt before it is answered, a reply twice a second while it is written and at its end."""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.clean import clean

View = Callable[[Conversation], Mapping[str, Any]]

FLUSH_S = 0.5
"""Seconds between saves of a reply that is being written."""


class Saving:
    """Takes what happens in chats to the store. `view` gives what is to be found again when a chat is reopened."""

    def __init__(self, store: Store, view: View, clock: Callable[[], float] = monotonic):
        self.store = store
        self._view = view
        self._clock = clock
        self._flushed = 0.0

    @property
    def problem(self) -> str:
        """Why nothing can be saved at the moment; empty when all is well."""
        return self.store.problem

    def asked(self, chat: Conversation, turn: Turn) -> str:
        """A prompt is about to be answered; gives a warning where it is not safe yet."""
        if self.store.add_turn(chat, turn, self._view(chat)):
            return ""
        return f"This message is not saved yet. {self.store.delay}"

    def begun(self, chat: Conversation, reply: Reply) -> None:
        self.store.save_reply(chat, reply)

    def written(self, replies: Iterable[tuple[Conversation, Reply]]) -> None:
        """More may be there of the replies that the engine writes."""
        now = self._clock()
        if now - self._flushed >= FLUSH_S:
            self._flushed = now
            for chat, reply in replies:
                self.store.save_reply(chat, reply)

    def ended(self, chat: Conversation, reply: Reply) -> None:
        """A reply is complete, stopped or failed."""
        if not chat.name and chat.turns:
            _retitle(chat)
        self.store.save_reply(chat, reply)
        self.store.save_chat(chat, self._view(chat))

    def dropped(self, reply: Reply) -> None:
        """A reply came to nothing."""
        self.store.drop_reply(reply)

    def looked(self, chat: Conversation) -> None:
        """The chat is left, or shown in another way."""
        if chat.turns:
            self.store.save_view(chat, self._view(chat))


def _retitle(chat: Conversation) -> None:
    """Make the title from the first turn that asks for something, where none was made but of a greeting."""
    from specchat.chat.titles import is_greeting, make_title  # the app starts sooner without

    first = chat.turns[0]
    if not chat.made_title or (is_greeting(first.prompt) and chat.made_title == make_title(first.prompt)):
        asked = (turn for turn in chat.turns if not turn.results)
        telling = next((turn for turn in asked if not is_greeting(turn.prompt)), first)
        chat.made_title = make_title(telling.prompt, clean(telling.reply.written.answer) if telling.reply else "")
