"""Short convolutions against torch's own, row by row, in trees and across a ring's edge, and what they compile to."""

from functools import cache
from itertools import cycle

import pytest
import torch
from torch import Tensor

from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.kernels.short_conv import short_conv
from tests.kernels import compiled
from tests.kernels.test_rowwise import CLEAR, DEVICE, DTYPES, SET, TOLERANCE, random
from tests.kernels.test_trees import TREE, paths

CHANNELS, TAPS, TOKENS = 2 * 280, 3, 120
"""Halves of more than one program, the last of which is not full."""
RING = 96
"""Entries that are held of as many positions and more."""


def number(value: int) -> Tensor:
    return torch.tensor([value], dtype=torch.int32, device=DEVICE)


class Layer:
    """A convolution with what the first product gives for each of some tokens; all that it holds begins as NaN."""

    def __init__(self, dtype: torch.dtype, held: int = RING, capacity: int = 4 * RING) -> None:
        self.products, self.weights = random(2, TOKENS, 3 * CHANNELS), random(CHANNELS, 1, TAPS, seed=1)
        self.dtype, self.capacity = dtype, capacity
        self.keys, self.values = (
            torch.full((1, held, CHANNELS // 2), torch.nan, device=DEVICE, dtype=dtype) for _ in range(2)
        )

    def run(
        self,
        tokens: list[int],
        start: int,
        length: int | None = None,
        tree: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> Tensor:
        """Outputs of rows, given by what their products are those of; a chain unless it is a tree."""
        out = torch.full((PASS_ROWS, CHANNELS), torch.nan, device=DEVICE, dtype=self.dtype)
        partials = torch.full((2, PASS_ROWS, 3 * CHANNELS), torch.nan, device=DEVICE)
        partials[:, : len(tokens)] = self.products[:, tokens]
        first, text = number(start), number(start if length is None else length)
        short_conv(
            partials, self.weights, first, text, tree, self.keys, self.values, out, len(tokens), skip, self.capacity
        )
        assert out[len(tokens) :].isnan().all(), "a row beyond the count was written"
        return out[: len(tokens)]

    def read(self, tokens: list[int], cuts: tuple[int, ...]) -> Tensor:
        """Outputs of a text in passes of `cuts` tokens, over and over."""
        made, sizes, at = [random(0, CHANNELS, dtype=self.dtype)], cycle(cuts), 0
        while at < len(tokens):
            made.append(self.run(tokens[at : at + next(sizes)], at))
            at += len(made[-1])
        return torch.cat(made)

    def reference(self, tokens: list[int]) -> Tensor:
        """Outputs of a text by torch's own convolution, float64."""
        before, after, z = self.products[:, tokens].double().sum(0).chunk(3, -1)
        given = (before * z).to(self.dtype).double()
        padded = torch.nn.functional.pad(given.T, (TAPS - 1, 0))
        made = torch.nn.functional.conv1d(padded[None], self.weights.double(), groups=CHANNELS)[0].T
        return after * made


TEXT = [(7 * i) % TOKENS for i in range(150)]
"""More tokens than a ring holds."""


@cache
def alone(dtype: torch.dtype) -> tuple[Layer, Tensor]:
    """A layer that has read the text token by token, and its outputs."""
    layer = Layer(dtype)
    return layer, layer.read(TEXT, (1,))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_torchs(dtype: torch.dtype) -> None:
    layer = Layer(dtype)
    found = layer.read(TEXT, (5, 1, 17, 17, 64))
    torch.testing.assert_close(found.double(), layer.reference(TEXT), atol=8 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert not layer.keys.isnan().any()


@pytest.mark.parametrize("cuts", [(5, 1, 17), (64,), (2, 16)])
def test_a_row_does_not_depend_on_its_company(cuts: tuple[int, ...], stored: torch.dtype) -> None:
    (one_by_one, expected), layer = alone(stored), Layer(stored)
    assert torch.equal(layer.read(TEXT, cuts), expected)
    assert torch.equal(layer.keys, one_by_one.keys)
    assert torch.equal(layer.values, one_by_one.values)


def test_rejected_rows_leave_nothing_behind(stored: torch.dtype) -> None:
    (_, expected), layer, at, step = alone(stored), Layer(stored), 0, 0
    while at < len(TEXT):
        kept = TEXT[at : at + 2 + step % 3]
        block = [*kept, *[(31 * step + i) % TOKENS for i in range(9)]]
        assert torch.equal(layer.run(block, at)[: len(kept)], expected[at : at + len(kept)]), step
        at, step = at + len(kept), step + 1


def masks_of(made: list[list[int]]) -> Tensor:
    return torch.tensor([sum(1 << node for node in path) for path in made], device=DEVICE)


@pytest.mark.parametrize("start", [0, 1, 5, RING - 4])
def test_a_row_of_a_tree_is_a_row_of_a_chain(start: int, stored: torch.dtype) -> None:
    """At once, and its last rows in a pass of their own."""
    tree, nodes = paths(TREE), [(11 * i + 3) % TOKENS for i in range(len(TREE) + 1)]
    layer, chains = Layer(stored), Layer(stored)
    layer.read(TEXT[:start], (16,))
    chains.read(TEXT[:start], (16,))
    made = layer.run(nodes, start, tree=masks_of(tree))
    later = layer.run(nodes[7:], start + 7, start, masks_of(tree[7:]))
    assert torch.equal(later, made[7:])
    for node, path in enumerate(tree):
        assert torch.equal(chains.run([nodes[i] for i in path], start)[-1], made[node]), node


def test_nothing_is_written_beyond_the_cache_or_of_a_skipped_layer() -> None:
    layer = Layer(torch.float32, held=8, capacity=6)
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
