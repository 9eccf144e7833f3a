"""Attention with sinks and with gates on its output: against transformers, row by row, and tree against chain."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

from specchat.engine.gpu_checks.references import reference_attend
from specchat.engine.kernels.attention import Scoring
from specchat.engine.kernels.gpu_shapes import SPLIT
from tests.kernels.test_attention import DEVICE, DTYPES, TOLERANCE, Step, random_tree
from tests.kernels.test_windows import positions

WINDOW = 100
WHICH = pytest.mark.parametrize(("sinks", "gated"), [(True, False), (False, True), (True, True)])


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def truth(step: Step, start: int, rows: int, tree: list[int] | None) -> Tensor:
    """gpt-oss's attention in float64, of which Qwen3.5 multiplies each head by the sigmoid of its gate."""
    unseen = torch.full((rows, start + rows), float("-inf"), dtype=torch.float64, device=DEVICE)
    for row, slots in enumerate(positions(start, rows, tree)):
        unseen[row, slots[-step.window :]] = 0.0
    dim, group = step.query.shape[2], step.heads // step.kv
    none = torch.full((step.heads,), float("-inf"), device=DEVICE)
    sinks = (none if step.sinks is None else step.sinks).double()
    module = SimpleNamespace(sinks=sinks, num_key_value_groups=group, training=False)
    query = step.query[:rows].double().transpose(0, 1)[None]
    keys, values = (cache[None, :, : start + rows].double() for cache in (step.keys, step.values))
    mixed = eager_attention_forward(module, query, keys, values, unseen[None, None], dim**-0.5)[0][0]
    if step.gates is not None:
        of_heads = step.gates[:, :rows].double().sum(0)[:, : 2 * step.heads * dim]
        _, gate = of_heads.view(rows, step.heads, 2 * dim).chunk(2, -1)
        mixed = mixed * gate.sigmoid()
    return mixed.flatten(1)


@pytest.mark.rotated(4)
@WHICH
@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize("as_tree", [False, True])
@pytest.mark.parametrize(
    ("group", "dim", "start", "rows"), [(1, 8, 0, 5), (4, 80, SPLIT - 3, 7), (8, 64, 2 * SPLIT, 9)]
)
def test_it_is_that_of_transformers(
    group: int,
    dim: int,
    start: int,
    rows: int,
    as_tree: bool,
    window: int,
    sinks: bool,
    gated: bool,
    dtype: torch.dtype,
) -> None:
    step = Step(dtype, group, dim, window=window, sinks=sinks, gated=gated)
    tree = random_tree(rows, seed=start)[0] if as_tree else None
    theirs = truth(step, start, rows, tree)
    ours = step.run(start, rows, tree)
    torch.testing.assert_close(ours.double(), theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    used = (step.query[:rows].double(), step.keys.double(), step.values.double())
    gates = None if step.gates is None else step.gates[:, :rows]
    reference = reference_attend(*used, start, tree, Scoring(window=window, sinks=step.sinks, gates=gates))
    torch.testing.assert_close(reference, theirs)


@pytest.mark.parametrize("window", [0, WINDOW])
@pytest.mark.parametrize(("group", "dim", "start", "rows"), [(4, 64, 250, 16), (1, 8, 230, 33)])
def test_rows_and_nodes_are_alone(
    group: int, dim: int, start: int, rows: int, window: int, stored: torch.dtype
) -> None:
    step = Step(stored, group, dim, kv=1, window=window, sinks=True, gated=True)
    alone = torch.cat([step.run(start + row, 1, first=row) for row in range(rows)])
    assert torch.equal(step.run(start, rows), alone)
    tree, paths = random_tree(rows, seed=rows)
    together = step.run(start, rows, tree)
    for node, path in enumerate(paths):
        chain = Step(stored, group, dim, kv=1, window=window, sinks=True, gated=True)
        for cache in (chain.keys, chain.values):
            cache[:, start : start + len(path)] = cache[:, [start + j for j in path]]
        assert torch.equal(together[[node]], chain.run(start + len(path) - 1, 1, first=node))


def test_a_sink_takes_what_the_others_leave(dtype: torch.dtype) -> None:
    """One far below all scores changes no bit; one far above leaves nothing."""
    step = Step(dtype, 2, 16)
    plain = step.run(250, 5)
    step.sinks = torch.full((step.heads,), -200.0, device=DEVICE)
    assert torch.equal(step.run(250, 5), plain)
    step.sinks = torch.full((step.heads,), 200.0, device=DEVICE)
    assert (step.run(250, 5) == 0).all()
