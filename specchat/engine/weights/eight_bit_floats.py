"""Matrices of 8-bit floats (e4m3) with scales, as Qwen, DeepSeek and compressed-tensors store them; made dense."""

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.weights.written import SIDE

STORED = torch.float8_e4m3fn
SCALES = ("_scale_inv", "_scale")
"""Endings of the scales' name after the weight's. Both are factors."""


def dequantise_floats(name: str, weight: Tensor, scale: Tensor | None, where: str) -> Tensor:
    """Return `weight` e4m3 [outputs, inputs] times its scales, bfloat16, rounded once.

    `scale` is one for all, one a row, or one for each square of SIDE weights.

    Raises:
        ModelError: there is none, or it has another shape.
    """
    outputs, inputs = weight.shape
    squares = -(-outputs // SIDE), -(-inputs // SIDE)
    if scale is not None and scale.numel() == 1:
        return (weight.float() * scale.float()).to(torch.bfloat16)
    if scale is not None and scale.shape in ((outputs,), (outputs, 1)):
        return (weight.float() * scale.float().view(-1, 1)).to(torch.bfloat16)
    if scale is not None and scale.shape == squares:
        by_row = scale.float().repeat_interleave(SIDE, 0)[:outputs]
        return (weight.float() * by_row.repeat_interleave(SIDE, 1)[:, :inputs]).to(torch.bfloat16)
    found = "no scale" if scale is None else f"scales {list(scale.shape)}"
    raise ModelError(
        f"{where}: {name} holds 8-bit floats {list(weight.shape)} with {found}, where one, one a row or "
        f"{list(squares)} are read."
    )
