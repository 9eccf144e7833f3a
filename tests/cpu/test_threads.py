"""How many threads make a pass: the policy on machines that are made up, and the decoder that follows it."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from specchat.config.paths import demo_model
from specchat.engine.cpu import decoder
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.cpu.threads.tuning import (
    CLEAR_PASSES,
    TRIAL_PASSES,
    TRIAL_SHARE,
    ByRows,
    Threads,
    choices,
    typical,
)
from specchat.engine.model.passes import PassRows
from specchat.engine.weights.checkpoint import Checkpoint

Machine = Callable[[int], float]
"""Seconds of a pass with so many threads."""


def idle(count: int) -> float:
    """Four cores: a tenth of a pass is for one alone."""
    return 0.001 + 0.009 / min(count, 4) + 0.0005 * max(0, count - 4)


def busy(count: int) -> float:
    """Whoever waits for others waits for those who have no core."""
    return 0.010 if count == 1 else 0.010 * count


def run(threads: Threads, machine: Machine, passes: int, rows: int = 1) -> list[int]:
    """The counts that so many passes had."""
    counts = []
    for _ in range(passes):
        counts.append(threads.next)
        threads.took(rows, machine(counts[-1]))
    return counts


def noisy(machine: Machine, spread: float = 0.1, seed: int = 1) -> Machine:
    """Passes differ, and one in twenty takes three times as long."""
    drawn = random.Random(seed)
    return lambda count: machine(count) * (1 + spread * drawn.uniform(-1, 1)) * (3 if drawn.random() < 0.05 else 1)


@pytest.mark.parametrize("machine", [idle, noisy(idle)], ids=["still", "noisy"])
def test_more_threads_come_where_they_help_and_stay(machine: Machine) -> None:
    threads = Threads(choices(8))
    run(threads, machine, 700)
    assert threads.settled == 4
    counts = run(threads, machine, 5000)
    assert threads.settled == 4
    assert counts.count(4) > (1 - 2 * TRIAL_SHARE) * len(counts)


def test_trials_on_an_even_machine_are_rare() -> None:
    threads = Threads(choices(8), 4)
    counts = run(threads, idle, 5000)
    others = [count for count in counts if count != 4]
    assert set(others) == {3, 6}, "the neighbours alone"
    assert 0 < len(others) <= TRIAL_SHARE * len(counts) + TRIAL_PASSES
    slower = sum(map(idle, counts)) / (idle(4) * len(counts))
    assert slower < 1 + TRIAL_SHARE


@pytest.mark.parametrize("most", [2, 4, 8, 16])
def test_a_machine_that_gets_busy_has_one_thread_soon_and_more_when_it_is_idle(most: int) -> None:
    threads = Threads(choices(most), min(most, 4))
    run(threads, idle, 1000)
    assert threads.settled == min(most, 4)
    counts = run(threads, busy, 60)
    assert threads.settled == 1
    assert counts[-1] == 1
    run(threads, busy, 3000)
    assert threads.settled == 1
    run(threads, idle, 700)
    assert threads.settled == min(most, 4)


def test_a_busy_machine_is_hardly_slower_than_with_one_thread() -> None:
    """Also where passes with two threads take fifty times as long."""
    threads = Threads(choices(2), 2)

    def stuck(count: int) -> float:
        return 0.006 if count == 1 else 0.3

    run(threads, idle, 500)
    run(threads, stuck, 60)
    counts = run(threads, stuck, 20_000)
    assert sum(map(stuck, counts)) < (1 + 2 * TRIAL_SHARE) * stuck(1) * len(counts)
    tried = [place for place, count in enumerate(counts) if count == 2]
    assert all(later - sooner > 1000 for sooner, later in pairwise(tried)), "one such pass is enough"


def test_threads_come_back_at_once_though_a_trial_was_lost() -> None:
    """The other core is taken, then the machine is faster for a while with the core taken still, then it is idle."""
    threads = Threads(choices(2), 2)
    run(threads, lambda count: (0.038, 0.033)[count - 1], 100)
    for one in (0.061, 0.040, 0.061):
        run(threads, lambda count, one=one: (one, 3.3 * one)[count - 1], 40)
        assert threads.settled == 1
    run(threads, lambda count: (0.037, 0.032)[count - 1], 3 * TRIAL_PASSES)
    assert threads.settled == 2


def test_a_slower_machine_is_tried_once() -> None:
    threads = Threads(choices(4), 4)
    run(threads, idle, 20)
    counts = run(threads, lambda count: 2 * idle(count), 100)
    assert Counter(counts) == {4: 100 - CLEAR_PASSES, 3: CLEAR_PASSES}


def test_a_machine_that_changes_all_the_time_loses_little() -> None:
    drawn = random.Random(3)
    threads, taken, alone, best = Threads(choices(4)), 0.0, 0.0, 0.0
    for _ in range(60):
        machine = drawn.choice((idle, busy))
        length = drawn.randrange(50, 1500)
        taken += sum(map(machine, run(threads, machine, length)))
        alone += length * machine(1)
        best += length * min(map(machine, choices(4)))
    assert taken < 0.85 * alone
    assert taken < 1.25 * best


def test_a_stall_of_a_few_passes_changes_nothing() -> None:
    threads = Threads(choices(4), 4)
    run(threads, idle, 300)
    run(threads, lambda count: 20 * idle(count), 3)
    run(threads, idle, 2 * TRIAL_PASSES + 3)
    assert threads.settled == 4


def test_a_stall_in_a_trial_changes_nothing() -> None:
    threads = Threads(choices(4), 4)
    while threads.next == 4:
        threads.took(1, idle(4))
    run(threads, lambda count: 20 * idle(count), 3)
    run(threads, idle, 2 * TRIAL_PASSES)
    assert threads.settled == 4


def test_of_counts_alike_few_are_taken() -> None:
    threads = Threads(choices(8), 8)
    run(threads, noisy(lambda _: 0.01), 2000)
    counts = run(threads, noisy(lambda _: 0.01), 6000)
    assert sum(counts) < 2.5 * len(counts)


def test_steps_of_any_size_tell_alike() -> None:
    """More rows are no slower machine, and a change is seen in steps that differ."""
    threads = Threads(choices(4), 4)
    drawn = random.Random(2)

    def steps(machine: Machine, count: int) -> None:
        for _ in range(count):
            rows = drawn.choice((1, 5, 9))
            threads.took(rows, rows * machine(threads.next))

    counts = []
    for _ in range(2000):
        counts.append(threads.next)
        steps(idle, 1)
    assert threads.settled == 4
    assert counts.count(4) >= (1 - TRIAL_SHARE) * len(counts) - TRIAL_PASSES
    steps(busy, 60)
    assert threads.settled == 1


def test_one_choice_is_never_left() -> None:
    threads = Threads([3])
    assert set(run(threads, noisy(busy), 2000)) == {3}


def test_counts_are_few_and_end_with_the_most() -> None:
    assert choices(1) == [1]
    assert choices(7) == [1, 2, 3, 4, 6, 7]
    assert choices(64) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


def test_few_rows_follow_many_downwards() -> None:
    """Where nearly all passes are checks of drafts, a plain one would find a busy machine with too many threads."""
    by_rows = ByRows(4, 4, lambda _, count: idle(count))
    assert (by_rows.of(1).settled, by_rows.of(9).settled) == (4, 4)
    run(by_rows.of(9), idle, 20, rows=9)
    run(by_rows.of(9), busy, 40, rows=9)
    assert (by_rows.of(9).settled, by_rows.of(1).settled) == (1, 1)
    run(by_rows.of(1), idle, 700)
    assert (by_rows.of(9).settled, by_rows.of(1).settled) == (1, 4), "and learn by themselves what is more"


def test_something_that_comes_between_counts_for_nothing() -> None:
    assert typical([1, 1, 1, 50]) == 1
    assert typical([1, 60, 1, 1, 2, 1, 1, 50]) == pytest.approx(7 / 6)
    assert typical([2]) == 2


class Clock:
    """Between two looks passes as much as `machine` says of the threads that work."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.now = machine, 0.0
        self.decoder: CpuDecoder | None = None

    def __call__(self) -> float:
        self.now += self.machine(self.decoder.working if self.decoder else 1)
        return self.now


def test_a_decoder_follows_its_own_passes_and_writes_the_same() -> None:
    opened, clock = Checkpoint.open(demo_model("draft")), Clock(busy)
    expected = CpuDecoder(opened, 64, threads=1).forward([5], 0)
    decoder = CpuDecoder(opened, 64, threads=3, clock=clock)
    clock.decoder = decoder
    assert decoder.threads == 3

    def passes(count: int) -> Counter[int]:
        working = Counter[int]()
        for _ in range(count):
            assert torch.equal(decoder.forward([5], 0), expected)
            working[decoder.working] += 1
        return working

    clock.machine = idle
    assert set(passes(700)) == {1, 2, 3}
    assert passes(100)[3] >= 100 - TRIAL_PASSES
    clock.machine = busy
    passes(60)
    assert passes(100)[1] >= 100 - TRIAL_PASSES
    assert decoder.threads == 3


def test_few_layers_of_a_large_model_tell_how_many_threads_are_best(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = set[range]()
    run = CpuDecoder.run_layers

    def counted(decoder: CpuDecoder, x: Tensor, layers: range, rows: PassRows) -> Tensor:
        timed.add(layers)
        return run(decoder, x, layers, rows)

    monkeypatch.setattr(CpuDecoder, "run_layers", counted)
    checkpoint = Checkpoint.open(demo_model("target"))
    layers, weights = checkpoint.config.layers, CpuDecoder(checkpoint, threads=2)._parameters.memory()
    monkeypatch.setattr(decoder, "TIMED_BYTES", weights // layers)
    CpuDecoder(checkpoint, threads=2)
    assert timed == {range(layers), range(1)}
