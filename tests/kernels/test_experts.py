"""Mixtures of experts: choice, pairs and tiles, products by expert, and their sum, each against float64 and alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
from torch import Tensor

from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Blocks, EightBit, FourBit, Joined, Nested, Weight
from specchat.engine.formats.quantise import by_experts, code_table, dequantised
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.references import (
    reference_add_rms_norm,
    reference_gate_mul,
    reference_norm,
    reference_route,
)
from specchat.engine.kernels import expert_products, gpu_shapes
from specchat.engine.kernels import route as choice
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, PROMPT_ROWS, expert_tiles, most_tiles
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.norm import NormOf, OtherNorm, ResidualUpdate
from specchat.engine.kernels.pairs import Pairs, allocated
from specchat.engine.kernels.route import Rule, route
from specchat.engine.kernels.stored import parts_of
from tests.kernels import compiled
from tests.kernels.test_rowwise import CLEAR, DEVICE, DTYPES, ON_DEVICE, SET, random

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
COUNTS = (1, 2, 3, 8, 16, 17, 33, 64)
SOFTMAX = Rule(True, False, (1, 1), 1.0)
RULES = {
    "softmax": (128, 8, SOFTMAX),
    "shares of all": (60, 4, Rule(False, False, (1, 1), 1.0)),
    "factors": (5, 2, Rule(True, False, (1, 1), 1.0, factors=random(5))),
    "sigmoids of groups": (24, 3, Rule(True, True, (6, 2), 1.5, correction=random(24))),
    "a corrected softmax": (16, 4, Rule(True, False, (1, 1), 1.0, correction=0.1 * random(16))),
    "groups of a softmax": (16, 4, Rule(False, False, (4, 3), 1.0)),
    "groups by their best": (24, 3, Rule(False, False, (6, 2), 1.5, by_best=True)),
    "one of two": (2, 1, SOFTMAX),
    "beside a gated one": (24, 4, replace(SOFTMAX, shared="gated")),
    "beside a whole one": (6, 3, replace(SOFTMAX, shared="whole", factor=2.0)),
    "all": (3, 3, SOFTMAX),
}


def routed(
    scores: Tensor, rule: Rule, rows: int, top: int, skip: Tensor | None = None, last: Tensor | None = None
) -> Pairs:
    """The pairs of the first rows of scores [splits, rows, count]; what is not written stays 77."""
    out = allocated(scores.shape[-1] + (rule.shared == "whole"), top, DEVICE)
    out.chosen.fill_(1)
    for tensor in (out.shares, out.places, out.rows, out.used, out.experts, out.begins, out.ends):
        tensor.fill_(77)
    route(scores, rule, out, rows, skip, last)
    return out


def chosen(pairs: Pairs, rows: int) -> tuple[Tensor, Tensor]:
    """Shares and experts of each row, by the tiles that its pairs are in: [rows, top] each."""
    many, used = rows * pairs.top, int(pairs.used)
    expert = torch.full((many,), -1)
    for tile in range(used):
        first, end = int(pairs.begins[tile]), int(pairs.ends[tile])
        assert (expert[first:end] == -1).all(), "a pair is in two tiles"
        expert[first:end] = int(pairs.experts[tile])
    places = pairs.places[:many].cpu().long()
    assert (places < many).all()
    return pairs.shares[:many].view(rows, -1).cpu(), expert[places].view(rows, -1)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 64, 150])
def test_the_choice_is_the_references(name: str, rows: int) -> None:
    count, top, rule = RULES[name]
    scores = 2 * random(3, max(64, rows), count, seed=rows)
    found = routed(scores, rule, rows, top)
    shares, experts = chosen(found, rows)
    expected, theirs = reference_route(scores.sum(0)[:rows].double(), rule, top)
    assert torch.equal(experts, theirs.cpu())
    torch.testing.assert_close(shares.double(), expected.cpu().double(), rtol=1e-5, atol=1e-7)
    for one in (found.shares, found.places, found.rows):
        assert (one[rows * top :] == 77).all(), "a row beyond the count was written"
    for one in (found.experts, found.begins, found.ends):
        assert (one[int(found.used) :] == 77).all(), "a tile that nothing uses was written"


@pytest.mark.parametrize("rows", [*COUNTS, 150])
@pytest.mark.parametrize("name", ["softmax", "beside a gated one"])
def test_pairs_are_sorted_by_expert_then_row_and_tiles_hold_them_all(name: str, rows: int) -> None:
    count, top, rule = RULES[name]
    pairs = routed(random(1, max(64, rows), count, seed=3), rule, rows, top)
    many, used, (tile, most) = rows * top, int(pairs.used), expert_tiles(rows, count, top)
    assert used <= most <= most_tiles(count, top) <= len(pairs.experts)
    begins, ends, experts = (one[:used].tolist() for one in (pairs.begins, pairs.ends, pairs.experts))
    assert begins == [0, *ends[:-1]]
    assert ends[-1] == many
    assert all(0 < end - begin <= tile for begin, end in zip(begins, ends, strict=True))
    of_pair = [expert for expert, begin, end in zip(experts, begins, ends, strict=True) for _ in range(begin, end)]
    order = list(zip(of_pair, pairs.rows[:many].tolist(), strict=True))
    assert order == sorted(set(order))
    of_row = pairs.rows[pairs.places[:many].long()].view(rows, top)
    assert (of_row == torch.arange(rows, device=DEVICE)[:, None]).all()
    assert (pairs.experts[used:] == 77).all()


@pytest.mark.parametrize("name", RULES)
def test_shares_are_those_of_the_row_alone(name: str) -> None:
    count, top, rule = RULES[name]
    scores = random(2, 64, count, seed=9)
    alone = [chosen(routed(scores[:, r:].contiguous(), rule, 1, top), 1) for r in range(64)]
    for rows in COUNTS:
        shares, experts = chosen(routed(scores, rule, rows, top), rows)
        assert torch.equal(shares, torch.cat([one for one, _ in alone[:rows]])), rows
        assert torch.equal(experts, torch.cat([one for _, one in alone[:rows]])), rows


@pytest.mark.parametrize("name", ["softmax", "sigmoids of groups", "beside a gated one"])
@pytest.mark.parametrize("rows", [5, 64])
def test_several_programs_choose_as_one_does(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs, tiles and the bits of shares, where a program has room for the scores of two rows."""
    count, top, rule = RULES[name]
    scores, last = random(2, 64, count, seed=9), torch.tensor([rows - 2], dtype=torch.int32, device=DEVICE)
    found = list[list[Tensor]]()
    for room in (64 * 128, 2 * triton.next_power_of_2(count)):
        monkeypatch.setattr(choice, "SCORES", room)
        pairs = routed(scores, rule, rows, top, last=last)
        found.append([pairs.shares, pairs.places, pairs.rows, pairs.used, pairs.experts, pairs.begins, pairs.ends])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_of_512_experts_the_choice_of_a_row_is_that_of_the_row_alone() -> None:
    count, top, rule = 512, 10, replace(SOFTMAX, shared="gated")
    scores = random(1, 64, count + 1, seed=9)
    shares, experts = chosen(routed(scores, rule, 64, top + 1), 64)
    expected, theirs = reference_route(scores[0].double(), rule, top + 1)
    assert torch.equal(experts, theirs.cpu())
    torch.testing.assert_close(shares.double(), expected.cpu().double(), rtol=1e-5, atol=1e-7)
    for row in (0, 7, 8, 63):
        alone = chosen(routed(scores[:, row:].contiguous(), rule, 1, top + 1), 1)
        assert torch.equal(shares[row], alone[0][0])
        assert torch.equal(experts[row], alone[1][0])


def test_of_equal_scores_the_lower_expert_comes_first_and_none_is_chosen_twice() -> None:
    """Also where scores are no numbers, which count as the least, or infinite."""
    nan, inf = torch.nan, torch.inf
    scores = torch.tensor(
        [[1.0, 2, 2, 0, 2], [0, 0, 0, 0, 0], [nan, 1, nan, nan, nan], [nan] * 5, [-inf, 1, -inf, -inf, -inf], [inf] * 5]
    )
    pairs = routed(scores.to(DEVICE)[None], SOFTMAX, 6, 3)
    _, experts = chosen(pairs, 6)
    assert experts.tolist() == [[1, 2, 4], [0, 1, 2], [1, 0, 2], [0, 1, 2], [1, 0, 2], [0, 1, 2]]
    assert sorted(pairs.places[:18].tolist()) == list(range(18))


def test_a_skipped_choice_leaves_everything_as_it_was() -> None:
    count, top, rule = RULES["softmax"]
    pairs = routed(random(1, 64, count), rule, 4, top, SET)
    assert (pairs.used == 77).all()
    assert (pairs.shares == 77).all()
    assert int(routed(random(1, 64, count), rule, 4, top, CLEAR).used) <= 32


@pytest.mark.parametrize("last", [0, 3, 7, 20])
def test_rows_after_the_last_that_counts_have_no_experts(last: int) -> None:
    """The others have what they have without them, and of the rest nothing is added."""
    count, top, rule = RULES["softmax"]
    scores, rows, counted = random(1, 64, count, seed=3), 8, min(last + 1, 8)
    of_all, residual = routed(scores, rule, counted, top), torch.full((64, 70), 7.0, device=DEVICE)
    end = torch.tensor([last], dtype=torch.int32, device=DEVICE)
    pairs = routed(scores, rule, rows, top, last=end)
    assert int(pairs.used) == int(of_all.used)
    for mine, theirs in zip(chosen(pairs, counted), chosen(of_all, counted), strict=True):
        assert torch.equal(mine, theirs)
    assert (pairs.places[counted * top :] == 77).all()
    added(residual, MixtureOutput(random(1, 64 * top, 70), pairs, last=end), rows)
    assert (residual[:counted] != 7).all()
    assert (residual[counted:] == 7).all()


def test_most_tiles_is_enough_for_any_number_of_rows() -> None:
    for count in (1, 2, 4, 5, 8, 32, 60, 128, 256):
        for top in {1, min(2, count), min(8, count), count}:
            assert max(expert_tiles(rows, count, top)[1] for rows in range(1, PROMPT_ROWS + 1)) <= most_tiles(
                count, top
            )


# Products


def dense(count: int, outputs: int, inputs: int, dtype: torch.dtype) -> Weight:
    return (random(count * outputs, inputs, seed=4) / inputs**0.5).to(dtype)


def eight(count: int, outputs: int, inputs: int, dtype: torch.dtype) -> Weight:
    del dtype
    values = torch.randint(-127, 128, (count * outputs, inputs), generator=torch.Generator().manual_seed(2))
    return EightBit(values.to(DEVICE, torch.int8), (0.5 + random(count * outputs).abs()) / 127 / inputs**0.5)


def four(nested: bool, block: int, count: int, outputs: int, inputs: int) -> Weight:
    drawn, rows = torch.Generator().manual_seed(3), count * outputs
    packed = torch.randint(0, 256, (rows, inputs // 2), generator=drawn, dtype=torch.uint8).to(DEVICE)
    code, scale = code_table("nf4").to(DEVICE), (0.5 + random(rows).abs()) / inputs**0.5
    if not nested:
        return FourBit(packed, scale[:, None] * (1 + random(rows, inputs // block).abs()), code, block)
    scales = torch.randint(0, 256, (rows, inputs // block), generator=drawn, dtype=torch.uint8).to(DEVICE)
    absmax = (0.5 + random(-(-scales.numel() // 256), seed=8).abs()) / inputs**0.5
    return FourBit(packed, scales, code, block, Nested(torch.linspace(-1, 1, 256, device=DEVICE), absmax, 2 * scale))


def shifted(count: int, outputs: int, inputs: int) -> Weight:
    """Whole numbers with zero points."""
    weight, drawn = four(False, 64, count, outputs, inputs), torch.Generator().manual_seed(5)
    assert isinstance(weight, FourBit)
    zeros = torch.randint(-8, 9, weight.scales.shape, generator=drawn, dtype=torch.int8).to(DEVICE)
    return replace(weight, scales=weight.scales / 8, code=code_table("int4").to(DEVICE), zeros=zeros)


def blocks(kind: str, count: int, outputs: int, inputs: int) -> Weight:
    return in_words(place.blocks_of(kind, count * outputs, inputs))


FORMATS = {
    "nf4 nested": lambda count, outputs, inputs, _: four(True, 64, count, outputs, inputs),
    "nf4, blocks of 32": lambda count, outputs, inputs, _: four(False, 32, count, outputs, inputs),
    "int4 with zeros": lambda count, outputs, inputs, _: shifted(count, outputs, inputs),
    "int8": eight,
    "dense": dense,
    "Q4_1": lambda count, outputs, inputs, _: blocks("Q4_1", count, outputs, inputs),
    "Q5_K": lambda count, outputs, inputs, _: blocks("Q5_K", count, outputs, inputs),
}
SHAPES = [(64, 256), (96, 192), (130, 320)]
"""Outputs and inputs of an expert: whole blocks, outputs that are none, neither. Nested scales fill blocks of 256."""


def pairs_of(rows: int, count: int, top: int) -> Pairs:
    return routed(random(1, 64, count, seed=7), SOFTMAX, rows, top)


def product(
    x: Tensor,
    weight: Weight,
    pairs: Pairs,
    rows: int,
    gathered: bool,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    skip: Tensor | None = None,
) -> Tensor:
    """The results of each pair, in the order of rows and their choice: [splits, rows, top, outputs]."""
    outputs, many = weight.shape[0] // pairs.count, max(rows, PASS_ROWS) * pairs.top
    parts = expert_products.splits(weight, pairs.count, pairs.top, x.device)
    shape = (parts, many, outputs) if activation is None else (1, many, outputs // 2)
    out = torch.full(shape, 7.0, device=DEVICE, dtype=torch.float32 if activation is None else x.dtype)
    to = out if activation is None else out[0]
    expert_products.multiply(x, weight, bias, to, pairs, rows, gathered, skip, activation)
    assert (out[:, rows * pairs.top :] == 7).all(), "a pair beyond the count was written"
    return out[:, pairs.places[: rows * pairs.top].long()].unflatten(1, (rows, pairs.top))


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_is_the_product_with_the_weights_of_the_pairs_expert(
    name: str, dtype: torch.dtype, outputs: int, inputs: int
) -> None:
    count, top, rows = 5, 2, 5
    if name == "nf4 nested" and outputs * inputs // 64 % 256:
        outputs, inputs = 256, 256
    if name in TYPES and inputs % TYPES[name].size:
        inputs = TYPES[name].size
    weight, pairs = FORMATS[name](count, outputs, inputs, dtype), pairs_of(rows, count, top)
    bias = random(count * outputs, seed=5)
    # A 4-bit weight is rounded before the product, an 8-bit one gets its scale after it.
    truth = dequantised(weight, torch.float32 if name == "int8" else dtype).double().view(count, outputs, inputs)
    _, experts = chosen(pairs, rows)
    x = random(PASS_ROWS, inputs, seed=1).to(dtype)
    own = truth[experts.to(DEVICE)]
    expected = torch.einsum("ri,rkoi->rko", x[:rows].double(), own) + bias.double().view(count, -1)[experts.to(DEVICE)]
    made = product(x, weight, pairs, rows, True, bias)
    torch.testing.assert_close(made.sum(0).double(), expected, rtol=1e-5, atol=1e-5)
    by_pair = random(PASS_ROWS * top, inputs, seed=2).to(dtype)
    sorted_x = by_pair[pairs.places[: rows * top].long()].view(rows, top, inputs)
    made = product(by_pair, weight, pairs, rows, False)
    torch.testing.assert_close(
        made.sum(0).double(), torch.einsum("rki,rkoi->rko", sorted_x.double(), own), rtol=1e-5, atol=1e-5
    )
    made = product(x, weight, pairs, rows, True, bias, "silu")
    loose = {torch.float32: 1e-4}.get(dtype, 1e-2)
    torch.testing.assert_close(made[0].double(), reference_gate_mul(expected[None], "silu"), rtol=loose, atol=1e-3)


def unlike(count: int, dtype: torch.dtype, *outputs: int, inputs: int = 256) -> tuple[Weight, Tensor]:
    """Experts whose parts are Q4_K, dense and Q6_K, and the matrices float64 [count, sum(outputs), inputs] they are."""
    made = [
        (place.blocks_of("Q4_K", outputs[0], inputs), dense(number + 1, outputs[1], inputs, dtype)[-outputs[1] :],
         place.blocks_of("Q6_K", outputs[2], inputs))
        for number in range(count)
    ]  # fmt: skip
    truth = torch.stack([torch.cat([dequantised(part, dtype).double() for part in parts]) for parts in made])
    found = by_experts(Joined(tuple(part for parts in made for part in parts)), count)
    return Joined(tuple(in_words(one) if isinstance(one, Blocks) else one for one in parts_of(found))), truth


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_experts_of_unlike_parts_have_a_launch_each(dtype: torch.dtype) -> None:
    count, top, rows, outputs = 5, 2, 5, 64 + 30 + 66
    weight, truth = unlike(count, dtype, 64, 30, 66)
    assert not expert_products.activates(weight, count, top, torch.device(DEVICE))
    pairs, bias, x = pairs_of(rows, count, top), random(count * outputs, seed=5), random(64, 256, seed=1).to(dtype)
    _, experts = chosen(pairs, rows)
    own = truth[experts.to(DEVICE)], bias.double().view(count, -1)[experts.to(DEVICE)]
    made = product(x, weight, pairs, rows, True, bias)
    expected = torch.einsum("ri,rkoi->rko", x[:rows].double(), own[0]) + own[1]
    torch.testing.assert_close(made.sum(0).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", [name for name in FORMATS if "zeros" not in name])
@pytest.mark.parametrize(
    ("count", "top"),
    [(16, 4), pytest.param(4, 2, marks=pytest.mark.slow)],
    ids=["few rows an expert", "tiles of 32 rows"],
)
def test_a_pair_is_what_it_is_alone(name: str, count: int, top: int) -> None:
    """Whatever other rows have its expert, and however large tiles are."""
    dtype, outputs, inputs = DTYPES[-1], 128, 256
    weight, x = FORMATS[name](count, outputs, inputs, dtype), random(64, inputs, seed=3).to(dtype)
    scores = random(1, 64, count, seed=7)

    def run(first: int, rows: int, activation: Activation | None) -> Tensor:
        pairs = routed(scores[:, first:].contiguous(), SOFTMAX, rows, top)
        return product(x[first:].contiguous(), weight, pairs, rows, True, activation=activation)

    own = (0, 1, 7, 16, 63)
    for activation in (None, "silu"):
        alone = torch.cat([run(r, 1, activation) for r in own], 1)
        for rows in (2, 8, 17, 64):
            among = [place for place, row in enumerate(own) if row < rows]
            assert torch.equal(run(0, rows, activation)[:, [own[place] for place in among]], alone[:, among]), rows


@pytest.mark.parametrize("name", [pytest.param(name, marks=ON_DEVICE) for name in FORMATS])
@pytest.mark.parametrize("gates", [True, False])
def test_qwen3_30b_on_the_device(name: str, gates: bool) -> None:
    """The choice, and either product, of 128 experts for 64 rows."""
    count, top, (outputs, inputs) = 128, 8, (1536, 2048) if gates else (2048, 768)
    scores = random(1, 64, count, seed=7)
    for dtype in DTYPES[1:]:
        weight, x = FORMATS[name](count, outputs, inputs, dtype), random(64, inputs, seed=3).to(dtype)
        truth = dequantised(weight, torch.float32 if name == "int8" else dtype).view(count, outputs, inputs)

        def run(first: int, rows: int, weight: Weight = weight, x: Tensor = x) -> Tensor:
            pairs = routed(scores[:, first:].contiguous(), SOFTMAX, rows, top)
            return product(x[first:].contiguous(), weight, pairs, rows, True).sum(0)

        alone = torch.cat([run(r, 1) for r in range(64)])
        for rows in COUNTS:
            assert torch.equal(run(0, rows), alone[:rows]), rows
        _, experts = chosen(routed(scores, SOFTMAX, 64, top), 64)
        for row in (0, 63):
            own = truth[experts[row].to(DEVICE)].double()
            torch.testing.assert_close(alone[row].double(), own @ x[row].double(), rtol=1e-4, atol=1e-4)


def test_a_skipped_product_leaves_everything_as_it_was() -> None:
    weight = dense(5, 64, 64, torch.float32)
    assert (product(random(64, 64), weight, pairs_of(3, 5, 2), 3, True, skip=SET) == 7).all()


def test_experts_of_a_row_fill_a_gpu_together() -> None:
    """Those of Qwen3-30B-A3B: eight matrices of 24 programs each, so more splits would bring nothing."""
    assert gpu_shapes.tiling(1536, 2048, 4, 128).splits == 8
    assert gpu_shapes.tiling(1536, 2048, 4, 128, alike=8).splits == 2
    assert gpu_shapes.activates(1536, 2048, 4, 128, alike=8)
    assert not gpu_shapes.activates(1536, 2048, 4, 128)


# The sum


def added(
    residual: Tensor,
    mixture: MixtureOutput,
    rows: int,
    *rest: Any,
    weight: Tensor | None = None,
) -> Tensor:
    """What `add_mixture` writes beside the residual stream, which it changes."""
    out = torch.full_like(residual, 7.0)
    add_mixture(ResidualUpdate(residual, *rest), mixture, OtherNorm(weight, 1e-6, out), rows)
    return out


def mixture_of(mixture: MixtureOutput, rows: int) -> Tensor:
    """What `add_mixture` adds without `after` and factor: [rows, H]."""
    top, made = mixture.pairs.top, mixture.made
    shares, places = (of[: rows * top].view(rows, top) for of in (mixture.pairs.shares, mixture.pairs.places))
    total = (shares.to(made)[..., None] * made.sum(0)[places.long()]).sum(1)
    total = _normed(total, mixture.after)
    if mixture.beside is None:
        return total
    one = mixture.beside.to(made).sum(0)[:rows]
    if mixture.gate is not None:
        one = torch.sigmoid(mixture.gate.to(made).sum(0)[:rows]) * one
    return total + _normed(one, mixture.after_beside)


def _normed(x: Tensor, norm: tuple[Tensor, float] | None) -> Tensor:
    return x if norm is None else reference_norm(x, norm[0].to(x), norm[1])


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("hidden", [70, 1100])
def test_what_is_added_is_the_references(hidden: int, norms: bool, beside: bool) -> None:
    rows, count, top = 5, 16, 4
    pairs, start = pairs_of(rows, count, top), random(64, hidden, seed=5)
    made, shared, gate = random(2, 64 * top, hidden), random(3, 64, hidden, seed=1), random(2, 64, 1, seed=2)
    first, second, both, last = ((random(hidden, seed=seed), 10.0**-seed) for seed in (3, 4, 5, 6))
    others = (shared, gate) if beside else (None, None)
    mixture = MixtureOutput(made, pairs, *others, None, *((first, second) if norms else ()))
    scalar = torch.tensor([0.7], device=DEVICE)
    whole = (NormOf(*both), 0.22, CLEAR, scalar, CLEAR) if norms else (None, None, CLEAR)
    residual = start.clone()
    out = added(residual, mixture, rows, *whole, weight=last[0])
    doubled = replace(
        mixture, made=made.double(), **({"after": _double(first), "after_beside": _double(second)} if norms else {})
    )
    of_all = mixture_of(doubled, rows)[None]
    rest = (_double(both), 0.22, scalar) if norms else ()
    truth, normed = reference_add_rms_norm(start[:rows].double(), of_all, last[0].double(), 1e-6, *rest)
    torch.testing.assert_close(residual[:rows].double(), truth, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(out[:rows].double(), normed, rtol=2e-5, atol=2e-5)
    assert torch.equal(residual[rows:], start[rows:])
    assert (out[rows:] == 7).all()


def _double(norm: tuple[Tensor, float]) -> tuple[Tensor, float]:
    return norm[0].double(), norm[1]


def test_of_a_skipped_mixture_nothing_is_added() -> None:
    """The norm is that of the residual stream; a factor at the end is left out with the layer's other half."""
    pairs, start, weight = pairs_of(2, 16, 4), random(64, 70, seed=5), random(70, seed=6)
    mixture, scalar = MixtureOutput(torch.full((1, 256, 70), torch.nan, device=DEVICE), pairs), 2 * torch.ones(1)
    for rest, factor in (((), 1), ((scalar.to(DEVICE), CLEAR), 2), ((scalar.to(DEVICE), SET), 1)):
        residual = start.clone()
        out = added(residual, mixture, 2, None, None, SET, *rest, weight=weight)
        assert torch.equal(residual[:2], factor * start[:2])
        torch.testing.assert_close(out[:2], reference_norm(residual[:2], weight, 1e-6))


def test_an_mlp_beside_without_a_share() -> None:
    pairs, residual = pairs_of(2, 16, 4), torch.zeros(64, 70, device=DEVICE)
    made, shared = random(1, 256, 70), random(1, 64, 70, seed=1)
    without = added(residual.clone(), MixtureOutput(made, pairs), 2)[:2]
    torch.testing.assert_close(added(residual, MixtureOutput(made, pairs, shared), 2)[:2], without + shared[0, :2])


def test_sums_are_those_of_the_row_alone() -> None:
    hidden, count, top = 600, 16, 4
    scores, made, weight = random(1, 64, count, seed=7), random(64, count, hidden), random(hidden, seed=8)

    def run(first: int, rows: int) -> Tensor:
        """Of experts whose results depend on row and expert alone."""
        pairs = routed(scores[:, first:].contiguous(), SOFTMAX, rows, top)
        _, experts = chosen(pairs, rows)
        of_pairs = torch.zeros(1, 64 * top, hidden, device=DEVICE)
        row = torch.arange(first, first + rows)[:, None].expand(rows, top)
        of_pairs[0, pairs.places[: rows * top].long()] = made[row, experts].flatten(0, 1)
        return added(torch.zeros(64, hidden, device=DEVICE), MixtureOutput(of_pairs, pairs), rows, weight=weight)[:rows]

    alone = torch.cat([run(r, 1) for r in range(64)])
    for rows in COUNTS:
        assert torch.equal(run(0, rows), alone[:rows]), rows


CASES = "tests.kernels.cases_experts"


@pytest.mark.slow
@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    """Products of experts are as those of any matrix: their loops have the same ceilings, and nothing that waits."""
    products = {
        "nf4 nested gates, 8 rows": (128, 29_184, 4.5, 396, 4),
        "nf4 nested gates, 16 rows": (168, 37_376, 5.0, 556, 4),
        "int4 gates in order, 8 rows": (168, 20_992, 5.3, 396, 6),
        "int4 gates in order, 16 rows": (221, 20_992, 6.7, 556, 10),
        "int4 gates in order, 32 rows": (255, 11_520, 9.5, 876, 18),
        "mxfp4 gates, 8 rows": (80, 8_704, 8.0, 104, 4),
        "nf4 nested, 8 rows": (122, 29_184, 4.5, 396, 4),
        "int8 gates, 8 rows": (56, 20_480, 3.8, 208, 2),
        "bf16 gates, 8 rows": (48, 18_432, 2.2, 168, 2),
        "bf16, 8 rows": (48, 18_432, 2.2, 168, 2),
    }
    others = {
        "route of 1 rows": (72, 1024, 0),
        "route of 2 rows": (104, 2048, 0),
        "route of 4 rows": (120, 4096, 0),
        "route of 8 rows": (120, 8192, 0),
        "route of 16 rows": (104, 16_384, 0),
        "route of 64 rows": (80, 32_768, 0),
        "route of 16 rows, 256 experts": (128, 32_768, 0),
        "route of 64 rows, 256 experts": (80, 32_768, 0),
        "route of 16 rows, 512 experts": (80, 32_768, 0),
        "route of 64 rows, 512 experts": (80, 32_768, 0),
        "sorting 64 rows, 256 experts": (128, 16_384, 0),
        "sorting 64 rows, 512 experts": (128, 2048, 0),
        "route of 1 rows and a shared expert": (120, 2048, 0),
        "route of 16 rows and a shared expert": (128, 32_768, 0),
        "route by sigmoids of groups, 16 rows": (128, 32_768, 0),
        "mix": (88, 8192, 0),
        "mix, weights ahead": (88, 8192, 0),
        "mix with an MLP beside": (88, 8192, 0),
        "mix of norms": (88, 8192, 0),
    }
    found = compiled.reports(CASES, architectures)
    assert {one.name for one in found} == {*products, *others}
    for report in found:
        if report.name in products:
            registers, shared, *of_the_loop = products[report.name]
            compiled.check_limits(report, registers, shared, 80 * report.name.endswith("32 rows"))
            compiled.check_loop(report, *of_the_loop)
            # Inputs in an order are loaded by what is loaded before them.
            assert report.loads == 0 or "in order" in report.name, f"{report.name}: something is not copied ahead"
            assert report.tensor_cores == compiled.BFLOAT16_MMA, report
        else:
            compiled.check_limits(report, *others[report.name])
