"""Products of pairs with the weights of their experts, which stand in one matrix, expert after expert.

Parts of unlike storage are such a matrix each.

A tile is some rows of one expert, which meet its weights as the rows of a pass meet any matrix (`products.py`). Values
of the weights may lie in main memory that the device reads (`hardware.page_locked`); scales and biases do not.
"""

from dataclasses import replace

import torch
from torch import Tensor

from specchat.engine.formats.layout import Weight
from specchat.engine.kernels import gpu_shapes
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.gpu_shapes import Tiling, expert_tiles, part_of, tiling
from specchat.engine.kernels.pairs import Pairs
from specchat.engine.kernels.processors import processors
from specchat.engine.kernels.products import ExpertTiles, RowTiles, launch
from specchat.engine.kernels.stored import StoredWeight, bits_of, parts_of, stored


def splits(weight: Weight, count: int, top: int, device: torch.device) -> int:
    """Number of partial sums of `multiply` on `device` for `count` matrices in `weight`, of which a row takes `top`."""
    return _tiling(weight, count, top, device).splits


def activates(weight: Weight, count: int, top: int, device: torch.device) -> bool:
    """Return true if `multiply` on `device` applies the activation of gates itself, as for other products."""
    bits, (outputs, inputs) = bits_of(weight), weight.shape
    return len(bits) == 1 and gpu_shapes.activates(outputs // count, inputs, bits[0], processors(device), top)


def multiply(
    x: Tensor,
    weight: Weight,
    bias: Tensor | None,
    out: Tensor,
    pairs: Pairs,
    rows: int,
    gathered: bool,
    skip: Tensor | None = None,
    activation: Activation | None = None,
) -> None:
    """Write out[s, p], the s-th partial sum of the product of pair p, as `products.multiply` does for a row.

    Args:
        x: compute dtype [>= rows, inputs], the rows of a pass, if `gathered`; else [>= rows * top, inputs], of pairs.
        weight: [count * outputs, inputs]; of several parts as `quantise.by_experts` orders them.
        bias: float [count * outputs].
        out: float32 [splits, >= rows * top, outputs], or with `activation` compute dtype [>= rows * top, outputs / 2].
        pairs: written by `route` for `rows` rows.
        skip: int32 [1]; non-zero skips the kernel.
    """
    count, top = pairs.count, pairs.top
    cut = _tiling(weight, count, top, x.device)
    if activation is not None:
        cut = replace(cut, splits=1)
    tile, most = expert_tiles(rows, count, top)
    experts = ExpertTiles(pairs.used, pairs.experts, pairs.begins, pairs.ends, pairs.rows if gathered else None)
    tiles, parts, end = RowTiles(tile, experts=experts, most=most), parts_of(weight), 0
    for part, bits in zip(parts, bits_of(weight), strict=True):
        begin, end = end, end + part.shape[0] // count
        tensors, form = stored(part, None, count)
        if bias is not None:
            steps = tensors.steps._replace(bias=weight.shape[0] // count)
            tensors = tensors._replace(bias=bias[begin:], steps=steps)
        into = out if len(parts) == 1 else out[..., begin:end]
        of_part = part_of(cut, end - begin, weight.shape[1], bits)
        launch(x, StoredWeight(tensors, form), into, rows, of_part, tiles, skip, activation)


def _tiling(weight: Weight, count: int, top: int, device: torch.device) -> Tiling:
    outputs, inputs = weight.shape
    return tiling(outputs // count, inputs, max(bits_of(weight)), processors(device), top)
