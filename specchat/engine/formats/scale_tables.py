"""Scales of 4-bit blocks in a byte each, exactly: a table has the value of each byte."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from specchat.engine.formats.layout import FourBit, Nested, Weight

WeightKind = TypeVar("WeightKind", bound=Weight)
EXPONENT_BLOCK, EXPONENT_BIAS = 32, 127
"""Blocks whose scales may become exponents of a byte, as MXFP4 stores them, and the bias of these."""


def by_table(weight: FourBit, scales: Tensor, table: Tensor) -> FourBit:
    """The same weight with the scale table[byte] of each block: `scales` uint8 [outputs, blocks]; float32 [256]."""
    return replace(weight, scales=scales, nested=Nested(table))


def table_of(weight: FourBit) -> Tensor | None:
    """The table of the scales; None: they are float32, or blocks of them have factors."""
    return weight.nested.code if weight.nested is not None and weight.nested.absmax is None else None


def shared_table(parts: list[FourBit]) -> Tensor | None:
    """The table that the scales of all parts have; None: there is none."""
    first, *others = map(table_of, parts)
    return first if all(first is not None and one is not None and torch.equal(first, one) for one in others) else None


def by_exponents(weight: WeightKind) -> WeightKind | FourBit:
    """The same weight with scales of a byte each, exactly, if it has small blocks and all scales are powers of two."""
    if not isinstance(weight, FourBit) or weight.block != EXPONENT_BLOCK or weight.nested is not None:
        return weight
    mantissas, exponents = torch.frexp(weight.scales)
    if not bool((mantissas == 0.5).all()):
        return weight
    powers = torch.exp2(torch.arange(256, device=weight.scales.device).float() - EXPONENT_BIAS)
    # The mantissa of a power of two is a half.
    return by_table(weight, (exponents - 1 + EXPONENT_BIAS).to(torch.uint8), powers)
