"""Chats for tests, with recorded replies."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.attachments.files import Attachment
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.events import Changed, Finished, Started
from specchat.engine.protocol.options import Beginning, Sampling, Speculation
from tests.fake import stats, steps


def answer(
    chat: Conversation, turn: Turn, text: str, *, prefill: str = "", ended: bool = True, candidates: int = 1
) -> Reply:
    """A recorded reply to `turn` whose strategy changes half-way; drafts are trees with several `candidates`."""
    reply = Reply(1, "demo", Sampling(seed=7, temperature=0.5), Speculation.of("draft"), start=Beginning(prefill))
    chat.answer(turn, reply)
    made = steps(text, candidates=candidates)
    reply.started(Started(1, 12, 3, 7, Speculation.of("draft"), prefill))
    for number, step in enumerate(made):
        if number == len(made) // 2:
            reply.changed(Changed(1, Speculation.of("plain"), 9))
        reply.step(replace(step, id=1))
    if ended:
        reply.finished(Finished(1, "stop", prefill + text, (), stats(made, 12, 100.0)))
    return reply


def a_chat() -> Conversation:
    """Two turns; the first prompt has two versions, one answered after a prefill, the second prompt two replies.

    One of these was drafted in trees.
    """
    chat = Conversation("Be brief.")
    first = chat.ask("Tell me about a fox", (Attachment("fox.txt", "red\n```\n"),))
    answer(chat, first, "A fox is a small animal of the woods.")
    second = chat.ask("And a lamp?")
    answer(chat, second, "A lamp gives light.", candidates=2)
    answer(chat, second, "Lamps are for the night.")
    edited = chat.edit(first, "Tell me about an owl")
    answer(chat, edited, "Owls fly at night.", prefill="Well:\n")
    chat.show(second)
    return chat


def save(store: Store, chat: Conversation) -> None:
    for turn in chat.every_turn():
        store.add_turn(chat, turn, {"pair": "demo"})  # `flush` waits for it
        for reply in turn.replies:
            store.save_reply(chat, reply)
    store.save_chat(chat, {"pair": "demo"})
    flush(store)


def flush(store: Store) -> None:
    """Wait for the writer."""
    assert store._writer.put(lambda _: None).wait(60)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "chats.db")
    yield opened
    opened.close()
