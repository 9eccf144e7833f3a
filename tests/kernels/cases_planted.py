"""Loops with a planted fault: they ask for too much."""

import triton
import triton.language as tl

from tests.kernels.compiled import Case


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
