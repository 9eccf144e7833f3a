"""Programs with a planted fault: those that round otherwise than those beside them, and loops that ask for too much."""

from dataclasses import replace

import triton
import triton.language as tl

from tests.kernels.cases_attention import CASES
from tests.kernels.cases_products import case
from tests.kernels.compiled import Case

WIDE = case("bf16, 32 rows", 4096, 4096, 16, 4)
BY_BYTES = case("int8, 32 rows", 4096, 4096, 8, 4)

PRODUCTS = [
    replace(WIDE, name="bf16, 32 rows: shorter blocks", constants={**WIDE.constants, "BK": 32}),
    replace(BY_BYTES, name="int8, 32 rows: more warps", num_warps=8),
]
ATTENTION = [
    replace(case, name=f"{case.name}: not fused", options={"enable_fp_fusion": False})
    for case in CASES
    if case.name in ("tree, 128 a head", "combine a tree")
]


@triton.jit
def _sum_up(x, out, passes, FAULT: tl.constexpr):
    """Sum up blocks of 64 x 64 numbers; `FAULT` is what a pass does besides."""
    row, column = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    total = tl.zeros((64, 64), tl.float32)
    for i in range(passes):
        block = tl.load(x + i * 4096 + row * 64 + column)
        if FAULT == "a barrier":
            tl.debug_barrier()
        if FAULT == "shared memory":
            total = tl.trans(total)
        total += tl.exp(block) if FAULT == "instructions" else block
    tl.store(out + row * 64 + column, total)


LOOPS = [
    Case(
        name,
        _sum_up,
        {"x": "*fp32", "out": "*fp32", "passes": "i32", "FAULT": "constexpr"},
        {"FAULT": name},
        ("x", "out"),
        weights=4096,
        options={"maxnreg": 32} if name == "registers" else {},
    )
    for name in ("nothing", "a barrier", "shared memory", "instructions", "registers")
]
"""The first one has no fault."""
