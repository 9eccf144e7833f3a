"""The prompts of saved chats, as drafts and heads learn from them."""

from collections.abc import Iterator
from dataclasses import dataclass

from specchat.chat.store import Store
from specchat.engine.protocol.options import Message


@dataclass(frozen=True)
class AskedPrompt:
    """A prompt with the messages before it, and the key and title of its chat."""

    chat: str
    title: str
    messages: tuple[Message, ...]


def asked_prompts(store: Store) -> Iterator[AskedPrompt]:
    """The answered prompts on the shown path of every saved chat, the latest chats first.

    Raises:
        sqlite3.Error: the file fails.
    """
    for entry in store.chats():
        chat, _ = store.load(entry.key)
        for turn in chat.turns:
            if turn.answered and turn.prompt:
                yield AskedPrompt(entry.key, entry.title, chat.messages(turn))
