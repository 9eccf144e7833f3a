"""Attention within a window against torch in float64, row by row, tree against chain, and heads of 256."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.gpu_checks.references import reference_attend
from specchat.engine.kernels import attention
from specchat.engine.kernels.attention import Scoring
from specchat.engine.kernels.combine import UNROLLED
from specchat.engine.kernels.gpu_shapes import SPLIT
from tests.kernels.test_attention import DEVICE, DTYPES, GPU, TOLERANCE, Step, random_tree

WINDOWS = (7, 16, 64, 200)
"""Shorter than a tile of rows, than a pass over keys, and longer than a split."""


def each_with_two(names: tuple[str, ...], *shapes: tuple[object, ...]) -> pytest.MarkDecorator:
    """Shapes, each with two of the windows, one of them long: neighbours with others."""
    pairs = [(*shape, window) for at, shape in enumerate(shapes) for window in (WINDOWS[at % 2], WINDOWS[2 + at % 2])]
    return pytest.mark.parametrize((*names, "window"), pairs)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def positions(start: int, rows: int, tree: list[int] | None) -> list[list[int]]:
    """The slots that each row sees without a window, in the order of its path."""
    masks = [2 ** (r + 1) - 1 for r in range(rows)] if tree is None else tree
    return [[*range(start), *(start + j for j in range(64) if mask >> j & 1)] for mask in masks]


def truth(step: Step, start: int, rows: int, window: int, tree: list[int] | None = None) -> Tensor:
    """torch's attention in float64 under an explicit mask."""
    seen = torch.zeros(rows, start + rows, dtype=torch.bool)
    for row, slots in enumerate(positions(start, rows, tree)):
        seen[row, slots[-window:]] = True
    query, keys, values = (
        t.double() for t in (step.query[:rows], step.keys[:, : start + rows], step.values[:, : start + rows])
    )
    mixed = scaled_dot_product_attention(
        query.transpose(0, 1), keys, values, attn_mask=seen.to(DEVICE), enable_gqa=True
    )
    return mixed.transpose(0, 1).flatten(1)


def close(ours: Tensor, theirs: Tensor) -> None:
    within = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours.double(), theirs, rtol=within, atol=within)


@each_with_two(
    ("group", "dim", "start", "rows"), (1, 8, 0, 33), (3, 64, SPLIT - 6, 16), (4, 80, 2 * SPLIT, 7), (2, 256, 250, 9)
)
def test_a_chain_is_torchs(group: int, dim: int, start: int, rows: int, window: int, dtype: torch.dtype) -> None:
    step = Step(dtype, group, dim, window=window)
    theirs = truth(step, start, rows, window)
    close(step.run(start, rows), theirs)
    used = (step.query[:rows].double(), step.keys.double(), step.values.double())
    torch.testing.assert_close(reference_attend(*used, start, None, Scoring(window=window)), theirs)


@pytest.mark.rotated(3, 1)
@each_with_two(
    ("group", "dim", "start", "rows"), (7, 16, 0, 7), (4, 80, 240, 20), (1, 8, 2 * SPLIT - 3, 33), (2, 256, 250, 7)
)
def test_a_tree_is_torchs(group: int, dim: int, start: int, rows: int, window: int, dtype: torch.dtype) -> None:
    step = Step(dtype, group, dim, window=window)
    tree, _ = random_tree(rows, seed=start)
    theirs = truth(step, start, rows, window, tree)
    close(step.run(start, rows, tree), theirs)
    used = (step.query[:rows].double(), step.keys.double(), step.values.double())
    torch.testing.assert_close(reference_attend(*used, start, tree, Scoring(window=window)), theirs)


@each_with_two(
    ("group", "dim", "start", "counts"), (1, 8, 230, (33, 64)), (4, 64, 500, (2, 5, 16)), (2, 256, 250, (3, 9))
)
def test_rows_of_a_chain_are_alone(
    group: int, dim: int, start: int, counts: Sequence[int], window: int, stored: torch.dtype
) -> None:
    """NaN stands in every slot before a lone row's window; in company the rows before it see some of them."""
    step = Step(stored, group, dim, kv=1, window=window)
    alone = torch.cat([step.run(start + r, 1, first=r) for r in range(max(counts))])
    assert not alone.isnan().any(), "something outside the window leaked"
    for rows in counts:
        assert torch.equal(step.run(start, rows), alone[:rows])


@pytest.mark.rotated(3)
@each_with_two(
    ("group", "dim", "start", "rows"),
    (1, 8, 230, 64),
    (4, 64, 250, 16),
    (5, 16, SPLIT, 9),
    (7, 80, 500, 17),
    (2, 256, 250, 9),
)
def test_a_node_of_a_tree_is_the_end_of_its_path(
    group: int, dim: int, start: int, rows: int, window: int, stored: torch.dtype
) -> None:
    step = Step(stored, group, dim, kv=1, window=window)
    tree, paths = random_tree(rows, seed=rows)
    together = step.run(start, rows, tree)
    for node, path in enumerate(paths):
        chain = Step(stored, group, dim, kv=1, window=window)
        for cache in (chain.keys, chain.values):
            cache[:, start : start + len(path)] = cache[:, [start + j for j in path]]
        assert torch.equal(together[[node]], chain.run(start + len(path) - 1, 1, first=node))


@pytest.mark.parametrize("tree", [False, True])
def test_a_window_as_long_as_the_text_changes_no_bit(tree: bool, dtype: torch.dtype) -> None:
    masks, _ = random_tree(9, seed=2)
    whole = Step(dtype, 2, 16).run(250, 9, masks if tree else None)
    assert torch.equal(Step(dtype, 2, 16, window=259).run(250, 9, masks if tree else None), whole)


def test_a_long_window_is_combined_in_chunks(dtype: torch.dtype) -> None:
    """A row's first chunk begins where its window does, in company too."""
    start, rows, window = SPLIT * (UNROLLED + 2) - 2, 4, SPLIT * UNROLLED + 1
    step = Step(dtype, 2, 8, kv=1, capacity=start + SPLIT, window=window)
    ours = step.run(start, rows)
    close(ours, truth(step, start, rows, window))
    assert torch.equal(ours, torch.cat([step.run(start + r, 1, first=r) for r in range(rows)]))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("as_tree", [False, True])
def test_rows_that_pad_a_step_beyond_the_cache(as_tree: bool, dtype: torch.dtype) -> None:
    step = Step(dtype, 3, 16, capacity=320, window=4)
    tree = [2 ** (r + 1) - 1 for r in range(16)] if as_tree else None
    assert torch.equal(step.run(317, 16, tree)[:3], step.run(317, 3))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("off", [-1, 1])
def test_a_window_off_by_one_shows(off: int, tree: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One key more is NaN where a row is alone; in a tree it is the key of another number."""
    attend, dtype = attention.attend, DTYPES[0]
    step, masks = Step(dtype, 2, 16, window=16), random_tree(9, seed=2)[0] if tree else None
    theirs = truth(step, 250, 9, 16, masks)

    def other(*args: Any) -> None:
        attend(*args[:-1], args[-1]._replace(window=args[-1].window + off))

    monkeypatch.setattr("tests.kernels.test_attention.attend", other)
    assert not torch.allclose(step.run(250, 9, masks).double(), theirs, rtol=0.01, atol=0.01)


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("window", [0, 512, 1024])
@pytest.mark.parametrize("start", [0, 1020, 4090])
def test_gemma_3_on_the_device(start: int, window: int) -> None:
    step = Step(torch.bfloat16, 2, 256, kv=4, capacity=8192, window=window)
    tree, paths = random_tree(64, seed=start)
    for masks in (None, tree):
        theirs = truth(step, start, 64, window or 8192, masks)
        torch.testing.assert_close(step.run(start, 64, masks).double(), theirs, rtol=2e-2, atol=2e-2)
    alone = torch.cat([step.run(start + r, 1, first=r) for r in range(64)])
    for rows in (2, 5, 16, 17, 64):
        assert torch.equal(step.run(start, rows), alone[:rows])
    together = step.run(start, 64, tree)
    for node in range(64):
        chain = Step(torch.bfloat16, 2, 256, kv=4, capacity=8192, window=window)
        for cache in (chain.keys, chain.values):
            cache[:, start : start + len(paths[node])] = cache[:, [start + j for j in paths[node]]]
        assert torch.equal(together[[node]], chain.run(start + len(paths[node]) - 1, 1, first=node))
