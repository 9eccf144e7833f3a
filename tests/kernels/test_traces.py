"""Programs that are run as they were recorded do what interpreted ones do."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

from tests.gpu_net.mutations import Mutation, planted
from tests.kernels import recording, traces

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
PROGRAMS = 12


@triton.jit
def _weighed(pointers, inside, scale):
    values = tl.load(pointers, mask=inside, other=1.0)
    return tl.where(values > 0, values * scale, tl.exp(values))


@triton.jit
def _wander(x, counts, out, columns, scale, BLOCK: tl.constexpr):
    """Loops as often as is said in memory, stores before and after, and looks at what it has stored."""
    row = tl.program_id(0)
    count = tl.load(counts + row)
    place = tl.arange(0, BLOCK)
    tl.store(out + row * BLOCK + place, place * 0.0)
    for start in range(0, count, BLOCK):
        inside = start + place < count
        value = _weighed(x + row * columns + start + place, inside, scale)
        before = tl.load(out + row * BLOCK + place)
        tl.store(out + row * BLOCK + place, before + value)
    if tl.max(tl.load(out + row * BLOCK + place), axis=0) > 3:
        tl.store(out + row * BLOCK, tl.sum(tl.load(out + row * BLOCK + place), axis=0) / (count - 7))
    elif count % 3 == 1:
        tl.store(out + row * BLOCK + 1, (row - 5) // 2 + tl.num_programs(0))


class Summands(NamedTuple):
    x: torch.Tensor
    firsts: torch.Tensor
    twice: int


class Sums(NamedTuple):
    summands: Summands
    out: torch.Tensor
    weights: torch.Tensor | None = None


@triton.jit
def _added(sums):
    row = tl.program_id(0)
    first = tl.load(sums.summands.firsts + row)
    total = 0.0
    for place in range(first, first + (sums.summands.twice >> 1)):
        total += tl.load(sums.summands.x + place)
    if sums.weights is not None:
        total *= tl.load(sums.weights + row)
    tl.store(sums.out + row, total)


@triton.jit
def _of_blocks(x, shared, out):
    """Blocks of each program beside some that all have, in every way that kernels shape them."""
    row, i = tl.program_id(0), tl.arange(0, 16)
    place = i[:, None] * 16 + i[None, :]
    own, weights = tl.load(x + row * 256 + place), tl.load(shared + place)
    product = tl.dot(own, tl.trans(weights)) + tl.dot(weights, own.to(tl.bfloat16).to(tl.float32))
    halves = tl.reshape(product, (16, 8, 2))
    sums = tl.sum(halves, 2, keep_dims=True) * tl.max(tl.max(halves, 2), 1)[:, None, None]
    ranks = tl.cumsum((tl.sum(sums, 1).reshape(16) > 0).to(tl.int32), 0)
    found = tl.gather(tl.sum(own, 1), tl.minimum(ranks, 15), 0) + tl.sum(own) + tl.load(shared + row % 3)
    tl.store(out + row * 16 + i, found, mask=tl.load(shared + i) < 1)
    tl.store(out + row * 16, tl.fma(tl.max(own), 2.0, tl.abs(tl.load(shared))))


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    traces.forget()
    yield
    traces.forget()


def wandered(seed: int, scale: float = 1.5) -> np.ndarray:
    stream = np.random.RandomState(seed)
    x = torch.from_numpy(stream.standard_normal((PROGRAMS, 40)).astype(np.float32))
    counts = torch.from_numpy(stream.randint(0, 40, PROGRAMS).astype(np.int32))
    out = torch.full((PROGRAMS, 8), -1.0)
    _wander[(PROGRAMS,)](x, counts, out, 40, scale, 8)
    return out.numpy()


def interpreted(monkeypatch: pytest.MonkeyPatch, seed: int, scale: float = 1.5) -> np.ndarray:
    with monkeypatch.context() as patch:
        patch.setattr(traces, "key_of", lambda *_: None)
        return wandered(seed, scale)


def test_all_ways_through_a_kernel_do_what_they_do_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits, of several loops and branches; a number of Python's is no other one's."""
    recorded = []
    monkeypatch.setattr(traces, "Recorder", lambda *of, make=traces.Recorder: recorded.append(of) or make(*of))
    for seed in range(10):
        for scale in (1.5, -2.0):
            expected = interpreted(monkeypatch, seed, scale)
            assert wandered(seed, scale).tobytes() == expected.tobytes()
    assert 2 < len(recorded) < 10 * PROGRAMS, "half of all programs are to be run as they were recorded"
    assert max(len(path) for _, _, path in recorded) > 1, "and records to go on in the middle"


def test_another_operation_of_the_interpreter_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        wandered(1)
    seen = []
    monkeypatch.setattr(InterpreterBuilder, "create_exp", lambda _, operand: (seen.append(operand), operand)[1])
    found = wandered(1)
    assert len(seen) > PROGRAMS
    assert found.tobytes() == interpreted(monkeypatch, 1).tobytes()


def test_another_source_of_a_helper_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = wandered(3)
    with planted(Mutation(_weighed, "other", "tl.load(pointers")):
        changed = wandered(3).tobytes()
        assert changed == interpreted(monkeypatch, 3).tobytes() != expected.tobytes()
    assert wandered(3).tobytes() == expected.tobytes()


def test_a_kernel_of_too_many_values_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = interpreted(monkeypatch, 4)
    monkeypatch.setattr(recording, "PLACES", 30)
    assert wandered(4).tobytes() == expected.tobytes()
    assert not any(isinstance(trace, traces.Trace) for trace in traces.TRACES.values())


def test_programs_whose_loops_begin_elsewhere_share_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = []
    monkeypatch.setattr(traces, "Recorder", lambda *of, make=traces.Recorder: recorded.append(of) or make(*of))
    firsts, weights = torch.arange(PROGRAMS, dtype=torch.int32) * 2, torch.full((PROGRAMS,), 2.0)
    for x, count in ((torch.arange(40.0), 3), (torch.arange(1.0, 41.0), 4)):
        out, weighed = torch.zeros(2, PROGRAMS)
        _added[(PROGRAMS,)](Sums(Summands(x, firsts, 2 * count), out))
        assert out.tolist() == [sum(x[2 * row : 2 * row + count]) for row in range(PROGRAMS)]
        _added[(PROGRAMS,)](Sums(Summands(x, firsts, 2 * count), weighed, weights))
        assert torch.equal(weighed, 2 * out)
    assert len(recorded) == 4, "one of each length, with weights and without"


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_blocks_of_programs_at_once_are_those_of_each(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits, where some programs of a launch are recorded and where all are run again."""
    monkeypatch.setattr(traces, "AT_ONCE", at_once)

    def written(seed: int) -> np.ndarray:
        stream, out = np.random.RandomState(seed), torch.full((PROGRAMS, 16), -1.0)
        x, shared = (torch.from_numpy(stream.standard_normal(256 * n).astype(np.float32)) for n in (PROGRAMS, 1))
        _of_blocks[(PROGRAMS,)](x, shared, out)
        return out.numpy()

    found = [written(seed).tobytes() for seed in range(3)]
    monkeypatch.setattr(traces, "key_of", lambda *_: None)
    assert found == [written(seed).tobytes() for seed in range(3)]
