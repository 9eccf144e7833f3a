"""Recurrent layers against plain torch, row by row, in trees and after rollbacks, and what their kernels compile to."""

from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from specchat.engine.gpu_checks.layers import masks_of
from specchat.engine.gpu_checks.states import LONG, RecurrentLayer
from specchat.engine.kernels.delta_state import (
    BASE,
    keep_entries,
)
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, STATE_BACK, STATE_SLOTS
from specchat.engine.kernels.verify_state import VerifyState
from tests.kernels import compiled
from tests.kernels.test_rowwise import CLEAR, COUNTS, DEVICE, DTYPES, GPU, SET, TOLERANCE
from tests.kernels.test_trees import TREE, paths

SMALL, WIDE = (1, 2, 16, 8, 4), (1, 1, 128, 32, 4)
"""Key and value heads, their widths, and taps. Of the second two programs share a head's state."""
SHAPES = [SMALL, WIDE, (2, 4, 8, 16, 3)]
SLACK = 1e-3 if GPU else 1e-4
"""Of sums over a whole text; a GPU's exponentials round in their last bits."""


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def base(layer: RecurrentLayer) -> int:
    """The position that the log begins with."""
    return int(layer.state.positions[..., BASE].max())


TOKENS = list(range(LONG))


@pytest.fixture(scope="module")
def alone() -> Tensor:
    """The outputs of the tokens of a text as long as the log and more, each read alone."""
    return RecurrentLayer(*SMALL).read(TOKENS, (1,))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_is_plain_torchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    layer = RecurrentLayer(*shape, dtype=dtype)
    found = torch.cat([layer.run(TOKENS[a:b], a) for a, b in pairwise((0, 1, 3, 20, 36))])
    truth = layer.reference(TOKENS[:36])
    assert truth.abs().mean() > 0.1
    torch.testing.assert_close(found.double(), truth, rtol=TOLERANCE[dtype], atol=SLACK)


def test_long_texts_are_plain_torchs(alone: Tensor) -> None:
    torch.testing.assert_close(alone.double(), RecurrentLayer(*SMALL).reference(TOKENS), rtol=SLACK, atol=SLACK)


def test_slow_decays_are_not_rounded_away() -> None:
    """Of a forget gate far below zero: what 1 + e**x has lost would be multiplied by a large rate."""
    layer = RecurrentLayer(*SMALL)
    layer.rates += 6.0
    layer.shifts -= 14.0
    layer.run(TOKENS[:40], 0)
    forget = layer.gates[:, :40, 2:].double().sum(0) + layer.shifts.double()
    rate = layer.rates.double().exp() * torch.nn.functional.softplus(forget)
    assert rate.max() < 1e-2
    torch.testing.assert_close(layer.state.log.decays[:40].double(), torch.exp(-rate), rtol=0, atol=3e-7)


@pytest.mark.parametrize("cuts", [(64,), (5, 1, 17, 17), (3, 16)], ids=str)
def test_cuts_change_no_bit(cuts: tuple[int, ...], alone: Tensor) -> None:
    assert torch.equal(RecurrentLayer(*SMALL).read(TOKENS, cuts), alone)


def test_parts_of_a_wide_state_change_no_bit() -> None:
    single = RecurrentLayer(*WIDE).read(TOKENS[:24], (1,))
    assert torch.equal(RecurrentLayer(*WIDE).read(TOKENS[:24], (24,)), single)


def test_a_row_does_not_depend_on_its_company(alone: Tensor) -> None:
    for rows in COUNTS[::3]:
        assert torch.equal(RecurrentLayer(*SMALL).run(TOKENS[:rows], 0), alone[:rows]), rows


def test_rejected_tokens_leave_nothing_behind(alone: Tensor) -> None:
    """In passes as wide as those of a prompt too, whose last rows are of no text."""
    layer, at = RecurrentLayer(*SMALL), 0
    for turn in range(60):
        accepted, drafted = 1 + turn % 6, (3 + turn % 7) if turn % 9 else PASS_ROWS - 6
        wrong = [(17 * turn + i) % LONG for i in range(drafted)]
        found = layer.run([*TOKENS[at : at + accepted], *wrong], at)[:accepted]
        assert torch.equal(found, alone[at : at + accepted]), turn
        at += accepted
        if at + 6 > LONG:
            break
    assert at > STATE_SLOTS + STATE_BACK


def test_a_text_is_rolled_back_bit_by_bit(alone: Tensor) -> None:
    layer = RecurrentLayer(*SMALL)
    layer.read(TOKENS[:70], (17, 5))
    at = 70
    for back in (1, 2, 16, 17, 33, STATE_BACK, 5):
        length = min(LONG - 3, at + back + 13)
        layer.read(TOKENS[at:length], (17, 1, 1, 1), at)
        at = length - back
        assert base(layer) <= at
        assert torch.equal(layer.run(TOKENS[at : at + 3], at), alone[at : at + 3]), back
        at += 3
    assert at > STATE_SLOTS


@pytest.mark.parametrize("cuts", [(29,), (64, 1)], ids=str)
def test_a_text_is_rolled_back_to_the_beginning_of_the_log(cuts: tuple[int, ...], alone: Tensor) -> None:
    """Whose convolution reads what lies before it."""
    layer, at = RecurrentLayer(*SMALL), 0
    for length in (90, 151, 187):
        layer.read(TOKENS[at:length], cuts, at)
        at = base(layer)
        assert 0 < at < length - STATE_BACK // 2
        assert torch.equal(layer.run(TOKENS[at : at + 3], at), alone[at : at + 3]), length
        at += 3


def test_a_text_begins_anew(alone: Tensor) -> None:
    layer = RecurrentLayer(*SMALL)
    layer.read(TOKENS[:90], (50,))
    assert torch.equal(layer.read(TOKENS[:20], (3, 9)), alone[:20])


@pytest.mark.parametrize("start", [0, 2, 131])
def test_a_row_of_a_tree_is_a_row_of_a_chain(start: int) -> None:
    """At once, and where the tree grows by a few nodes a pass; then the text goes on from one of its paths."""
    nodes, after, all_paths = [50 + 3 * i for i in range(len(TREE) + 1)], TOKENS[100:109], paths(TREE)
    text = RecurrentLayer(*SMALL)
    text.read(TOKENS[:start], (17, 5))

    def chained(tokens: list[int]) -> Tensor:
        return deepcopy(text).run(tokens, start)

    expected = torch.stack([chained([nodes[i] for i in path])[-1] for path in all_paths])
    path = all_paths[-1]
    whole = chained([*(nodes[i] for i in path), *after])[-len(after) :]
    for cuts in ([0, 13], [0, 1, 4, 7, 10, 13]):
        layer = deepcopy(text)
        found = [layer.run(nodes[a:b], start + a, start, masks_of(all_paths[a:b])) for a, b in pairwise(cuts)]
        assert torch.equal(torch.cat(found), expected), cuts
        state = VerifyState.create(30, 16, DEVICE)
        state.result[:3] = torch.tensor([len(path) - 1, 0, len(path)])
        state.kept[: len(path)] = torch.tensor(path)
        state.length.fill_(start + len(path))
        keep_entries(layer.log, state, None)
        assert torch.equal(layer.read(after, (4,), start + len(path)), whole), cuts


def test_a_tree_of_all_the_nodes_that_a_draft_model_runs_over(alone: Tensor) -> None:
    """Fifteen levels of four, after a text as long as the log holds."""
    start, layer, path = 127, RecurrentLayer(*SMALL), [0]
    layer.read(TOKENS[:start], (16,))
    layer.run([start], start)
    for level in range(15):
        nodes = [4 * level + 1 + i for i in range(4)]
        others = [(31 * node) % LONG for node in nodes]
        others[level % 4] = start + level + 1
        found = layer.run(others, start + nodes[0], start, masks_of([[*path, node] for node in nodes]))
        assert torch.equal(found[level % 4], alone[start + level + 1]), level
        path.append(nodes[level % 4])


def test_skip() -> None:
    layer = RecurrentLayer(*SHAPES[2])
    layer.run(TOKENS[:5], 0, skip=CLEAR)
    before = layer.log.clone(), layer.state.states.clone(), layer.state.positions.clone()
    assert layer.run(TOKENS[:3], 5, skip=SET).isnan().all()
    after = layer.log, layer.state.states, layer.state.positions
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(before, after, strict=True))


LIMITS = {
    "convolution": (100, 0),
    "states": (248, 1024),
    "norm of heads, and the log": (40, 64),
    "entries of a path": (32, 0),
    "convolution with a bias": (128, 0),
    "states of Mamba 2": (255, 1024),
    "norm of a group, and the log": (128, 64),
}
"""Registers, and bytes of shared memory."""


@compiled.NEWEST
def test_compiles(architectures: tuple[int, ...]) -> None:
    for report in compiled.reports("tests.kernels.cases_delta", architectures):
        compiled.check_limits(report, *LIMITS[report.name])
        assert report.stack == 0


@compiled.NEWEST
def test_a_row_changes_a_state_as_its_entry_does(architectures: tuple[int, ...]) -> None:
    """Both by a product and a fused product for each of a thread's 64 numbers, in the loop over rows.

    Beside them are the fused sums of `S^T k` and `S^T q`, each of 4 columns over 16 rows, whose first terms are
    products, and a product for each update.
    """
    found = [one for one in compiled.reports("tests.kernels.cases_delta", architectures) if one.name == "states"]
    assert len(found) == len(architectures)
    for report in found:
        assert report.operations["FFMA"] == 2 * 64 + 2 * 4 * 15, report
        assert report.operations["FMUL"] == 2 * 64 + 2 * 4 + 4, report


@compiled.NEWEST
def test_threads_agree_on_a_sum(architectures: tuple[int, ...]) -> None:
    """Of a column of which each has one number, or several."""
    for cases in ("tests.kernels.cases_delta", "tests.kernels.cases_delta:SMALL_STATES"):
        for report in compiled.reports(cases, architectures):
            assert report.exchanged == 0, report
