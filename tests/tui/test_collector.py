"""What a closed chat leaves behind is collected; while a reply runs, only what is new is looked at."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from specchat.service.open_chat import paused
from specchat.tui.collector import Collector

ROOT = Path(__file__).parents[2]


class Node:
    def __init__(self) -> None:
        self.itself = self


def what_is_there_is_left_out_while_a_reply_runs() -> None:
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


def a_chat_that_was_left_is_collected_once_nobody_types() -> None:
    collector = Collector()
    collector.idle("one", "")
    left = weakref.ref(Node())
    collector.running()
    collector.idle("two", "")
    collector.idle("two", "a")
    assert left() is not None
    collector.idle("two", "a")
    assert left() is None


@pytest.mark.parametrize(
    "check", [what_is_there_is_left_out_while_a_reply_runs, a_chat_that_was_left_is_collected_once_nobody_types]
)
def test_collections(check: Callable[[], None]) -> None:
    """In a process of its own: here each would go through what all tests before have left."""
    name = check.__name__
    subprocess.run(
        [sys.executable, "-c", f"from tests.tui.test_collector import {name}; {name}()"], cwd=ROOT, check=True
    )


def test_a_pause_ends_with_an_error_too() -> None:
    with suppress(KeyError), paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


async def test_an_empty_chat_is_told_without_a_key() -> None:
    from conftest import answered  # the processes above need no app

    async with answered("Hello.", (100, 30)) as (app, pilot):
        seen: list[str] = []
        app.chat.feed._collector.idle = lambda chat, _: seen.append(chat)  # type: ignore[method-assign]
        app.chat.feed._check()
        key = app.session.conversation.key
        await pilot.press("alt+n")
        app.chat.feed._check()
        assert seen[0] == key
        assert seen[-1] == ""
