"""Saved chats: what goes along when one is opened, and what renaming, copying and deleting one leaves to others."""

from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest

from specchat.chat.store import Store
from specchat.engine.protocol.pair_info import StrategyStatus
from specchat.engine.protocol.requests import Forget, Remember
from specchat.service.chat_service import ChatService
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG, flush, paced, ready, service_of
from tests.service.test_tools import ASKS, asks, using
from tests.service.tool_servers import ScriptedServers


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "chats.db")


def kept(store: Store, pair: int = 0, prompt: str = "hi") -> str:
    """The key of a saved chat with that pair, which drafts."""
    service = service_of(FakeEngine(), store=store)
    service.load(CATALOG.pairs[pair])
    service.poll()
    service.send(prompt)
    service.poll()
    flush(store)
    return service.conversation.key


def title(store: Store, key: str) -> str:
    row = store.row(key)
    assert row is not None
    return row.title


def test_what_was_meant_for_the_chat_before_does_not_go_along(store: Store) -> None:
    key, service = kept(store), ready(FakeEngine(), store=store)
    service.prefill = "Well,"
    assert service.count("more")
    service.poll()
    assert service.prompt_count.counted is not None
    assert service.chats.open(key) == ""
    assert (service.prefill, service.prompt_count.counted) == ("", None)


def test_a_chat_is_settled_for_the_loaded_pair_unless_it_waits_for_its_own(store: Store) -> None:
    of_loaded, of_other = kept(store, 0), kept(store, 1)
    statuses = StrategyStatus("plain", True), StrategyStatus("draft", False, "the tokenizers differ")
    service = ready(FakeEngine(info=replace(INFO, strategies=statuses)), store=store)
    found = []
    for key in (of_loaded, of_other):
        assert service.chats.open(key) == ""
        found.append((service.wanted, service.settings.strategy))
    assert found == [("", "plain"), ("big", "draft")]


def test_a_new_name_is_that_of_its_chat_alone(store: Store) -> None:
    key, service = kept(store), ready(FakeEngine(), store=store)
    service.send("open")
    service.poll()
    shown = service.conversation
    assert service.chats.rename(key, "Other").wait(60)
    assert (shown.name, title(store, key)) == ("", "Other")
    assert service.chats.rename(shown.key, "This").wait(60)
    assert (shown.name, title(store, shown.key)) == ("This", "This")


def test_a_copy_has_the_name_that_was_just_given(store: Store) -> None:
    key, service = kept(store), ready(FakeEngine(), store=store)
    busy = Event()
    store._writer.put(lambda _: busy.wait(60))
    service.chats.rename(key, "New")
    Timer(0.1, busy.set).start()
    copy, saved = service.chats.duplicate(key)
    assert saved.wait(60)
    assert title(store, copy) == "New (copy)"


def test_deleted_chats_come_back_the_latest_first(store: Store) -> None:
    """Those that were deleted here, and then those that another program deleted."""
    elsewhere, first, second = (kept(store, prompt=prompt) for prompt in ("one", "two", "three"))
    engine = FakeEngine()
    service = ready(engine, store=store)
    service.chats.open(second)
    shown = service.conversation
    assert service.chats.delete(first).wait(60)
    assert service.conversation is shown
    assert service.chats.delete(second).wait(60)
    assert (service.conversation.turns, engine.requests[-2:]) == ([], [Forget(first), Forget(second)])
    store.delete(elsewhere).wait(60)
    for key in (second, first, elsewhere):
        assert store.row(key) is None
        back = service.chats.undelete()
        assert back is not None
        assert back.wait(60)
        assert store.row(key) is not None
        assert isinstance(remembered := engine.requests[-1], Remember)
        assert remembered.chat == key
    assert service.chats.undelete() is None


def test_another_version_is_not_shown_while_the_chat_is_at_work() -> None:
    engine, clock = paced()
    service = ready(engine)
    service.send("hi")
    assert service.chats.show_branch(1) == "a reply is running"
    clock.now = 99
    service.poll()
    assert service.chats.show_branch(1) == "there is only one version of everything here"
    calls: ChatService = using(FakeEngine((ASKS,)), ScriptedServers())
    calls.send("hi")
    assert asks(calls)
    assert calls.chats.show_branch(1) == "a tool is being called"
