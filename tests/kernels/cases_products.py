"""The products as a step of Qwen3-8B launches them, for the compile-only suite."""

import triton
import triton.language as tl

from specchat.engine.kernels.gpu_shapes import TILE_ROWS, Tiling, stages, tiling
from specchat.engine.kernels.products import _multiply
from tests.kernels.compiled import Case


def case(
    name: str,
    outputs: int,
    inputs: int,
    bits: int,
    tiles: int,
    nested: bool = False,
    block: int = 64,
    activation: str | None = None,
    cut: Tiling | None = None,
    zeros: bool = False,
    order: bool = False,
) -> Case:
    cut = cut or tiling(outputs, inputs, bits)
    values = {4: "*u8", 8: "*i8", 16: "*bf16"}[bits]
    signature = {
        "x": "*bf16",
        "weight": values,
        "scales": "constexpr" if bits == 16 else "*u8" if nested else "*fp32",
        "nested_code": "*fp32" if nested else "constexpr",
        "nested_absmax": "*fp32" if nested else "constexpr",
        "nested_offset": "*fp32" if nested else "constexpr",
        "zeros": "*i8" if zeros else "constexpr",
        "order": "*i32" if order else "constexpr",
        "code": "*fp32" if bits == 4 else "constexpr",
        "bias": "constexpr",
        "skip": "*i32",
        **dict.fromkeys(("used", "experts", "begins", "ends", "source"), "constexpr"),
        "out": "*bf16" if activation else "*fp32",
        "rows": "i32",
        "outputs": "i32",
        "inputs": "i32",
        "stride_split": "i32",
        "stride_weight": "i32",
        "stride_scales": "i32",
        **dict.fromkeys(
            ("BITS", "BLOCK", "ROWS", "TILES", "BN", "BK", "SPLIT", "WHOLE", "TYPE", "ACTIVATION"), "constexpr"
        ),
    }  # fmt: skip

    whole = outputs % cut.outputs == 0 and inputs % cut.inputs == 0
    span = triton.cdiv(triton.cdiv(inputs, cut.inputs), 1 if activation else cut.splits) * cut.inputs
    constants = {
        "BITS": bits,
        "BLOCK": block if bits == 4 else 0,
        "ROWS": TILE_ROWS,
        "TILES": tiles,
        "BN": cut.outputs,
        "BK": cut.inputs,
        "SPLIT": span,
        "WHOLE": whole,
        "TYPE": tl.bfloat16,
        "ACTIVATION": activation,
        **{n: None for n, kind in signature.items() if kind == "constexpr" and n.islower()},
    }
    aligned = [n for n, kind in signature.items() if kind.startswith("*")]
    aligned += [n for n, size in (("outputs", outputs), ("inputs", inputs)) if size % 16 == 0]
    aligned += ["stride_split", "stride_weight", "stride_scales"]
    return Case(
        name,
        _multiply,
        signature,
        constants,
        tuple(aligned),
        cut.warps,
        stages(tiles, chained=nested and whole),
        weights=cut.outputs * cut.inputs,
        options={"enable_fp_fusion": False},
    )


WIDE = Tiling(128, 256, 4, 8)
"""What `gpu_shapes.widened` makes of a cut."""

CASES = [
    *(case(f"nf4 nested, {8 * tiles} rows", 6144, 4096, 4, tiles, nested=True) for tiles in (1, 2, 4, 8)),
    *(
        case(f"{name}, 8 rows in wide programs", *shape, 4, 1, nested, block, activation, cut=WIDE)
        for name, shape, nested, block, activation in (
            ("nf4 nested", (6144, 4096), True, 64, None),
            ("nf4 nested with silu", (28672, 4096), True, 64, "silu"),
            ("nf4", (4096, 12288), False, 64, None),
            ("nf4, block 32", (4096, 4096), False, 32, None),
        )
    ),
    *(case(f"int4 with zeros, {8 * tiles} rows", 4096, 12288, 4, tiles, zeros=True) for tiles in (1, 8)),
    case("int4 in order, 8 rows", 4096, 12288, 4, 1, order=True),
    case("nf4, 8 rows", 4096, 12288, 4, 1),
    case("nf4, block 32, 8 rows", 4096, 4096, 4, 1, block=32),
    case("nf4 nested of 896 inputs, 8 rows", 4864, 896, 4, 1, nested=True),
    *(
        case(f"nf4 nested with silu, {8 * tiles} rows", 28672, 4096, 4, tiles, nested=True, activation="silu")
        for tiles in (1, 2, 8)
    ),
    case("int8 with silu, 8 rows", 16384, 2048, 8, 1, activation="silu"),
    *(case(f"int8, {8 * tiles} rows", 4096, 4096, 8, tiles) for tiles in (1, 2, 4, 8)),
    case("bf16 head, 8 rows", 151936, 4096, 16, 1),
    *(case(f"bf16, {8 * tiles} rows", 4096, 4096, 16, tiles) for tiles in (2, 4, 8)),
]
