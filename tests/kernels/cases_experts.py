"""The kernels of experts as a pass of Qwen3-30B-A3B launches them, for the compile-only suite."""

from dataclasses import replace

import triton

from specchat.engine.kernels.gpu_shapes import expert_tiles, tiling
from specchat.engine.kernels.mix import _add_mixture, warps
from specchat.engine.kernels.route import _route
from specchat.engine.kernels.route import warps as route_warps
from tests.kernels.cases_products import case
from tests.kernels.compiled import Case

COUNT, TOP, HIDDEN, WIDTH = 128, 8, 2048, 768


def pointers(kinds: dict[str, str]) -> tuple[str, ...]:
    """Arguments that point to tensors."""
    return tuple(name for name, kind in kinds.items() if kind.startswith("*"))


def routed(
    name: str,
    rows: int,
    count: int = COUNT,
    top: int = TOP,
    sigmoid: bool = False,
    groups: int = 1,
    shared: str | None = None,
) -> Case:
    experts = triton.next_power_of_2(count)
    tile, _ = expert_tiles(rows, count, top)
    kinds = {"scores": "*fp32", "correction": "*fp32" if sigmoid else "constexpr", "factors": "constexpr"}
    integers = ("places", "of_row", "used", "experts", "begins", "ends")
    kinds |= {"last": "*i32", "skip": "*i32", "shares": "*fp32", **dict.fromkeys(integers, "*i32")}
    kinds |= {
        "rows": "i32",
        "count": "i32",
        "stride_split": "i32",
        "stride_row": "i32",
        "factor": "fp32" if sigmoid else "constexpr",
    }
    constants = {
        "SPLITS": 8, "TOP": top, "SHARED": shared, "SIGMOID": sigmoid, "RENORMALISED": True,
        "GROUPS": groups, "KEPT": 1 + groups // 2,
        "ROWS": rows, "EXPERTS": experts, "LEVELS": experts.bit_length() - 1, "TILE": tile,
        "MOST": max(1, rows // tile),
    }  # fmt: skip
    signature = kinds | dict.fromkeys(constants, "constexpr")
    missing = {n: None for n, kind in kinds.items() if kind == "constexpr"}
    aligned = (*pointers(kinds), "count", "stride_split", "stride_row")
    options = {"enable_fp_fusion": False}
    return Case(name, _route, signature, missing | constants, aligned, route_warps(rows, experts), options=options)


def mixed(name: str, beside: bool, norms: bool, ahead: bool = False) -> Case:
    kinds = {"residual": "*fp32", "made": "*fp32", "shares": "*fp32", "places": "*i32"}
    kinds |= dict.fromkeys(("beside", "gate"), "*fp32" if beside else "constexpr")
    kinds |= dict.fromkeys(("after_made", "after_beside", "after"), "*fp32" if norms else "constexpr")
    kinds |= {"weight": "*fp32", "out": "*bf16", "last": "*i32", "skip": "*i32"}
    kinds |= {"scalar": "*fp32", "earlier": "*i32"} if norms else {"scalar": "constexpr", "earlier": "constexpr"}
    kinds["ahead"] = "*u8" if ahead else "constexpr"
    kinds |= dict.fromkeys(("rows", "stride_split", "stride_beside", "stride_gate", "hidden"), "i32")
    kinds |= dict.fromkeys(("eps_made", "eps_beside", "after_eps"), "fp32" if norms else "constexpr")
    kinds |= {"eps": "fp32", "factor": "constexpr"}
    constants = {"TOP": TOP, "SPLITS": 2, "BESIDE": 2 * beside, "GATE": 8 * beside, "COLUMNS": HIDDEN}
    signature = kinds | dict.fromkeys(constants, "constexpr")
    missing = {n: None for n, kind in kinds.items() if kind == "constexpr"}
    aligned = (*pointers(kinds), "stride_split", "stride_beside", "hidden")
    return Case(name, _add_mixture, signature, missing | constants, aligned, warps(HIDDEN))


def product(
    name: str,
    outputs: int,
    inputs: int,
    bits: int,
    tiles: int,
    nested: bool = False,
    activation: str | None = None,
    block: int = 64,
) -> Case:
    """A product of experts; their inputs are gathered where the outputs are gates."""
    cut = tiling(outputs, inputs, bits, alike=TOP)
    made = case(name, outputs, inputs, bits, tiles, nested, block, activation, cut)
    kinds = dict.fromkeys(("used", "experts", "begins", "ends"), "*i32")
    kinds["source"] = "*i32" if activation else "constexpr"
    given = pointers(kinds)
    constants = {n: value for n, value in made.constants.items() if n not in given}
    return replace(made, signature={**made.signature, **kinds}, constants=constants, aligned=(*made.aligned, *given))


CASES = [
    *(routed(f"route of {rows} rows", rows) for rows in (1, 2, 4, 8, 16, 64)),
    routed("route of 16 rows, 256 experts", 16, 256),
    routed("route of 1 rows and a shared expert", 1, 256, shared="gated"),
    routed("route of 16 rows and a shared expert", 16, 256, shared="gated"),
    routed("route by sigmoids of groups, 16 rows", 16, 256, sigmoid=True, groups=8),
    mixed("mix", beside=False, norms=False),
    mixed("mix, weights ahead", beside=False, norms=False, ahead=True),
    mixed("mix with an MLP beside", beside=True, norms=False),
    mixed("mix of norms", beside=True, norms=True),
    *(product(f"nf4 nested gates, {8 * tiles} rows", 2 * WIDTH, HIDDEN, 4, tiles, nested=True, activation="silu")
      for tiles in (1, 2)),
    product("mxfp4 gates, 8 rows", 5760, 2880, 4, 1, nested=True, activation="clamped_swiglu", block=32),
    product("nf4 nested, 8 rows", HIDDEN, WIDTH, 4, 1, nested=True),
    product("int8 gates, 8 rows", 2 * WIDTH, HIDDEN, 8, 1, activation="silu"),
    product("bf16 gates, 8 rows", 2 * WIDTH, HIDDEN, 16, 1, activation="silu"),
    product("bf16, 8 rows", HIDDEN, WIDTH, 16, 1),
]  # fmt: skip
