"""Rows in 8 bits for products with weights of whole numbers; `rounded` is the arithmetic that every executor has.

Products of whole numbers have exact sums in int32 (docs/exactness.md), so an executor may add them in any order.
"""

import torch
from torch import Tensor

from specchat.engine.formats.format import LARGEST, LEAST_PEAK
from specchat.engine.formats.grids import SUPER_BLOCK
from specchat.engine.formats.layout import Blocks, EightBit, FourBit, Plain

MOST_INPUTS = (2**31 - 1) // (LARGEST * 255)
"""Inputs whose products with int8 values have a sum that int32 holds, also where 128 is added to each value first."""
LEAST_BLOCK = 16
"""Inputs of which a block has a multiple, and if it is no whole row a power of two of them."""
FACTORS = (1, 2, 4, 8)
"""Powers of two that make whole numbers of the codes of GGUF types and MXFP4."""


def code_factor(code: Tensor) -> int:
    """The least of FACTORS that makes a code float32 [numbers] whole numbers of 8 bits; 0: none does."""
    for factor in FACTORS:
        whole = factor * code
        if bool((whole == whole.round()).all()) and float(whole.abs().max()) <= LARGEST:
            return factor
    return 0


def takes_int8_rows(weight: Plain) -> bool:
    """True for a weight whose numbers are whole, up to its scales: neither dense, nor nf4, nor fp4."""
    match weight:
        case EightBit(values=values):
            return values.shape[1] <= MOST_INPUTS and values.shape[1] % LEAST_BLOCK == 0
        case FourBit(code=code, block=block) | Blocks(code=code, block=block):
            return block % LEAST_BLOCK == block & block - 1 == 0 and (code is None or code_factor(code) > 0)
        case _:
            return False


def row_block(weight: EightBit | FourBit | Blocks) -> int:
    """Inputs of a row that have one scale: a block of the weight, its super-block if it has one, or all."""
    if isinstance(weight, EightBit):
        return weight.shape[1]
    return SUPER_BLOCK if isinstance(weight, Blocks) and weight.supers is not None else weight.block


def quantised_rows(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """The numbers int8 [..., inputs] and the scales float32 [..., inputs / block] of rows float32 [..., inputs].

    For each block of consecutive inputs, all in float32: amax = max |x|, number = round(x * (127 / amax)), halves to
    the even one, scale = amax / 127. A block with amax < LEAST_PEAK has zeros and scale 0. One with NaN or infinity has
    scale NaN, so that each product with it is NaN.
    """
    blocks = x.unflatten(-1, (-1, block))
    peaks = blocks.abs().amax(-1, keepdim=True)
    usable = peaks.isfinite() & (peaks >= LEAST_PEAK)
    most = peaks.new_tensor(LARGEST)  # of two tensors the quotient is rounded once
    inverse = torch.where(usable, most / peaks, 0.0)
    numbers = torch.where(usable, blocks, 0.0).mul(inverse).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    scales = torch.where(usable, peaks / most, torch.where(peaks.isfinite(), 0.0, torch.nan))
    return numbers.flatten(-2), scales.squeeze(-1)


def rounded(x: Tensor, weight: Plain) -> Tensor:
    """Rows float32 [..., inputs] as a product in 8 bits with `weight` has them: numbers times scales, float32.

    Blocks are those of `row_block`, in the weight's order of the inputs.

    Raises:
        ValueError: the weight takes no such rows.
    """
    if not takes_int8_rows(weight):
        raise ValueError("a weight whose numbers are not whole takes no rows of 8 bits")
    assert isinstance(weight, EightBit | FourBit | Blocks)
    block = row_block(weight)
    order = weight.order.long() if isinstance(weight, FourBit | Blocks) and weight.order is not None else None
    numbers, scales = quantised_rows(x if order is None else x[..., order], block)
    rows = (numbers.unflatten(-1, (-1, block)) * scales[..., None]).flatten(-2)
    return rows if order is None else torch.empty_like(rows).index_copy_(-1, order, rows)
