"""Reasoning in saved chats: it comes back as such, is sent back apart, and is marked in exports."""

import json

import pytest

from specchat.chat.json_format import as_json, from_json
from specchat.chat.markdown import as_markdown, from_markdown
from specchat.chat.reasoning import marked
from specchat.chat.rows import ChatRow, MessageRow, conversation, message_rows, reply_row
from specchat.chat.saving import Saving
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import clean
from specchat.engine.protocol.events import Finished, Piece, Started, Step
from specchat.engine.protocol.options import Beginning, Message, Sampling, Speculation, Written
from specchat.engine.protocol.stats import Stats

from .conftest import save

ROW = ChatRow("k")
ASKED = MessageRow("a", None, "user", "Hi", 1.0, "sent")


def opened(text: str, meta: str) -> Reply:
    """A saved reply to a prompt."""
    answer = MessageRow("b", "a", "assistant", text, 2.0, "finished", meta)
    reply = conversation(ROW, [ASKED, answer], lambda *_: None, lambda _: None).turns[0].reply
    assert reply is not None
    return reply


def said(*pieces: Piece) -> Step:
    return Step(1, pieces, 2, 1, 0, len(pieces), 1, 8, 1, 10, "draft")


def thoughtful(chat: Conversation, *, thinking: bool = False, reason: str = "stop") -> Reply:
    reply = Reply(1, "demo", Sampling(), Speculation())
    chat.answer(chat.ask("What do they eat?"), reply)
    reply.started(Started(1, 3, 0, 0, Speculation()))
    reply.step(said(Piece("Pon\x1bder ", "draft", True), Piece("on", "target", True)))
    if not thinking:
        reply.step(said(Piece("\n\nMi", "draft"), Piece("ce.", "bonus")))
    written = reply.written
    spans = written.reasoning
    finished = Finished(1, reason, written.text, (5, 6, 7), Stats(), spans, thinking)  # type: ignore[arg-type]
    reply.finished(finished)
    return reply


@pytest.mark.parametrize("thinking", [False, True])
def test_it_comes_back_as_reasoning(store: Store, thinking: bool) -> None:
    chat = Conversation()
    reply = thoughtful(chat, thinking=thinking, reason="length")
    save(store, chat)
    again = store.load(chat.key)[0].turns[0].reply
    assert again is not None
    assert (again.text, again.reasoning, again.thinking) == (reply.text, reply.reasoning, thinking)
    assert again.reasoning == [(0, len(clean("Pon\x1bder on")))]
    assert again.written == reply.written
    assert again.written.token_ids == (5, 6, 7)
    assert [again.text[at:] for at in again.offsets] == [reply.text[at:] for at in reply.offsets]


def test_the_next_prompt_has_it_apart() -> None:
    chat = Conversation()
    thoughtful(chat)
    assert chat.messages(prompt="And cats?") == (
        Message("user", "What do they eat?"),
        Message("assistant", "Mice.", "Pon\x1bder on"),
        Message("user", "And cats?"),
    )


def test_a_reply_that_ended_by_itself_keeps_no_tokens() -> None:
    assert thoughtful(Conversation()).written.token_ids == ()


def test_what_goes_on_keeps_all_tokens_of_the_reply() -> None:
    chat = Conversation()
    first = thoughtful(chat, thinking=True, reason="length")
    rest = Reply(2, "demo", Sampling(), Speculation(), start=Beginning(begun=first.written))
    chat.answer(chat.turns[0], rest)
    rest.started(Started(2, 6, 0, 0, Speculation()))
    assert (rest.text, rest.thinking) == (first.text, True)
    rest.step(said(Piece(" it", "draft", True), Piece("Mice", "draft")))
    whole = Written.of([("Pon\x1bder on it", True), ("Mice", False)], thinking=False)
    rest.finished(Finished(2, "length", whole.text, (8, 9), Stats(), whole.reasoning))
    assert rest.written == Written(whole.text, whole.reasoning, False, (5, 6, 7, 8, 9))
    assert not rest.rewritten
    again = opened(rest.raw, reply_row(rest).meta)
    assert (again.start.begun, again.written) == (first.written, rest.written)


def test_a_chat_of_an_older_specchat_opens_as_it_was() -> None:
    """Its replies have marks in their text, without ranges of reasoning."""
    old = json.dumps({"name": "demo", "prefill": "So", "token_ids": []})
    reply = opened("<think>hm</think>Yes.", old)
    assert (reply.text, reply.reasoning, reply.start.prefill) == ("<think>hm</think>Yes.", None, "So")
    assert json.loads(reply_row(reply).meta)["reasoning"] is None


def test_ranges_that_lie_outside_of_the_text_are_left_out() -> None:
    meta = json.dumps({"reasoning": [[0, 2], [1, 3], [3, 2], [5, 900], [-4, 1]], "thinking": True})
    reply = opened("hmYes.", meta)
    assert (reply.reasoning, reply.written.answer, reply.thinking) == ([(0, 2)], "Yes.", False)


def test_markdown_tells_it_between_tags_and_reads_it_again() -> None:
    chat = Conversation()
    thoughtful(chat)
    text = as_markdown(chat)
    assert "<think>\nPon\x1bder on\n</think>\n\nMice." in text
    again = from_markdown(text, "file", 1.0)
    assert again.messages[1].text == "<think>\nPon\x1bder on\n</think>\n\nMice."


def test_reasoning_after_an_answer_that_was_cut_leaves_the_answer_in_the_export() -> None:
    spans = [("hm", True), ("\n\nSo", False), ("\nwell", True)]
    reply = opened("hm\n\nSo\nwell", "{}")
    reply.restore(Written.of(spans, thinking=True))
    assert marked(reply) == "<think>\nhm\n</think>\n\nSo\n\n<think>\nwell"
    reply.restore(Written.of(spans[1:], thinking=True))
    assert marked(reply) == "So\n\n<think>\nwell"


def test_a_mark_alone_after_an_answer_begins_no_reasoning() -> None:
    assert not Written.of([("hm", True), ("So", False)], thinking=True).thinking


def test_a_title_is_made_of_the_answer(store: Store) -> None:
    chat = Conversation()
    reply = Reply(1, "demo", Sampling(), Speculation())
    chat.answer(chat.ask("?"), reply)
    reply.started(Started(1, 3, 0, 0, Speculation()))
    reply.step(said(Piece("They want a joke", "draft", True), Piece("Mice eat cheese", "bonus")))
    Saving(store, lambda _: {}).ended(chat, reply)
    assert chat.title == "Mice eat cheese"


def test_a_json_export_keeps_it(store: Store) -> None:
    chat = Conversation()
    reply = thoughtful(chat)
    save(store, chat)
    text = "".join(as_json([store.whole(chat.key)]))
    (whole,) = from_json(json.loads(text), "file")
    again = conversation(whole.row, whole.messages, lambda *_: None, lambda _: None).turns[0].reply
    assert again is not None
    assert again.written == reply.written
    assert len(message_rows(chat)) == len(whole.messages)
