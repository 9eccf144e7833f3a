"""The products as a step of Qwen3-8B launches them, for the compile-only suite."""

from collections.abc import Callable
from dataclasses import replace

from torch import bfloat16, empty, int8, int32

from specchat.engine.formats.layout import EightBit, Weight
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.gpu_shapes import PROCESSORS
from specchat.engine.kernels.processors import as_with
from specchat.engine.kernels.products import _multiply, multiply, splits
from tests.kernels.compiled import Case, launched
from tests.kernels.storage import four_bit

FLAG = empty(1, dtype=int32)
PROGRAM = (_multiply.arg_names.index("program"),)


def eight_bit(outputs: int, inputs: int) -> EightBit:
    return EightBit(empty(outputs, inputs, dtype=int8), empty(outputs))


def dense(outputs: int, inputs: int) -> Weight:
    return empty(outputs, inputs, dtype=bfloat16)


def of_weights(name: str, launch: Callable[[], None]) -> Case:
    """The product that `launch` launches; a pass of its loop takes a block of the weight."""
    case = launched(name, _multiply, launch)
    program = case.constants[PROGRAM]
    return replace(case, weights=program.outputs * program.inputs)


def product(name: str, weight: Weight, rows: int, activation: Activation | None = None, wide: bool = False) -> Case:
    """A product of so many rows; `wide`: on so few multiprocessors that its programs are widened."""
    outputs, inputs = weight.shape
    # One row takes the program of 8, and never a wide one.
    count = 1 if rows == 8 and not wide else rows
    x, gates = empty(count, inputs, dtype=bfloat16), empty(count, outputs // 2, dtype=bfloat16)
    with as_with(1 if wide else PROCESSORS):
        out = gates if activation else empty(splits(weight), count, outputs)
        return of_weights(name, lambda: multiply(x, weight, None, out, count, FLAG, activation))


CASES = [
    *(product(f"nf4 nested, {rows} rows", four_bit(6144, 4096, nested=True), rows) for rows in (8, 16, 32, 64)),
    *(
        product(f"{name}, 8 rows in wide programs", weight, 8, activation, wide=True)
        for name, weight, activation in (
            ("nf4 nested", four_bit(6144, 4096, nested=True), None),
            ("nf4 nested with silu", four_bit(28672, 4096, nested=True), "silu"),
            ("nf4", four_bit(4096, 12288), None),
            ("nf4, block 32", four_bit(4096, 4096, block=32), None),
        )
    ),
    *(product(f"int4 with zeros, {rows} rows", four_bit(4096, 12288, zeros=True), rows) for rows in (8, 64)),
    product("int4 in order, 8 rows", four_bit(4096, 12288, order=True), 8),
    product("nf4, 8 rows", four_bit(4096, 12288), 8),
    product("nf4, block 32, 8 rows", four_bit(4096, 4096, block=32), 8),
    *(product(f"nvfp4, {rows} rows", four_bit(6144, 4096, tabled=True, block=16), rows) for rows in (8, 64)),
    product("nf4 nested of 896 inputs, 8 rows", four_bit(4864, 896, nested=True), 8),
    *(
        product(f"nf4 nested with silu, {rows} rows", four_bit(28672, 4096, nested=True), rows, "silu")
        for rows in (8, 16, 64)
    ),
    product("int8 with silu, 8 rows", eight_bit(16384, 2048), 8, "silu"),
    *(product(f"int8, {rows} rows", eight_bit(4096, 4096), rows) for rows in (8, 16, 32, 64)),
    product("bf16 head, 8 rows", dense(151936, 4096), 8),
    *(product(f"bf16, {rows} rows", dense(4096, 4096), rows) for rows in (16, 32, 64)),
]
ALIKE = (
    *(f"{name} 16 rows" for name in ("nf4 nested with silu,", "int8,", "bf16,")),
    *(f"{name}, 64 rows" for name in ("nf4 nested with silu", "int4 with zeros", "int8")),
    *(f"{name}, 8 rows" for name in ("nf4", "nf4 nested of 896 inputs", "int8 with silu")),
    *(f"{name}, 8 rows in wide programs" for name in ("nf4", "nf4, block 32")),
    "nf4 nested, 32 rows",
)

_BY_NAME = {case.name: case for case in CASES}
_WIDE = _BY_NAME["bf16, 32 rows"]
PLANTED = [
    replace(
        _WIDE,
        name=f"{_WIDE.name}: shorter blocks",
        constants={**_WIDE.constants, PROGRAM: _WIDE.constants[PROGRAM]._replace(inputs=32)},
    ),
    replace(_BY_NAME["int8, 32 rows"], name="int8, 32 rows: more warps", num_warps=8),
]
"""Programs that multiply otherwise than those beside them."""
