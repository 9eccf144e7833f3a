"""Reasoning within marks is told from the answer, however a server cuts the text."""

import json

import pytest

from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Written
from specchat.remote.thoughts import ThoughtSplitter
from tests.remote.conftest import Chatting
from tests.remote.server import CHAT, delta, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
TEXTS = {
    "<think>\nSo 2.\n</think>\n\nTwo.": ("So 2.\n", "Two.", False),
    "\n<think>So.</think>Two.": ("So.", "Two.", False),
    "[THINK]So.[/THINK]Two. </think> is a mark.": ("So.", "Two. </think> is a mark.", False),
    "<think>No end, < nor an answer </thin": ("No end, < nor an answer </thin", "", False),
    "<thinkers>I am <b>bold</b>.": ("", "<thinkers>I am <b>bold</b>.", False),
    "So it is 2.\n</think>\n\nTwo.": ("So it is 2.\n", "Two.", True),
    "So it is 2. </think>Two.": ("So it is 2. ", "Two.", True),
    "</think>\n\nTwo.": ("", "Two.", True),
    "The mark </think> ends it.": ("", "The mark </think> ends it.", False),
    "a < b </thi": ("", "a < b </thi", False),
    "  Plain.": ("", "  Plain.", False),
    "<thi": ("", "<thi", False),
    "": ("", "", False),
}


def split(text: str, size: int, thinks: bool = False) -> tuple[str, str, bool]:
    """Reasoning and answer of a text that comes in pieces of `size` characters."""
    splitter, thought, answer, turned = ThoughtSplitter(thinks), "", "", False
    parts = [splitter.split(text[at : at + size]) for at in range(0, len(text), size)]
    for part in [*parts, splitter.finish()]:
        if part.turned:
            thought, answer, turned = thought + answer, "", True
        thought, answer = thought + part.thought, answer + part.answer
    return thought, answer, turned


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("text", TEXTS)
def test_marks_part_reasoning_and_answer(text: str, size: int) -> None:
    thought, answer, turned = split(text, size)
    expected = TEXTS[text]
    # A mark that comes in one piece with all text before it never showed that text as an answer.
    assert (thought, answer) == expected[:2]
    assert turned == expected[2]


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_prompt_may_end_inside_reasoning(size: int) -> None:
    assert split("So 2.</think>\n\nTwo.", size, thinks=True) == ("So 2.", "Two.", False)


def chunks(text: str, size: int) -> str:
    return "".join([*(delta(text[at : at + size]) for at in range(0, len(text), size)), delta("", "stop")])


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("text", ["<think>So.</think>\nTwo.", "So.\n</think>\nTwo."])
def test_a_server_that_does_not_split_its_text(text: str, size: int, chatting: Chatting) -> None:
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(chunks(text, size))}) as one:
        chatting.load(one.url)
        events = chatting.ask()
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.written.thoughts.strip(), last.written.answer) == ("So.", "Two.")
    shown: list[tuple[str, bool]] = []
    for event in events:
        if isinstance(event, Step):
            shown = [(words, True) for words, _ in shown] if event.turned else shown
            shown += [(piece.text, piece.reasoning) for piece in event.pieces]
    assert Written.of(shown).answer == "Two."
    assert sum(event.turned for event in events if isinstance(event, Step)) == (not text.startswith("<"))


def test_text_that_was_held_back_stays_when_a_server_breaks_off(chatting: Chatting) -> None:
    broken = delta("Half.") + delta("</th")
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(broken)}) as one:
        chatting.load(one.url)
        events = chatting.ask()
    assert "".join(p.text for e in events if isinstance(e, Step) for p in e.pieces) == "Half.</th"


def test_a_server_that_splits_its_text_is_believed(chatting: Chatting) -> None:
    thought = f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'reasoning': 'So.'}}]})}\n\n"
    stream = thought + delta("<think> is a mark.") + delta("", "stop")
    with serving(v1__models={"data": [{"id": "m"}]}, **{CHAT_KEY: lambda call: call.send(stream)}) as one:
        chatting.load(one.url)
        last = chatting.ask()[-1]
    assert isinstance(last, Finished)
    assert (last.written.thoughts, last.written.answer) == ("So.", "<think> is a mark.")
