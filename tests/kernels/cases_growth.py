"""The kernels of a growing tree as a draft pass launches them: 4 nodes a level, a vocabulary of 151,936 tokens."""

import triton

from specchat.engine.kernels import candidates, growth
from specchat.engine.kernels.verify_state import BLOCK
from tests.kernels.cases_verify import NODES, ROWS, VOCAB
from tests.kernels.compiled import Case

WIDTH, LEVELS = 4, 15
POOL = triton.next_power_of_2(WIDTH + WIDTH * WIDTH * (LEVELS - 1))


def _case(
    name: str, kernel: object, other: dict[str, str], integers: tuple[str, ...], constants: dict[str, int], warps: int
) -> Case:
    names = kernel.arg_names  # type: ignore[attr-defined]
    pointers = {n: other.get(n, "*i32") for n in names if n not in integers and n not in constants}
    types = pointers | dict.fromkeys(integers, "i32") | dict.fromkeys(constants, "constexpr")
    aligned = (*pointers, *(i for i in integers if i.startswith("stride")))
    return Case(name, kernel, {n: types[n] for n in names}, constants, aligned, num_warps=warps)


REALS = dict.fromkeys(("scores", "norm", "best", "total", "value", "probability", "reached", "least", "sure"), "*fp32")
LONG = {"seed": "*i64", "path": "*i64"}

CASES = [
    _case(
        "gather",
        candidates._gather,
        REALS | LONG,
        ("vocab", "stride_scores"),
        {"BLOCK": BLOCK, "WIDTH": WIDTH},
        candidates.WARPS,
    ),
    _case(
        "append",
        candidates._append,
        REALS,
        ("blocks", "stride_scores"),
        {"BLOCKS": triton.next_power_of_2(triton.cdiv(VOCAB, BLOCK)), "WIDTH": WIDTH},
        1,
    ),
    _case(
        "expand",
        growth._expand,
        REALS | LONG,
        (),
        {"ROWS": WIDTH, "WIDTH": WIDTH, "CANDIDATES": WIDTH * WIDTH},
        1,
    ),
    _case(
        "settle",
        growth._settle,
        REALS | LONG,
        (),
        {"NODES": ROWS + 1, "SLOTS": NODES, "POOL": POOL, "WIDTH": WIDTH},
        growth.WARPS,
    ),
]
