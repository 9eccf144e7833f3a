"""What the app tells the engine of saved chats: when a pair is loaded, when chats go and come back, and by choice."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, flush, loaded, make_app

from specchat.chat.store import Store
from specchat.engine.protocol.requests import Forget, Generate, Remember
from specchat.service import saved_replies
from specchat.tui.screens.settings import SettingsScreen
from specchat.tui.session import AppSession
from specchat.tui.widgets.choice import Choice
from tests.fake import FakeEngine
from tests.parts import changed
from tests.tui.test_session import ready


def told(engine: FakeEngine) -> list[object]:
    return [request for request in engine.requests if isinstance(request, Remember | Forget)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two chats of a run before."""
    store = Store(tmp_path / "chats.db")
    engine = FakeEngine(("The fox.", "The lamp."))
    session = ready(engine, replace(LAUNCH, store=store))
    for prompt in ("one", "two"):
        session.send(prompt)
        session.poll()
        session.chats.new()
    flush(store)
    return store


def keys(store: Store) -> list[str]:
    return [entry.key for entry in store.chats()]


def session_of(store: Store, **launch: object) -> tuple[AppSession, FakeEngine]:
    engine = FakeEngine()
    return ready(engine, changed(LAUNCH, store=store, **launch)), engine


def test_saved_replies_are_told_once_a_pair_is_loaded(store: Store) -> None:
    session, engine = session_of(store)
    second, first = keys(store)
    assert told(engine) == [Remember(second, ("The lamp.",)), Remember(first, ("The fox.",))]
    session.send("hello")
    assert next(r for r in engine.requests if isinstance(r, Generate)).chat == session.conversation.key


def test_no_more_is_told_than_the_engine_keeps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_replies, "CHARACTERS", 10)
    _, engine = session_of(store)
    assert told(engine) == [Remember(keys(store)[0], ("The lamp.",))]


def test_a_deleted_chat_is_forgotten_and_one_brought_back_is_told_again(store: Store) -> None:
    session, engine = session_of(store)
    second, _ = keys(store)
    engine.requests.clear()
    assert session.chats.delete(second).wait(60)
    assert told(engine) == [Forget(second)]
    done = session.chats.undelete()
    assert done is not None
    assert done.wait(60)
    assert told(engine) == [Forget(second), Remember(second, ("The lamp.",))]
    assert session.chats.undelete() is None


def test_a_chat_that_was_deleted_before_the_start_is_brought_back(store: Store) -> None:
    second, first = keys(store)
    before, _ = session_of(store)
    for key in (first, second):
        assert before.chats.delete(key).wait(60)
    session, _ = session_of(store)
    for back in ([second], [second, first]):
        done = session.chats.undelete()
        assert done is not None
        assert done.wait(60)
        assert keys(store) == back
    assert session.chats.undelete() is None


def test_nothing_is_told_where_that_is_not_wanted(store: Store) -> None:
    session, engine = session_of(store, copies_saved=False)
    second, _ = keys(store)
    assert session.chats.delete(second).wait(60)
    assert session.chats.undelete() is not None
    assert told(engine) == [Forget(second)]


async def test_the_panel_switches_it_and_keeps_the_choice(store: Store) -> None:
    saved: list[tuple[str, object]] = []
    engine = FakeEngine()
    launch = changed(LAUNCH, store=store, remember=lambda key, value: saved.append((key, value)))
    app = make_app(engine, launch)
    async with app.run_test(size=(100, 60)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+o")
        assert isinstance(app.screen, SettingsScreen)
        choice = app.screen.query_one("#saved", Choice)
        assert choice.value == "yes"
        engine.requests.clear()
        choice.focus()
        await pilot.press("right")
        await pilot.pause()
        assert told(engine) == [Forget(None)]
        await pilot.press("left")
        await pilot.pause()
        assert len(told(engine)) == 3
        assert saved == [("copy_saved_chats", False), ("copy_saved_chats", True)]


def test_a_database_that_cannot_be_read_is_told_of_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[object]:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(Store, "replies", broken)
    monkeypatch.setattr(Store, "replies_of", broken)
    session, engine = session_of(store)
    assert told(engine) == []
    fresh = AppSession(engine, replace(LAUNCH, store=store))
    assert "chats.db" in fresh.saved.loaded()
    assert fresh.saved.loaded() == ""
    fresh.saved.restored("gone")
    session.send("hello")
    assert any(isinstance(request, Generate) for request in engine.requests)
