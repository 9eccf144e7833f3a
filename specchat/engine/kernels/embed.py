"""Lookup of token embeddings into the float32 residual stream."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels.norm import warps

COLUMNS = 1024
"""Columns of one program."""


@triton.jit  # type: ignore[untyped-decorator]
def _embed(
    tokens: tl.tensor,
    table: tl.tensor,
    residual: tl.tensor,
    vocab: tl.tensor,
    hidden: tl.tensor,
    scale: tl.tensor,
    eps: tl.tensor,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    # 64 bits: a large vocabulary times a wide model exceeds 2^31 elements.
    token = tl.load(tokens + row).to(tl.int64)
    known = (column < hidden) & (token >= 0) & (token < vocab)
    x = tl.load(table + token * hidden + column, mask=known, other=0.0).to(tl.float32)
    if scale is not None:
        x = x * scale
    if eps is not None:
        x = x * tl.rsqrt(tl.sum(x * x, 0) / hidden + eps)
    tl.store(residual + row * hidden + column, x, mask=column < hidden)


def embed(
    tokens: Tensor, table: Tensor, residual: Tensor, rows: int, scale: float = 1.0, eps: float | None = None
) -> None:
    """Write residual[r] = scale * table[tokens[r]] for r < rows; an id outside the table gives zeros.

    With an `eps` each row then goes through a norm without a weight.

    Args:
        tokens: int32 [R].
        table: any float dtype [vocab, hidden].
        residual: float32 [R, hidden], written.
    """
    vocab, hidden = table.shape
    columns = COLUMNS if eps is None else triton.next_power_of_2(hidden)
    _embed[(rows, triton.cdiv(hidden, columns))](
        tokens, table, residual, vocab, hidden, None if scale == 1 else scale, eps,
        COLUMNS=columns, num_warps=4 if eps is None else warps(columns), enable_fp_fusion=True,
    )  # fmt: skip


def reference_embed(tokens: Tensor, table: Tensor, scale: float = 1.0, eps: float | None = None) -> Tensor:
    """Output of `embed`: float32 [len(tokens), hidden]."""
    known = (tokens >= 0) & (tokens < table.shape[0])
    found = torch.where(known[:, None], table[tokens.where(known, 0).long()].float() * scale, 0.0)
    return found if eps is None else found * torch.rsqrt(found.square().mean(-1, keepdim=True) + eps)
