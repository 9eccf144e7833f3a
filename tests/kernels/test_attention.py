"""Attention against torch in float64, row by row, and tree against chain."""

import random
from collections.abc import Sequence
from copy import copy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.errors import ModelError
from specchat.engine.gpu_checks.references import reference_attend
from specchat.engine.kernels.attention import Scoring, attend
from specchat.engine.kernels.combine import UNROLLED
from specchat.engine.kernels.gpu_shapes import GROWS, SPLIT, attention_splits
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import Workspace, workspace

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if GPU else (torch.float32, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Of values near 1; weights and result are rounded to the type that is stored."""

CAPACITY = 768
COUNTS = (*range(1, 17), 33, 64)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


class Step:
    """Queries and a cache of one shape; every slot that a call may not see is NaN while it runs."""

    def __init__(
        self,
        dtype: torch.dtype,
        group: int,
        dim: int,
        kv: int = 2,
        capacity: int = CAPACITY,
        window: int = 0,
        sinks: bool = False,
        gated: bool = False,
        held: int | None = None,
    ) -> None:
        generator, rows = torch.Generator().manual_seed(group * 1000 + dim), 64
        self.heads, self.kv, self.capacity, self.window = group * kv, kv, capacity, window
        self.split = SPLIT
        self.held = held
        """Entries of a ring, if the cache is one."""
        self.query = torch.randn(rows, self.heads, dim, generator=generator).to(DEVICE, dtype)
        self.keys, self.values = torch.randn(2, kv, capacity, dim, generator=generator).to(DEVICE, dtype)
        self.sinks = torch.randn(self.heads, generator=generator).to(DEVICE) if sinks else None
        # Two parts of a product, with keys and values after the queries and gates.
        columns = 2 * (self.heads + kv) * dim
        self.gates = torch.randn(2, rows, columns, generator=generator).to(DEVICE) if gated else None

    def run(self, start: int, rows: int, tree: list[int] | None = None, first: int = 0) -> Tensor:
        """Rows `first`, ... of the queries as the rows at `start`, ...; [rows, heads * D]."""
        query = self.query[first : first + rows].contiguous()
        keys, values = self.keys.clone(), self.values.clone()
        keys[:, start + rows :] = values[:, start + rows :] = torch.nan
        unseen = slice(max(0, start + 1 - self.window) if self.window else 0)
        keys[:, unseen] = values[:, unseen] = torch.nan
        if self.held is not None:
            keys, values = (ring(cache, start + rows, self.held) for cache in (keys, values))
        out = torch.full((rows, self.heads * query.shape[2]), torch.nan, device=DEVICE, dtype=query.dtype)
        gates = None if self.gates is None else self.gates[:, first : first + rows].contiguous()
        further = {"sinks": self.sinks, "gates": gates, "positions": self.capacity}
        call(query, keys, values, start, tree, self.space(rows), out, window=self.window, **further)
        return out

    def space(self, rows: int) -> Workspace:
        splits = attention_splits(self.capacity, self.window, rows, self.split)
        space = workspace(rows, self.heads, self.query.shape[2], splits, DEVICE, self.split)
        for buffer in (space.best, space.total, space.mixed):
            buffer.fill_(torch.nan)
        return space


def ring(cache: Tensor, end: int, held: int) -> Tensor:
    """The last `held` of the entries before `end`, each at its position modulo their number."""
    made = torch.full_like(cache[:, :held], torch.nan)
    for position in range(max(0, end - held), min(end, cache.shape[1])):
        made[:, position % held] = cache[:, position]
    return made


def call(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    tree: list[int] | None,
    space: Workspace,
    out: Tensor,
    skip: Tensor | None = None,
    scale: float | None = None,
    window: int = 0,
    sinks: Tensor | None = None,
    gates: Tensor | None = None,
    positions: int | None = None,
    cap: float = 0.0,
) -> None:
    length = torch.tensor([start], dtype=torch.int32, device=DEVICE)
    masks = None if tree is None else torch.tensor(tree, device=DEVICE)
    rows = query.shape[0]
    of = Scoring(scale, window, cap, sinks, gates, positions)
    attend(query, KvEntries(keys, values), RowPlaces(length, masks, skip), space, out, rows, of)


def truth(step: Step, start: int, rows: int, tree: list[int] | None = None) -> Tensor:
    """torch's attention in float64 under an explicit mask."""
    seen = torch.ones(rows, start + rows, dtype=torch.bool)
    seen[:, start:] = torch.tensor(
        [[(tree[r] >> j & 1) == 1 if tree else j <= r for j in range(rows)] for r in range(rows)]
    )
    query, keys, values = (
        t.double() for t in (step.query[:rows], step.keys[:, : start + rows], step.values[:, : start + rows])
    )
    mixed = scaled_dot_product_attention(
        query.transpose(0, 1), keys, values, attn_mask=seen.to(DEVICE), enable_gqa=True
    )
    return mixed.transpose(0, 1).flatten(1)


def random_tree(nodes: int, seed: int) -> tuple[list[int], list[list[int]]]:
    """A tree's masks, and each node's path from the root to itself."""
    pick = random.Random(seed)
    paths = [[0]]
    for node in range(1, nodes):
        paths.append([*paths[pick.randrange(max(0, node - 5), node)], node])
    masks = [sum(1 << j for j in path) for path in paths]
    return [m - (1 << 64) if m >> 63 else m for m in masks], paths


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    ("group", "dim", "start", "rows"),
    [
        (1, 8, 0, 1),
        (4, 8, 487, 33),
        (2, 32, 3, 5),
        (3, 64, 250, 16),
        (4, 80, 255, 2),
        (5, 96, 250, 16),
        (2, 512, 250, 5),
        (7, 128, 511, 2),
        (8, 16, 519, 5),
    ],
)
def test_a_chain_is_torchs(group: int, dim: int, start: int, rows: int, dtype: torch.dtype) -> None:
    step = Step(dtype, group, dim)
    ours, theirs = step.run(start, rows), truth(step, start, rows)
    torch.testing.assert_close(ours.double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    used = (step.query[:rows].double(), step.keys.double(), step.values.double())
    torch.testing.assert_close(reference_attend(*used, start, None), theirs)


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize(
    ("group", "dim", "start", "rows"),
    [(7, 16, 0, 7), (4, 80, 240, 20), (3, 64, SPLIT, 5), (1, 8, 500, 33), (2, 512, 250, 6)],
)
def test_a_tree_is_torchs(group: int, dim: int, start: int, rows: int, dtype: torch.dtype) -> None:
    step = Step(dtype, group, dim)
    tree, _ = random_tree(rows, seed=start)
    ours, theirs = step.run(start, rows, tree), truth(step, start, rows, tree)
    torch.testing.assert_close(ours.double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    used = (step.query[:rows].double(), step.keys.double(), step.values.double())
    torch.testing.assert_close(reference_attend(*used, start, tree), theirs)


@pytest.mark.parametrize("tree", [None, [0b1, 0b11, 0b101]])
def test_a_layer_with_a_scale_and_fewer_heads_than_others(tree: list[int] | None, dtype: torch.dtype) -> None:
    """It has bit for bit what it has in a workspace of its own; a scale is one of the queries."""
    step, start, rows = Step(dtype, 3, 16), 300, 3
    alone, out = step.run(start, rows, tree), torch.full((2, rows, 96), torch.nan, device=DEVICE, dtype=dtype)
    wide = workspace(rows + 2, 2 * step.heads, 64, attention_splits(step.capacity), DEVICE)
    query = step.query[:rows].contiguous()
    call(query, step.keys, step.values, start, tree, wide, out[0])
    assert torch.equal(out[0], alone)
    call(query, step.keys, step.values, start, tree, wide, out[1], scale=0.5)
    assert torch.equal(out[1], step_scaled(step, 2.0).run(start, rows, tree))


@pytest.mark.parametrize("tree", [None, [0b1, 0b11, 0b101]])
def test_scores_are_capped(tree: list[int] | None, dtype: torch.dtype) -> None:
    step, start, rows = Step(dtype, 3, 16), 300, 3
    out = torch.full((rows, 96), torch.nan, device=DEVICE, dtype=dtype)
    query = step.query[:rows].contiguous()
    call(query, step.keys, step.values, start, tree, step.space(rows), out, cap=0.5)
    used = (query.double(), step.keys.double(), step.values.double())
    expected = reference_attend(*used, start, tree, Scoring(cap=0.5))
    torch.testing.assert_close(out.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert (expected - reference_attend(*used, start, tree)).abs().max() > 4 * TOLERANCE[dtype]


def step_scaled(step: Step, factor: float) -> Step:
    """The same with its queries multiplied, by a power of two as no number is rounded by."""
    other = copy(step)
    other.query = step.query * factor
    return other


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize(
    ("group", "dim", "start", "counts"),
    [
        (1, 8, 230, (33, 64)),
        (3, 80, 248, (2, 5, 16)),
        (4, 64, 500, range(1, 17)),
        (8, 16, 511, (2, 5, 17)),
        (2, 512, 250, (3, 9)),
    ],
)
def test_rows_of_a_chain_are_alone(
    group: int, dim: int, start: int, counts: Sequence[int], stored: torch.dtype
) -> None:
    step = Step(stored, group, dim, kv=1)
    alone = torch.cat([step.run(start + r, 1, first=r) for r in range(max(counts))])
    assert not alone.isnan().any(), "something beyond the visible slots leaked"
    for rows in counts:
        assert torch.equal(step.run(start, rows), alone[:rows])


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("group", "dim", "start", "rows"),
    [(1, 8, 230, 64), (4, 64, 250, 16), (5, 16, SPLIT, 9), (7, 80, 500, 17), (8, 512, 250, 7)],
)
def test_a_node_of_a_tree_is_the_end_of_its_path(
    group: int, dim: int, start: int, rows: int, stored: torch.dtype
) -> None:
    step = Step(stored, group, dim, kv=1)
    tree, paths = random_tree(rows, seed=rows)
    together = step.run(start, rows, tree)
    for node, path in enumerate(paths):
        chain = Step(stored, group, dim, kv=1)
        for cache in (chain.keys, chain.values):
            cache[:, start : start + len(path)] = cache[:, [start + j for j in path]]
        assert torch.equal(together[[node]], chain.run(start + len(path) - 1, 1, first=node))


@pytest.mark.parametrize("split", [256, SPLIT, 64])
def test_splits_of_other_lengths_keep_rows_and_nodes_alone(split: int) -> None:
    """What a constant is tuned to must change speed alone; 64 nodes of a tree lie in two splits of any length."""
    dtype = DTYPES[0]
    step = Step(dtype, 2, 16, kv=1)
    step.split = split
    start, (tree, paths) = 250, random_tree(64, seed=3)
    torch.testing.assert_close(step.run(start, 20).double(), truth(step, start, 20), rtol=1e-2, atol=1e-2)
    together, chain = step.run(start, 64, tree), step.run(start, 16)
    for row in (0, 7, 15):
        assert torch.equal(step.run(start + row, 1, first=row)[0], chain[row])
    for node in (1, 30, 63):
        moved = Step(dtype, 2, 16, kv=1)
        moved.split = split
        for cache in (moved.keys, moved.values):
            cache[:, start : start + len(paths[node])] = cache[:, [start + j for j in paths[node]]]
        assert torch.equal(together[[node]], moved.run(start + len(paths[node]) - 1, 1, first=node))


def test_a_long_cache_is_combined_in_chunks(dtype: torch.dtype) -> None:
    start, rows = SPLIT * UNROLLED - 2, 4
    step = Step(dtype, 2, 8, kv=1, capacity=start + SPLIT)
    # The last key of the cache is far ahead of all others, so that the second chunk shrinks what the first has summed.
    step.query += 2
    step.keys[:, start + 2] = 3
    ours = step.run(start, rows)
    torch.testing.assert_close(ours.double(), truth(step, start, rows), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert torch.equal(ours, torch.cat([step.run(start + r, 1, first=r) for r in range(rows)]))


def splits_of(positions: int, split: int) -> list[int]:
    """The length of each split of a text, by hand."""
    made = list[int]()
    while sum(made) < positions:
        made.append(split << max(0, len(made) // GROWS - 1))
    return made


def test_splits_double_in_length_along_a_text() -> None:
    for positions in (1, 128, 129, 16_384, 16_385, 16_640, 16_641, 32_768, 32_769, 131_072, 1 << 20):
        assert attention_splits(positions) == len(splits_of(positions, SPLIT)), positions
    assert attention_splits(1 << 20) == 512
    assert attention_splits(1 << 20, window=1024) == 10
    assert attention_splits(500, window=1024) == 4


@pytest.mark.rotated(2)
@pytest.mark.parametrize("start", [2 * GROWS * 64 - 7, 2 * GROWS * 64 + 400])
def test_a_needle_in_a_long_text_is_found_by_rows_in_any_company(start: int, dtype: torch.dtype) -> None:
    """A key far ahead of all others stands where the splits begin to be twice as long."""
    rows, needle = 17, 2 * GROWS * 64 + (-9 if start < 2 * GROWS * 64 else 3)
    step = Step(dtype, 1, 8, kv=1, capacity=start + 64)
    step.split = 64
    step.query += 2
    step.keys[:, needle] = 3
    together = step.run(start, rows)
    torch.testing.assert_close(
        together.double(), truth(step, start, rows), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )
    assert torch.nn.functional.cosine_similarity(together.float(), step.values[0, needle].float()[None]).min() > 0.9
    for row in (0, 16):
        assert torch.equal(step.run(start + row, 1, first=row)[0], together[row])
    tree = [2 ** (r + 1) - 1 for r in range(rows)]
    assert torch.equal(step.run(start, rows, tree), together)


def test_a_chain_written_as_a_tree(dtype: torch.dtype) -> None:
    step = Step(dtype, 4, 32)
    assert torch.equal(step.run(250, 16, [2 ** (r + 1) - 1 for r in range(16)]), step.run(250, 16))


def test_skip(dtype: torch.dtype) -> None:
    step = Step(dtype, 2, 8)
    out, space = torch.full((3, 32), 7.0, device=DEVICE, dtype=dtype), step.space(3)
    skip = torch.ones(1, dtype=torch.int32, device=DEVICE)
    call(step.query[:3], step.keys, step.values, 5, None, space, out, skip)
    assert (out == 7).all()
    assert space.mixed.isnan().all()
    skip.zero_()
    call(step.query[:3], step.keys, step.values, 5, None, space, out, skip)
    assert torch.equal(out, step.run(5, 3))


@pytest.mark.parametrize("as_tree", [False, True])
def test_rows_that_pad_a_step_beyond_the_cache(as_tree: bool, dtype: torch.dtype) -> None:
    step = Step(dtype, 3, 16, capacity=320)
    space, out = step.space(8), torch.empty(8, 96, device=DEVICE, dtype=dtype)
    tree = [2 ** (r + 1) - 1 for r in range(8)] if as_tree else None
    call(step.query[:8].contiguous(), step.keys, step.values, 317, tree, space, out)
    assert torch.equal(out[:3], step.run(317, 3))


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ModelError, match=r"1024 wide.*512 at most.*CPU"):
        workspace(1, 8, 1024, 8, DEVICE)
    step = Step(DTYPES[0], 17, 8, kv=1)
    with pytest.raises(ModelError, match=r"17 query heads.*16 at most.*CPU"):
        step.run(0, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("start", [0, 250, 4090, 8128])
def test_qwen3_8b_on_the_device(start: int) -> None:
    step = Step(torch.bfloat16, 4, 128, kv=8, capacity=8192)
    tree, paths = random_tree(64, seed=start)
    for masks in (None, tree):
        torch.testing.assert_close(
            step.run(start, 64, masks).double(), truth(step, start, 64, masks), rtol=2e-2, atol=2e-2
        )
    alone = torch.cat([step.run(start + r, 1, first=r) for r in range(64)])
    for rows in COUNTS:
        assert torch.equal(step.run(start, rows), alone[:rows])
    together = step.run(start, 64, tree)
    for node in range(64):
        chain = Step(torch.bfloat16, 4, 128, kv=8, capacity=8192)
        for cache in (chain.keys, chain.values):
            cache[:, start : start + len(paths[node])] = cache[:, [start + j for j in paths[node]]]
        assert torch.equal(together[[node]], chain.run(start + len(paths[node]) - 1, 1, first=node))
