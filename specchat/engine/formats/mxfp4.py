"""MXFP4 (Open Compute Project 2023): 4-bit floats in blocks of 32 that share a power of two."""

from dataclasses import replace

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.blocks import MXFP4_BLOCK as BLOCK
from specchat.engine.formats.blocks import NESTED_BLOCK
from specchat.engine.formats.layout import FourBit, Nested

BIAS = 127
"""The bias of the stored exponents."""
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CODE = (*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES))
"""The values of a nibble: sign, two bits of exponent, one of mantissa."""


def mxfp4(blocks: Tensor, scales: Tensor, shape: tuple[int, int], where: str) -> FourBit:
    """The matrix [outputs, inputs] of `blocks` uint8 [outputs, inputs / 32, 16], the even input in the low nibble.

    `scales` are uint8 exponents [outputs, inputs / 32]; `where` begins a message.

    Raises:
        ModelError: the parts do not fit the shape.
    """
    outputs, inputs = shape
    many = inputs // BLOCK
    fits = tuple(blocks.shape) == (outputs, many, BLOCK // 2) and tuple(scales.shape) == (outputs, many)
    if inputs % BLOCK or not fits or blocks.dtype != torch.uint8 or scales.dtype != torch.uint8:
        raise ModelError(
            f"{where}: MXFP4 blocks {list(blocks.shape)} with scales {list(scales.shape)} do not make a matrix of "
            f"{outputs}x{inputs}."
        )
    octets = blocks.reshape(outputs, inputs // 2)
    swapped = (octets << 4) | (octets >> 4)
    return FourBit(swapped, torch.exp2(scales.float() - BIAS), torch.tensor(CODE), BLOCK)


def by_exponents(weight: FourBit) -> FourBit:
    """The same weight with scales of a byte each, exactly, if all are powers of two: a quarter of their bytes."""
    if weight.nested is not None:
        return weight
    mantissas, exponents = torch.frexp(weight.scales)
    if not bool((mantissas == 0.5).all()):
        return weight
    device, (outputs, blocks) = weight.scales.device, weight.scales.shape
    powers = torch.exp2(torch.arange(256, device=device).float() - BIAS)
    ones = torch.ones(-(-outputs * blocks // NESTED_BLOCK), device=device)
    nested = Nested(powers, ones, torch.zeros(outputs, device=device))
    # The mantissa of a power of two is a half.
    stored = (exponents - 1 + BIAS).to(torch.uint8)
    return replace(weight, scales=stored, nested=nested)
