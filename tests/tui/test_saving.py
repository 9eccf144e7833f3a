"""Chats are saved while they are written, and come back as they were."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CATALOG, LAUNCH, flush

from specchat.chat.rows import INTERRUPTED
from specchat.chat.saving import FLUSH_S
from specchat.chat.store import Store
from specchat.chat.titles import LONGEST, make_title
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.requests import Generate
from specchat.tui.session import AppSession
from tests.fake import FakeEngine
from tests.service.made import Clock, paced


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "chats.db")
    yield opened
    opened.close()


def ready(engine: FakeEngine, store: Store) -> AppSession:
    session = AppSession(engine, replace(LAUNCH, store=store))
    session.load(CATALOG.pairs[0])
    session.poll()
    return session


def ask(session: AppSession, text: str) -> None:
    assert session.send(text) == ""
    session.poll()
    assert session.reply is None


def generated(engine: FakeEngine) -> Generate:
    return [request for request in engine.requests if isinstance(request, Generate)][-1]


def test_a_prompt_is_safe_before_the_engine_is_asked(store: Store) -> None:
    engine, _ = paced()
    session = ready(engine, store)
    other = Store(store.path)
    session.send("hello")
    (entry,) = other.chats()
    assert [turn.prompt for turn in other.load(entry.key)[0].turns] == ["hello"]
    assert session.warning == ""
    other.close()


def test_what_is_written_is_saved_twice_a_second(store: Store) -> None:
    engine, clock = paced()
    session = ready(engine, store)
    ticks = Clock()
    session.chat.saving._clock = ticks
    session.send("hello")
    clock.now = 0.5
    session.poll()
    flush(store)
    key = session.conversation.key
    saved = store.load(key)[0].turns[0].reply
    assert saved is not None
    assert saved.text == ""
    ticks.now += FLUSH_S
    session.poll()
    flush(store)
    saved = store.load(key)[0].turns[0].reply
    assert saved is not None
    assert saved.text == session.reply.text != "" if session.reply else False
    assert saved.end.error == INTERRUPTED


def test_replies_that_wait_do_not_put_off_the_save_of_the_one_written(store: Store) -> None:
    engine, clock = paced()
    session = ready(engine, store)
    ticks = Clock()
    session.chat.saving._clock = ticks
    session.send("hello")
    session.poll()
    key, reply = session.conversation.key, session.reply
    clock.now = 0.5
    for _ in range(4):
        ticks.now += FLUSH_S / 2
        session.chats.new()
        session.send("of another chat")
        session.poll()
    flush(store)
    saved = store.load(key)[0].turns[0].reply
    assert saved is not None
    assert reply is not None
    assert saved.text == reply.text != ""


def test_a_stopped_reply_stays_as_stopped(store: Store) -> None:
    engine, clock = paced()
    session = ready(engine, store)
    session.send("hello")
    clock.now = 0.5
    session.poll()
    session.stop()
    session.poll()
    flush(store)
    saved = store.load(session.conversation.key)[0].turns[0].reply
    assert saved is not None
    assert (saved.outcome, saved.text) == ("stopped", session.conversation.turns[0].reply.text)  # type: ignore[union-attr]
    assert saved.steps


def test_a_chat_reopens_with_pair_strategy_sampling_and_branches(store: Store) -> None:
    engine = FakeEngine(("Hello there.", "Hello again.", "More."))
    session = ready(engine, store)
    ask(session, "Tell me a joke about foxes, please")
    session.regenerate()
    session.poll()
    session.choose_strategy("lookup")
    session.change(replace(session.settings, sampling=replace(session.settings.sampling, temperature=0.3)))
    ask(session, "more")
    key, title = session.conversation.key, session.conversation.title
    session.chats.new()
    session.choose_strategy("plain")
    flush(store)

    fresh = AppSession(FakeEngine(("And more.",)), replace(LAUNCH, store=store))
    fresh.load(CATALOG.pairs[1])
    fresh.poll()
    assert fresh.chats.open(key) == ""
    assert fresh.conversation.title == title == "A joke about foxes"
    assert fresh.settings.strategy == "lookup"
    assert fresh.settings.sampling.temperature == 0.3
    assert fresh.wanted == "demo"
    assert [turn.reply.text for turn in fresh.conversation.turns if turn.reply] == ["Hello again.", "More."]
    first = fresh.conversation.turns[0]
    assert fresh.chats.show_branch(-1, first) == ""
    assert [turn.reply.text for turn in fresh.conversation.turns if turn.reply] == ["Hello there."]
    assert fresh.chats.show_branch(-1, first) == "that is the first of 2 versions"


def test_an_edited_prompt_is_a_branch_with_its_own_history(store: Store) -> None:
    engine = FakeEngine(("One.", "Two.", "Three."))
    session = ready(engine, store)
    ask(session, "first")
    ask(session, "second")
    session.chat.editing = session.conversation.turns[1]
    ask(session, "second, better")
    assert generated(engine).messages == (
        Message("user", "first"),
        Message("assistant", "One."),
        Message("user", "second, better"),
    )
    assert [turn.prompt for turn in session.conversation.turns] == ["first", "second, better"]
    assert session.chats.show_branch(-1) == ""
    assert [turn.prompt for turn in session.conversation.turns] == ["first", "second"]
    flush(store)
    loaded = store.load(session.conversation.key)[0]
    assert [turn.prompt for turn in loaded.turns] == ["first", "second"]
    assert len(list(loaded.every_turn())) == 3


def test_the_first_version_of_a_reply_is_no_end_where_its_prompt_was_edited(store: Store) -> None:
    engine = FakeEngine(("One.", "Two.", "Three.", "Four.", "Five."))
    session = ready(engine, store)
    ask(session, "first")
    ask(session, "second")
    session.chat.editing = session.conversation.turns[0]
    ask(session, "first, better")
    session.regenerate()
    session.poll()

    def shown() -> list[str]:
        return [turn.reply.text for turn in session.conversation.turns if turn.reply]

    seen = [shown()]
    for step in (-1, -1, 1, 1):
        assert session.chats.show_branch(step) == ""
        seen.append(shown())
    assert seen == [["Four."], ["Three."], ["One.", "Two."], ["Three."], ["Four."]]
    assert session.chats.show_branch(1) == "that is the last of 2 versions"
    better = session.conversation.turns[0]
    assert session.chats.show_branch(-1, better) == ""
    assert session.chats.show_branch(-1, better) == "that is the first of 2 versions"


def test_regenerating_an_earlier_reply_leaves_what_followed_on_its_branch(store: Store) -> None:
    engine = FakeEngine(("One.", "Two.", "Uno."))
    session = ready(engine, store)
    ask(session, "first")
    ask(session, "second")
    session.regenerate(session.conversation.turns[0])
    session.poll()
    assert generated(engine).messages == (Message("user", "first"),)
    assert [turn.prompt for turn in session.conversation.turns] == ["first"]
    session.chats.show_branch(-1)
    assert [turn.prompt for turn in session.conversation.turns] == ["first", "second"]


def test_opening_another_chat_keeps_the_partial_reply_where_it_belongs(store: Store) -> None:
    engine, clock = paced()
    session = ready(engine, store)
    session.send("first chat")
    clock.now = 50
    session.poll()
    first = session.conversation.key
    session.chats.new()
    session.send("second chat")
    second = session.conversation.key
    clock.now = 50.5
    session.poll()
    assert session.chats.open(first) == ""
    assert session.reply is None
    clock.now = 99
    session.poll()
    flush(store)
    loaded = store.load(second)[0].turns[0].reply
    assert loaded is not None
    assert (loaded.outcome, loaded.text.endswith("ten")) == ("", True)
    assert len(session.conversation.turns) == 1


def test_a_reply_that_came_to_nothing_leaves_no_trace_beside_an_earlier_one(store: Store) -> None:
    engine = FakeEngine(("One.",))
    session = ready(engine, store)
    ask(session, "hi")
    session.regenerate()
    engine.die()
    session.poll()
    flush(store)
    assert len(store.load(session.conversation.key)[0].turns[0].replies) in (1, 2)
    assert len(session.conversation.turns[0].replies) == len(store.load(session.conversation.key)[0].turns[0].replies)


def test_a_chat_that_is_gone_is_refused(store: Store) -> None:
    session = ready(FakeEngine(), store)
    ask(session, "hi")
    shown = session.conversation
    assert session.chats.open("nope") == "that chat is not there any more"
    assert session.conversation is shown


@pytest.mark.parametrize(
    ("prompt", "reply", "title"),
    [
        ("Can you please tell me about the Roman aqueducts? I love them.", "", "The Roman aqueducts"),
        ("hi", "Hello! How can I help?", "Hi"),
        ("Hello! :) How are you today?", "Fine.", "Hello"),
        ("hi, what is a fox?", "", "A fox"),
        ("What is the difference between TCP and UDP?", "", "The difference between TCP and UDP"),
        ("how do I reverse a list in Python?", "", "How to reverse a list in Python"),
        ("Please write me a story about a fox", "", "A story about a fox"),
        ("Could you explain how TCP works to me, please?", "", "How TCP works"),
        ("I'm trying to sort a table", "", "Sort a table"),
        ("What is wrong with it?", "", "What is wrong with it?"),
        ("What is the lamp for, and why?", "", "What is the lamp for, and why?"),
        ("Make it shorter", "", "Make it shorter"),
        ("Is it safe?", "", "Is it safe?"),
        ("Hey foxes", "", "Foxes"),
        ("?", "Hello! How can I help?", "How to help"),
        ("What is in @src/notes.txt?", "", "What is in notes.txt?"),
        ('Compare @"my file.txt" with @b.txt', "", "Compare my file.txt with b.txt"),
        ("```python\nprint(1)\n```\nWhat does this print?", "", "What does this print?"),
        ("Explain **monads** to me like I am five years old and have never seen any code in my life", "", None),
        ("\x1b[31mred\x1b[0m fox", "", "␛31mred␛0m fox"),
        ("", "", ""),
        ("漢字について教えて", "", "漢字について教えて"),
    ],
)
def test_titles(prompt: str, reply: str, title: str | None) -> None:
    made = make_title(prompt, reply)
    assert len(made) <= LONGEST + 1
    assert made == title if title is not None else made.endswith("…") and made.startswith("Monads like I am")


def test_a_chat_that_begins_with_a_greeting_is_named_by_what_is_asked_first(store: Store) -> None:
    session = ready(FakeEngine(), store)
    titles = []
    for prompt in ("Hello!", "hi there", "Tell me about foxes", "And owls?"):
        ask(session, prompt)
        titles.append(session.conversation.title)
        flush(store)
        session.chats.open(session.conversation.key)
    assert titles == ["Hello", "Hello", "Foxes", "Foxes"]
    assert store.load(session.conversation.key)[0].title == "Foxes"


def test_a_title_that_was_given_or_imported_stays_after_a_greeting(store: Store) -> None:
    session = ready(FakeEngine(), store)
    ask(session, "hi")
    session.conversation.made_title = "A trip"
    ask(session, "Tell me about foxes")
    assert session.conversation.title == "A trip"
