"""Threads that make passes together: awake between them, asleep after, and there whenever they are ordered."""

import random
import threading
from time import monotonic, sleep

import pytest
import torch

from specchat.config.paths import demo_model

pytest.importorskip("numba")

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.cpu.products.shared import LINE
from specchat.engine.cpu.threads.crew import AWAKE, Crew
from specchat.engine.cpu.threads.dispatch import ASLEEP, announce, board, follow, withdraw
from specchat.engine.weights.checkpoint import Checkpoint

SIZE = 3


def asleep(crew: Crew) -> list[bool]:
    """Of each thread but the caller."""
    return [bool(crew._board[ASLEEP + LINE * number]) for number in range(1, SIZE)]


@pytest.mark.parametrize("threads", [2, SIZE])
def test_whoever_sleeps_or_falls_asleep_is_there_for_the_next_pass(threads: int) -> None:
    opened = Checkpoint.open(demo_model("draft"))
    alone, several = CpuDecoder(opened, 64, threads=1), CpuDecoder(opened, 64, threads=SIZE)
    assert torch.equal(several.forward([1, 2, 3], 0), alone.forward([1, 2, 3], 0))
    drawn = random.Random(threads)
    for _ in range(150):
        # Around the moment at which they fall asleep, and other numbers of them in between.
        sleep(drawn.choice((0, 0, AWAKE * drawn.uniform(0.7, 1.3))))
        several.use_threads(drawn.choice((1, 2, threads)))
        tokens = [drawn.randrange(3000) for _ in range(drawn.choice((1, 5)))]
        assert torch.equal(several.forward(tokens, 3), alone.forward(tokens, 3))
        assert torch.equal(several.logits_after(tokens, 3), alone.logits_after(tokens, 3))


def test_they_look_for_the_next_pass_and_sleep_where_none_comes() -> None:
    decoder = CpuDecoder(Checkpoint.open(demo_model("draft")), 64, threads=SIZE)
    decoder.use_threads(SIZE)
    decoder.forward([5], 0)
    ends = monotonic() + 60
    while not all(asleep(decoder._crew)) and monotonic() < ends:
        sleep(AWAKE)
    assert all(asleep(decoder._crew))
    decoder.use_threads(2)
    decoder.forward([5], 0)
    assert asleep(decoder._crew)[1], "who is not needed sleeps on"


def test_nobody_falls_asleep_between_an_announcement_and_its_order() -> None:
    """The one that leads has seen who sleeps by then, and wakes nobody later."""
    shared = board(2)
    announce(shared)
    thread = threading.Thread(target=follow, args=(shared, 1, 0, 10))
    thread.start()
    thread.join(20 * AWAKE)
    assert thread.is_alive()
    withdraw(shared)
    thread.join(60)
    assert not thread.is_alive()


def test_they_end_with_their_crew() -> None:
    """At once: one that wakes while Python ends may take the process with it."""
    before = set(threading.enumerate())
    crew = Crew(SIZE)
    assert len(set(threading.enumerate()) - before) == SIZE - 1
    del crew
    assert set(threading.enumerate()) <= before


def test_they_end_where_an_order_was_interrupted() -> None:
    before = set(threading.enumerate())
    crew = Crew(SIZE)
    announce(crew._board)
    crew._calls[0].put(True)
    del crew
    assert set(threading.enumerate()) <= before
