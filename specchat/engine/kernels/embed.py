"""Lookup of token embeddings into the float32 residual stream."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.formats.gpu_blocks import InWords
from specchat.engine.kernels import weight_tiles
from specchat.engine.kernels.norm import warps
from specchat.engine.kernels.stored import Form, WeightTensors, stored
from specchat.engine.protocol.picture_ids import FIRST

COLUMNS = 1024
"""Columns of one program."""
_FIRST = tl.constexpr(FIRST)
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


class Columns(NamedTuple):
    """Constants of a program, those of a `products.ProductShape` with a tile of one row."""

    form: Form
    outputs: int
    inputs: int
    whole: bool


@triton.jit  # type: ignore[untyped-decorator]
def _embed(
    tokens: tl.tensor,
    weight: WeightTensors,
    residual: tl.tensor,
    pictures: tl.tensor,
    scale: tl.tensor,
    eps: tl.tensor,
    program: tl.constexpr,
    TYPE: tl.constexpr,
) -> None:
    COLUMNS: tl.constexpr = program.inputs
    vocab, hidden = weight.outputs, weight.inputs
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    # 64 bits: a large vocabulary times a wide model exceeds 2^31 elements.
    token = tl.load(tokens + row).to(tl.int64)
    known = (token >= 0) & (token < vocab)
    if program.form.block > 0:
        one = tl.where(known, token, vocab).to(tl.int32) + tl.zeros((1,), tl.int32)
        first = tl.program_id(1) * COLUMNS
        x = weight_tiles.in_blocks(weight, weight_tiles.table(weight, program), one, first, program, TYPE)
        x = tl.reshape(x, (COLUMNS,)).to(tl.float32)
    else:
        x = tl.load(weight.planes.low + token * hidden + column, mask=known & (column < hidden), other=0.0)
        x = x.to(tl.float32)
    if scale is not None:
        x = x * scale
    if eps is not None:
        x = x * tl.rsqrt(tl.sum(x * x, 0) / hidden + eps)
    if pictures is not None:
        seen = tl.load(pictures + row * hidden + column, mask=(token >= _FIRST) & (column < hidden), other=0.0)
        x = tl.where(token >= _FIRST, seen, x)
    tl.store(residual + row * hidden + column, x, mask=column < hidden)


def embed(
    tokens: Tensor,
    table: Tensor | InWords,
    residual: Tensor,
    rows: int,
    scale: float = 1.0,
    eps: float | None = None,
    dtype: torch.dtype = torch.float32,
    pictures: Tensor | None = None,
) -> None:
    """Write residual[r] = scale * table[tokens[r]] for r < rows; an id outside the table gives zeros.

    With an `eps` each row then goes through a norm without a weight. With `pictures` an id of one gives pictures[r].

    Args:
        tokens: int32 [R].
        table: any float dtype [vocab, hidden]; or blocks, which are rounded to `dtype`.
        residual: float32 [R, hidden], written.
        pictures: float32 [R, hidden].
    """
    weight, form = stored(table, None)
    hidden = weight.inputs
    columns = COLUMNS if eps is None else triton.next_power_of_2(hidden)
    program = Columns(form, 1, columns, False)
    _embed[(rows, triton.cdiv(hidden, columns))](
        tokens, weight, residual, pictures, None if scale == 1 else scale, eps, program, TYPES[dtype],
        num_warps=4 if eps is None else warps(columns), enable_fp_fusion=True,
    )  # fmt: skip
