"""The kernels of experts as a pass of Qwen3-30B-A3B launches them, for the compile-only suite."""

from dataclasses import replace
from typing import Any

from torch import bfloat16, empty, int32, uint8

from specchat.engine.formats.layout import Weight
from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.ahead import Ahead
from specchat.engine.kernels.gpu_shapes import AHEAD_PART, joined_scores
from specchat.engine.kernels.mix import MixtureOutput, _add_mixture, add_mixture
from specchat.engine.kernels.norm import NormOf, OtherNorm, ResidualUpdate
from specchat.engine.kernels.pairs import _sort_pairs, allocated
from specchat.engine.kernels.route import Rule, _route, route
from tests.kernels.cases_products import FLAG, dense, eight_bit, of_weights
from tests.kernels.compiled import Case, launched
from tests.kernels.storage import four_bit

COUNT, TOP, HIDDEN, WIDTH, ROWS = 128, 8, 2048, 768, 16
SOFTMAX = Rule(renormalised=True, sigmoid=False, groups=(1, 1), factor=1.0)
SIGMOIDS = Rule(renormalised=True, sigmoid=True, groups=(8, 5), factor=2.5, correction=empty(256))
SHARED = replace(SOFTMAX, shared="gated")


def routed(name: str, rows: int, count: int = COUNT, rule: Rule = SOFTMAX, kernel: Any = _route) -> Case:
    own = rule.shared is not None
    scores = empty(8, rows, joined_scores(count) if own else count)
    pairs = allocated(count + own, TOP + own, empty(0).device)
    return launched(name, kernel, lambda: route(scores, rule, pairs, rows, FLAG, FLAG))


def mixed(name: str, beside: bool = False, norms: bool = False, ahead: Ahead | None = None) -> Case:
    weight = empty(HIDDEN)
    norm = NormOf(weight, 1e-6) if norms else None
    more = (empty(2, ROWS, HIDDEN), empty(8, ROWS, 1)) if beside else (None, None)
    made = empty(2, ROWS * TOP, HIDDEN)
    of = MixtureOutput(made, allocated(COUNT, TOP, made.device), *more, FLAG, norm, norm)
    residual, out = empty(ROWS, HIDDEN), empty(ROWS, HIDDEN, dtype=bfloat16)
    update = ResidualUpdate(residual, norm, None, FLAG, *((empty(1), FLAG) if norms else (None, None)))
    rest = OtherNorm(weight, 1e-6, out), ROWS, ahead
    return launched(name, _add_mixture, lambda: add_mixture(update, of, *rest))


def product(name: str, weight: Weight, rows: int, gates: Activation | None = None) -> Case:
    """A product of experts; their inputs are gathered where the outputs are gates."""
    pairs, gathered = allocated(COUNT, TOP, FLAG.device), gates is not None
    outputs, inputs = weight.shape[0] // COUNT, weight.shape[1]
    x, act = (empty(rows * TOP, width, dtype=bfloat16) for width in (inputs, outputs // 2))
    out = act if gates else empty(expert_products.splits(weight, COUNT, TOP, x.device), rows * TOP, outputs)
    return of_weights(name, lambda: expert_products.multiply(x, weight, None, out, pairs, rows, gathered, FLAG, gates))


GATES, LAST = (COUNT * 2 * WIDTH, HIDDEN), (COUNT * HIDDEN, WIDTH)
ORDERS = empty(COUNT, HIDDEN, dtype=int32)
"""Inputs of each expert's gates in an order of their own."""
CASES = [
    *(routed(f"route of {rows} rows", rows) for rows in (1, 2, 4, 8, 16, 64)),
    *(routed(f"route of {rows} rows, {count} experts", rows, count) for rows, count in ((16, 256), (64, 256))),
    *(routed(f"route of {rows} rows, 512 experts", rows, 512, SHARED) for rows in (16, 64)),
    *(routed(f"sorting 64 rows, {count} experts", 64, count, SHARED, _sort_pairs) for count in (256, 512)),
    routed("route of 1 rows and a shared expert", 1, 256, rule=SHARED),
    routed("route of 16 rows and a shared expert", 16, 256, rule=SHARED),
    routed("route by sigmoids of groups, 16 rows", 16, 256, rule=SIGMOIDS),
    mixed("mix"),
    mixed("mix, weights ahead", ahead=Ahead(empty(4 * AHEAD_PART, dtype=uint8), 4)),
    mixed("mix with an MLP beside", beside=True),
    mixed("mix of norms", beside=True, norms=True),
    *(
        product(f"nf4 nested gates, {tile} rows", four_bit(*GATES, nested=True), rows, "silu")
        for tile, rows in ((8, 64), (16, 128))
    ),
    *(
        product(f"int4 gates in order, {tile} rows", replace(four_bit(*GATES, zeros=True), order=ORDERS), rows, "silu")
        for tile, rows in ((8, 64), (16, 128), (32, 256))
    ),
    product("mxfp4 gates, 8 rows", four_bit(COUNT * 5760, 2880, tabled=True, block=32), 8, "clamped_swiglu"),
    product("nf4 nested, 8 rows", four_bit(*LAST, nested=True), 8),
    product("int8 gates, 8 rows", eight_bit(*GATES), 8, "silu"),
    product("bf16 gates, 8 rows", dense(*GATES), 8, "silu"),
    product("bf16, 8 rows", dense(*LAST), 8),
]
