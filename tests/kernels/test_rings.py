"""Caches that are rings, of fewer entries than a text has positions: the bits of a cache of all, across their edges."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import SPLIT
from specchat.engine.kernels.keep import keep
from specchat.engine.protocol.options import Sampling
from tests.kernels.test_attention import DEVICE, DTYPES, Step, random_tree, ring
from tests.kernels.test_rope import Rotation
from tests.kernels.test_trees import started

WINDOW = 100
HELD = (192, 201)
"""Entries of a ring, of which the second shares no factor with those of a split."""


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.mark.rotated(2)
@pytest.mark.parametrize("as_tree", [False, True])
@pytest.mark.parametrize(("group", "dim", "rows", "held"), [(4, 16, 9, HELD[0]), (1, 80, 33, HELD[1])])
def test_attention_is_that_of_all_positions(
    group: int, dim: int, rows: int, held: int, as_tree: bool, stored: torch.dtype
) -> None:
    starts = 5, held - 4, held, 2 * SPLIT - 2, 2 * held - 1, 3 * held - 20
    check_attention(starts, group, dim, rows, held, as_tree, stored)


def check_attention(
    starts: Iterable[int], group: int, dim: int, rows: int, held: int, as_tree: bool, stored: torch.dtype
) -> None:
    tree = random_tree(rows, seed=rows)[0] if as_tree else None
    for start in starts:
        whole, own = (Step(stored, group, dim, kv=2, window=WINDOW, held=of) for of in (None, held))
        assert torch.equal(own.run(start, rows, tree), whole.run(start, rows, tree)), start


def test_an_entry_that_is_overwritten_shows(dtype: torch.dtype) -> None:
    """A ring of fewer entries than the window and the rows have."""
    whole, own = (Step(dtype, 2, 16, window=WINDOW, held=of) for of in (None, WINDOW + 3))
    assert not torch.equal(own.run(300, 9), whole.run(300, 9))


@pytest.mark.parametrize("length", [3, 20, 24, 45])
def test_entries_are_written_to_their_places(length: int, dtype: torch.dtype) -> None:
    held, offsets = 24, [0, 1, 1, 2, 2, 3, 4, 5]
    whole, own = (Rotation(dtype, 3, 2, 16, 2, True, held=of) for of in (64, held))
    (query, *caches), (own_query, *own_caches) = whole.run(length, offsets), own.run(length, offsets)
    assert torch.equal(query, own_query)
    written = [position % held for position in range(length, length + len(offsets))]
    others = sorted(set(range(held)) - set(written))
    for cache, mine in zip(caches, own_caches, strict=True):
        assert torch.equal(mine[:, written], cache[:, length : length + len(offsets)])
        assert mine[:, others].isnan().all()


def test_rows_beyond_the_last_position_are_not_written(dtype: torch.dtype) -> None:
    _, *caches = Rotation(dtype, 2, 2, 8, 1, False, held=24).run(62, [0, 1, 2, 3])
    for cache in caches:
        assert (~cache.isnan().any(0).any(-1)).nonzero().flatten().tolist() == [62 % 24, 63 % 24]


def test_the_entries_of_a_path_move_together_across_the_edge() -> None:
    path, held, start = [0, 2, 4, 7, 9], 24, 17
    whole = torch.randn(2, 3, 2, 64, 24, device=DEVICE).to(torch.float16)

    def moved(caches: Tensor) -> Tensor:
        state = started(9, Sampling())
        state.result[0], state.result[2] = len(path) - 1, 3
        state.length.fill_(start + 3)
        state.kept[: len(path)] = torch.tensor(path, dtype=torch.int32)
        keep(caches[0], caches[1], state, None)
        return caches

    def of_ring(caches: Tensor) -> Tensor:
        return ring(caches.flatten(0, 2), start + 10, held).unflatten(0, caches.shape[:3])

    own = moved(of_ring(whole))
    assert torch.equal(own, of_ring(moved(whole)))
