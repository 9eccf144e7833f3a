"""Weights asked for while small kernels run: which, how much of them, and that nothing else is another."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from specchat.engine.formats.layout import EightBit, FourBit
from specchat.engine.kernels.ahead import NONE, SECTOR, Ahead, Memory, as_of, memory_of, of_weight
from specchat.engine.kernels.gpu_shapes import AHEAD_PART, LEAST_AHEAD, ahead_parts
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.norm import OtherNorm, ResidualUpdate, add_rms_norm
from specchat.engine.kernels.rope import RopeNorms, RopeRows, Turns, rope_and_write
from specchat.engine.model.rope import tables
from tests.kernels.test_experts import pairs_of
from tests.kernels.test_rope import rope
from tests.kernels.test_rowwise import DEVICE, EPS, GPU, random

RTX_4090 = Memory(1008e3, 72 << 20)
ROWS, PARTS = 3, 5
Launch = Callable[[Ahead | None], tuple[Tensor, ...]]
ASKED = Ahead(torch.zeros(PARTS * AHEAD_PART + 100, dtype=torch.uint8, device=DEVICE), PARTS)


def norm(ahead: Ahead | None) -> tuple[Tensor, ...]:
    residual, out = random(ROWS, 200), torch.zeros(ROWS, 200, device=DEVICE)
    own = OtherNorm(random(200, seed=2), EPS, out)
    add_rms_norm(ResidualUpdate(residual), random(2, ROWS, 200, seed=1), own, ROWS, ahead=ahead)
    return residual, out


def mix(ahead: Ahead | None) -> tuple[Tensor, ...]:
    residual, out = random(64, 70), torch.zeros(64, 70, device=DEVICE)
    made = MixtureOutput(random(2, 64 * 4, 70, seed=1), pairs_of(ROWS, 16, 4))
    add_mixture(ResidualUpdate(residual), made, OtherNorm(random(70, seed=2), EPS, out), ROWS, ahead)
    return residual, out


def turn(ahead: Ahead | None) -> tuple[Tensor, ...]:
    query, keys, values = (torch.zeros(shape, device=DEVICE) for shape in ((ROWS, 4, 32), (1, 64, 32), (1, 64, 32)))
    cos, sin = (one.to(DEVICE) for one in tables(rope(32), 32, 64))
    start, offsets = (torch.tensor(at, dtype=torch.int32, device=DEVICE) for at in ([2], [0, 1, 2]))
    sums = random(2, ROWS, 6 * 32)
    at, turns = RopeRows(ROWS, start, offsets), Turns.of(cos, sin, 16)
    rope_and_write(sums, RopeNorms(), turns, at, query, KvEntries(keys, values), ahead=ahead)
    return query, keys, values


@contextmanager
def read_from(asked: Tensor) -> Iterator[list[int]]:
    """The places in a tensor that interpreted kernels read."""
    from triton.runtime import interpreter

    load, found = interpreter._interpreter.load, list[int]()

    def noted(pointers: np.ndarray, mask: np.ndarray, *rest: object) -> np.ndarray:
        places = pointers[np.broadcast_to(mask, pointers.shape)].astype(np.int64) - asked.data_ptr()
        found.extend(places[(places >= 0) & (places < asked.nbytes)].tolist())
        loaded: np.ndarray = load(pointers, mask, *rest)
        return loaded

    with patch.object(interpreter._interpreter, "load", noted):
        yield found


@pytest.mark.parametrize("launch", [norm, mix, turn])
def test_asking_changes_no_result(launch: Launch) -> None:
    assert all(map(torch.equal, launch(ASKED), launch(None)))


@pytest.mark.skipif(GPU, reason="a GPU's prefetches read nothing")
@pytest.mark.parametrize("launch", [norm, mix, turn])
def test_each_sector_is_asked_for_once(launch: Launch) -> None:
    with read_from(ASKED.start) as places:
        launch(ASKED)
    assert sorted(places) == list(range(0, PARTS * AHEAD_PART, SECTOR.value))


@pytest.mark.parametrize(
    ("held", "launches", "memory", "parts"),
    [
        (100 << 20, 1, RTX_4090, 31),
        (100 << 20, 3, RTX_4090, 94),
        (1 << 30, 9, RTX_4090, 144),
        (8 << 20, 3, RTX_4090, 64),
        (4_132_800 + LEAST_AHEAD * AHEAD_PART, 1, RTX_4090, 31),
        (4_132_799 + LEAST_AHEAD * AHEAD_PART, 1, RTX_4090, 0),
        (1 << 30, 1, Memory(936e3, 6 << 20), 0),
        (1 << 30, 1, Memory(), 0),
    ],
    ids=["a launch's time", "three", "the cache", "all of it", "enough", "little", "a small cache", "not known"],
)
def test_no_more_than_time_and_cache_allow(held: int, launches: int, memory: Memory, parts: int) -> None:
    assert ahead_parts(held, launches, *memory) == parts


FORMATS = {
    "dense": torch.zeros(1024, 4096, dtype=torch.bfloat16),
    "int8": EightBit(torch.zeros(2048, 4096, dtype=torch.int8), torch.zeros(2048)),
    "nf4": FourBit(torch.zeros(2048, 4096, dtype=torch.uint8), torch.zeros(2048, 128), torch.zeros(16), 64),
}
"""Of 8 MiB each."""


@pytest.mark.skipif(GPU, reason="of weights in main memory")
@pytest.mark.parametrize("name", FORMATS)
def test_values_are_asked_for_in_every_format(name: str) -> None:
    weight = FORMATS[name]
    values = getattr(weight, "packed", getattr(weight, "values", weight)) if name != "dense" else weight
    assert of_weight(weight, 1) is None, "interpreted kernels ask for nothing"
    with as_of(RTX_4090):
        found = of_weight(weight, 2)
        assert found is not None
        assert (found.start.data_ptr(), found.start.shape, found.parts) == (values.data_ptr(), (8 << 20,), 63)
        with as_of(NONE):
            assert of_weight(weight, 2) is None
    assert memory_of(torch.device("cpu")) == NONE
