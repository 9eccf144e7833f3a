"""What another program saves in a chat is taken over."""

from pathlib import Path

from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.stats import Stats


def answered(chat: Conversation, turn: Turn, text: str, *, ended: bool = True) -> Reply:
    reply = Reply(1, "Pair", Sampling(), Speculation(), "writing")
    chat.answer(turn, reply)
    if ended:
        reply.finished(Finished(1, "stop", text, (), Stats()))
    return reply


def test_what_another_program_saves_in_a_chat_is_taken_over(tmp_path: Path) -> None:
    """Also into a branch that is not shown, and while a reply is written here."""
    here, there = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    chat = Conversation("be brief")
    first = chat.ask("hello")
    here.add_turn(chat, first, {})
    said = answered(chat, first, "Hi.")
    here.save_reply(chat, said)
    here.holds(chat.key)
    here.changed()
    assert not here.changed()
    other, _ = there.load(chat.key)
    turn = other.ask("and you?")
    there.add_turn(other, turn, {})
    writing = answered(other, turn, "More.", ended=False)
    there.save_reply(other, writing)
    regenerated = other.first[0]
    second = answered(other, regenerated, "Hello.")
    there.save_reply(other, second)
    there.rename(chat.key, "named there")
    there.holds(chat.key)
    mine = chat.ask("mine")
    assert here.changed()
    assert here.merge(chat)
    assert [turn.prompt for turn in chat.turns] == ["hello", "mine"]
    assert chat.last is mine
    assert chat.name == "named there"
    assert first.reply is said
    assert [reply.raw for reply in first.replies] == ["Hi.", "Hello."]
    assert [turn.prompt for turn in said.turns] == ["mine", "and you?"]
    assert not len(said.turns[1].replies), "one that is being written is taken over at its end"
    assert not here.merge(chat)
    writing.finished(Finished(writing.id, "stop", "More.", (), Stats()))
    there.save_reply(other, writing)
    there.holds(chat.key)
    assert here.merge(chat)
    assert len(said.turns[1].replies) == 1
    chat.show(said.turns[1])
    here.close()
    there.close()


def test_what_follows_the_shown_end_is_shown(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    chat = Conversation()
    turn = chat.ask("hello")
    here.add_turn(chat, turn, {})
    said = answered(chat, turn, "Hi.")
    here.save_reply(chat, said)
    here.holds(chat.key)
    other, _ = there.load(chat.key)
    there.add_turn(other, other.ask("more"), {})
    there.holds(chat.key)
    assert here.merge(chat)
    assert [turn.prompt for turn in chat.turns] == ["hello", "more"]
    here.close()
    there.close()
