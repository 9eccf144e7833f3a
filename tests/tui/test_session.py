"""The app's session over the scripted engine, without any screen."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CATALOG, LAUNCH

from specchat.chat.store import Store
from specchat.engine.protocol.events import Finished, FinishReason, Started
from specchat.engine.protocol.options import ContextPolicy, Limits, Speculation
from specchat.engine.protocol.pair_info import DraftFacts, PairServer, ReadTexts, StrategyStatus
from specchat.engine.protocol.stats import Stats
from specchat.service.dispatch import Update
from specchat.tui.actions.table import ACTIONS
from specchat.tui.keys import Keys
from specchat.tui.launch import Launch
from specchat.tui.screens.about import about
from specchat.tui.session import AppSession
from specchat.tui.status import header_sides, status_sides
from tests.fake import INFO, FakeEngine
from tests.parts import changed
from tests.service.made import paced


def start(engine: FakeEngine, launch: Launch | None = None) -> AppSession:
    session = AppSession(engine, launch or LAUNCH)
    engine.start()
    session.load(CATALOG.pairs[0])
    return session


def ready(engine: FakeEngine, launch: Launch | None = None) -> AppSession:
    session = start(engine, launch)
    session.poll()
    return session


def test_what_a_pair_does_not_get_is_said_when_it_is_loaded() -> None:
    session = start(FakeEngine(info=changed(INFO, warning="It drafts\x1b[2J otherwise.")))
    assert session.poll()[-1] == Update("loaded", "It drafts␛[2J otherwise.")
    assert ("note", "It drafts otherwise.") in about(changed(INFO, warning="It drafts otherwise."))
    assert ("draft", "1.0 M parameters, proposes 512 of 3,072 tokens") in about(
        replace(INFO, draft=DraftFacts(1_000_000, tokens=512))
    )


def test_the_memory_of_each_gpu_is_said() -> None:
    load = replace(INFO.load, memory=2000 << 20, second_memory=300 << 20)
    assert ("memory", "2,000 MiB, and 300 MiB on the second GPU") in about(replace(INFO, load=load))


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (ReadTexts(), ["keep_read is 0"]),
        (ReadTexts(2 << 30), ["up to 2.0 GiB of main memory", "none are on disk"]),
        (ReadTexts(2 << 30, 4 << 30, "/there"), ["up to 4.0 GiB in /there, with the words of chats", "engine forget"]),
    ],
)
def test_where_read_texts_are_is_said(read: ReadTexts, words: list[str]) -> None:
    told = dict(about(replace(INFO, load=replace(INFO.load, read=read))))["read texts"]
    assert all(word in told for word in words)


@pytest.mark.parametrize(
    ("reason", "policy", "way_out"),
    [
        ("length", "refuse", "/continue goes on"),
        ("context", "refuse", "/new starts a new chat"),
        ("context", "drop-oldest", "the next one leaves out earlier turns"),
        ("stop", "refuse", ""),
    ],
)
def test_a_reply_that_is_cut_says_what_can_be_done(reason: FinishReason, policy: ContextPolicy, way_out: str) -> None:
    events = (Started(0, 1, 0, 0, Speculation()), Finished(0, reason, "Hello", (), Stats(num_steps=1)))
    session = ready(FakeEngine((events,)))
    session.change(replace(session.settings, limits=Limits(context=policy)))
    session.send("hi")
    (told,) = [session.words(update) for update in session.poll() if update.kind == "ended"]
    assert told.endswith(way_out)
    assert bool(told) == bool(way_out)


def test_what_a_server_cannot_continue_is_not_offered_for_that() -> None:
    events = (Started(0, 1, 0, 0, Speculation()), Finished(0, "length", "Hello", (), Stats(num_steps=1)))
    session = ready(FakeEngine((events,), info=changed(INFO, server=PairServer("Box", False))))
    session.send("hi")
    ended = next(update for update in session.poll() if update.kind == "ended")
    assert session.words(ended) == "the reply reached the token limit"
    assert session.go_on() == "the server cannot go on with a reply: /again asks for another one"


def test_a_reopened_chat_is_answered_by_its_own_pair_or_one_that_is_chosen() -> None:
    session = ready(FakeEngine())
    session.send("hi")
    session.poll()
    session.chat_pair = "box"
    refused = "box answers in this chat, and is not loaded; your text is kept"
    assert [session.send("more") for _ in range(3)] == [refused] * 3
    session.load(CATALOG.pairs[1])
    assert session.send("more") == ""
    session.poll()
    session.chat_pair = "box"
    session.chats.new()
    assert session.send("more") == ""


def test_a_chat_still_waits_for_its_pair_when_that_could_not_be_loaded(tmp_path: Path) -> None:
    engine, store = FakeEngine(), Store(tmp_path / "chats.db")
    session = ready(engine, replace(LAUNCH, store=store))
    session.chat_pair, own = "big", replace(session.settings, strategy="lookup")
    session.settings = own
    engine.fail_load("model", "There is no folder /models/big.")
    session.load(CATALOG.pairs[1], own)
    assert session.send("more") == ""
    session.poll()
    assert (session.loaded.id, session.wanted, session.settings) == ("demo", "big", own)
    assert session.send("more") == "big answers in this chat, and is not loaded; your text is kept"
    store.close()
    saved = Store(store.path).row(session.conversation.key)
    assert saved is not None
    assert saved.view["pair"] == "big"


def test_a_race_wants_the_engine_for_itself(tmp_path: Path) -> None:
    engine, clock = paced()
    session = ready(engine, replace(LAUNCH, store=Store(tmp_path / "chats.db")))
    session.send("count")
    clock.now = 0.5
    session.poll()
    first = session.conversation.key
    clock.now = 99
    session.poll()
    session.chats.new()
    session.send("then this")
    assert session.chats.open(first) == ""
    assert "another chat is being answered" in session.racing.start()
    assert session.racing.race is None
    clock.now = 200
    session.poll()
    assert session.racing.start() == ""


def test_a_chat_that_is_only_read_keeps_its_pair_and_strategy(tmp_path: Path) -> None:
    session = ready(FakeEngine(), replace(LAUNCH, store=Store(tmp_path / "chats.db")))
    session.choose_strategy("swift")
    session.send("hi")
    session.poll()
    key = session.conversation.key
    session.chats.new()
    session.send("another")
    session.poll()
    other = session.conversation.key
    session.chats.new()
    session.engine = session.loaded._engine = FakeEngine(
        info=replace(INFO, strategies=(StrategyStatus("plain", True), StrategyStatus("swift", False, "no layers")))
    )
    session.engine.start()
    session.load(CATALOG.pairs[1])
    session.poll()
    for _ in range(2):
        assert session.chats.open(key) == ""
        assert (session.wanted, session.settings.strategy) == ("demo", "swift")
        assert "write something" in session.racing.start()
        assert "not there" in session.chats.open("gone")
        assert session.wanted == "demo"
        assert session.chats.open(other) == ""


def test_the_header_names_a_seed_only_where_one_is_set() -> None:
    session = ready(FakeEngine())
    session.send("hi")
    session.poll()
    assert header_sides(session)[1].plain.endswith("temperature 0.7")
    session.change(replace(session.settings, seed=7))
    assert header_sides(session)[1].plain.endswith("temperature 0.7 · seed 7")


def test_the_header_names_no_pair_before_one_is_asked_for() -> None:
    session = AppSession(FakeEngine(), LAUNCH)
    assert [side.plain for side in header_sides(session)][1:] == [""]
    session.load(CATALOG.pairs[0])
    assert session.loaded.name in header_sides(session)[1].plain


def test_the_count_of_another_text_is_not_told_of_a_large_paste() -> None:
    session = ready(FakeEngine())
    for text, before, said in (("word", None, "1 / "), ("word " * 999 + "word", "counting tokens", "1,000 / ")):
        session.count(text)
        if before is not None:
            assert status_sides(session, Keys(ACTIONS), text, "", "", "", False)[1].plain == f"{before} · enter sends"
        session.poll()
        assert said in status_sides(session, Keys(ACTIONS), text, "", "", "", False)[1].plain
