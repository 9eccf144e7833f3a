"""What a closed chat leaves behind is collected; while a reply runs, only what is new is looked at."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest
from conftest import answered

from specchat.service.open_chat import paused
from specchat.tui.collector import Collector


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _left_frozen() -> None:
    """Here what is frozen is collected too."""


@pytest.fixture(autouse=True)
def _frozen() -> Iterator[None]:
    """Leave the garbage of all tests before, through which each collection would go for a second, to one of them."""
    gc.freeze()
    yield
    gc.freeze()


def test_what_is_there_is_left_out_while_a_reply_runs() -> None:
    collector = Collector()
    old = weakref.ref(Node())
    collector.running()
    new = weakref.ref(Node())
    gc.collect()
    assert old() is not None
    assert new() is None
    survivors = [Node() for _ in range(1000)]
    gc.collect()
    collector.running()
    before = gc.get_freeze_count()
    assert before > 1000
    survivors += [Node() for _ in range(1000)]
    collector.running()
    assert gc.get_freeze_count() < before + 1000
    assert survivors


def test_a_chat_that_was_left_is_collected_once_nobody_types() -> None:
    collector = Collector()
    collector.idle("one", "")
    left = weakref.ref(Node())
    collector.running()
    collector.idle("two", "")
    collector.idle("two", "a")
    assert left() is not None
    collector.idle("two", "a")
    assert left() is None


def test_a_pause_ends_with_an_error_too() -> None:
    with suppress(KeyError), paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


async def test_an_empty_chat_is_told_without_a_key() -> None:
    async with answered("Hello.", (100, 30)) as (app, pilot):
        seen: list[str] = []
        app.chat.feed._collector.idle = lambda chat, _: seen.append(chat)  # type: ignore[method-assign]
        app.chat.feed._check()
        key = app.session.conversation.key
        await pilot.press("alt+n")
        app.chat.feed._check()
        assert seen[0] == key
        assert seen[-1] == ""
