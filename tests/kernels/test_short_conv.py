"""Short convolutions against torch's own, row by row, in trees and across a ring's edge, and what they compile to."""

from functools import cache

import pytest
import torch
from torch import Tensor

from specchat.engine.gpu_checks.layers import masks_of
from specchat.engine.gpu_checks.short_convs import RING, TOKENS, ShortConvLayer
from tests.kernels import compiled
from tests.kernels.test_rowwise import CLEAR, DTYPES, SET, TOLERANCE
from tests.kernels.test_trees import TREE, paths

TEXT = [(7 * i) % TOKENS for i in range(150)]
"""More tokens than a ring holds."""


@cache
def alone(dtype: torch.dtype) -> tuple[ShortConvLayer, Tensor]:
    """A layer that has read the text token by token, and its outputs."""
    layer = ShortConvLayer(dtype)
    return layer, layer.read(TEXT, (1,))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_torchs(dtype: torch.dtype) -> None:
    layer = ShortConvLayer(dtype)
    found = layer.read(TEXT, (5, 1, 17, 17, 64))
    torch.testing.assert_close(found.double(), layer.reference(TEXT), atol=8 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert not layer.keys.isnan().any()


@pytest.mark.parametrize("cuts", [(5, 1, 17), (64,), (2, 16)])
def test_a_row_does_not_depend_on_its_company(cuts: tuple[int, ...], stored: torch.dtype) -> None:
    (one_by_one, expected), layer = alone(stored), ShortConvLayer(stored)
    assert torch.equal(layer.read(TEXT, cuts), expected)
    assert torch.equal(layer.keys, one_by_one.keys)
    assert torch.equal(layer.values, one_by_one.values)


def test_rejected_rows_leave_nothing_behind(stored: torch.dtype) -> None:
    (_, expected), layer, at, step = alone(stored), ShortConvLayer(stored), 0, 0
    while at < len(TEXT):
        kept = TEXT[at : at + 2 + step % 3]
        block = [*kept, *[(31 * step + i) % TOKENS for i in range(9)]]
        assert torch.equal(layer.run(block, at)[: len(kept)], expected[at : at + len(kept)]), step
        at, step = at + len(kept), step + 1


@pytest.mark.parametrize("start", [0, 1, 5, RING - 4])
def test_a_row_of_a_tree_is_a_row_of_a_chain(start: int, stored: torch.dtype) -> None:
    """At once, and its last rows in a pass of their own."""
    tree, nodes = paths(TREE), [(11 * i + 3) % TOKENS for i in range(len(TREE) + 1)]
    layer, chains = ShortConvLayer(stored), ShortConvLayer(stored)
    layer.read(TEXT[:start], (16,))
    chains.read(TEXT[:start], (16,))
    made = layer.run(nodes, start, masks=masks_of(tree))
    later = layer.run(nodes[7:], start + 7, start, masks_of(tree[7:]))
    assert torch.equal(later, made[7:])
    for node, path in enumerate(tree):
        assert torch.equal(chains.run([nodes[i] for i in path], start)[-1], made[node]), node


def test_nothing_is_written_beyond_the_cache_or_of_a_skipped_layer() -> None:
    layer = ShortConvLayer(torch.float32, held=8, capacity=6)
    layer.run(TEXT[:7], 1, skip=CLEAR)
    assert layer.keys[0, 6:].isnan().all()
    assert not layer.keys[0, 1:6].isnan().any()
    before = layer.keys.clone()
    assert layer.run(TEXT[:3], 2, skip=SET).isnan().all()
    assert torch.equal(before.nan_to_num(7), layer.keys.nan_to_num(7))


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    for report in compiled.reports("tests.kernels.cases_short_conv", architectures):
        compiled.check_limits(report, 88, 64)
        assert report.stack == 0
