"""Quantisation of matrices as by bitsandbytes, their concatenation and dequantisation."""

import logging
from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad

from specchat.engine.errors import ModelError
from specchat.engine.formats.blocks import BLOCK, NESTED_BLOCK
from specchat.engine.formats.layout import EightBit, FourBit, Nested, Weight
from specchat.engine.protocol.pair import Quant

# It warns about missing products for some CPUs, which are not used here.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Quantiles of the normal distribution (QLoRA, Dettmers et al. 2023, appendix E)."""
_FP4_MAGNITUDES = (0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0)
FP4 = tuple(m / 12 for m in (*_FP4_MAGNITUDES, 0.0, *(-m for m in _FP4_MAGNITUDES[1:])))
"""Sign, two bits of exponent, one of mantissa, scaled to 1 (bitsandbytes.functional.get_4bit_type)."""


def code_table(quant: Quant) -> Tensor:
    """The value of each nibble: float32 [16]."""
    if quant == "int4":
        return torch.arange(-8.0, 8.0)
    return torch.tensor(NF4 if quant == "nf4" else FP4)


def quantise(matrix: Tensor, quant: Quant) -> Weight:
    """Quantise a dense matrix float [outputs, inputs] on its device, bit for bit as bitsandbytes stores it.

    Where 64 does not divide the inputs, 4-bit blocks cross rows: such a matrix is returned dense.

    Raises:
        ModelError: bitsandbytes is not installed.
    """
    try:
        from bitsandbytes import functional
    except ImportError:
        raise ModelError(
            f'quant = "{quant}" needs the package bitsandbytes, which is not installed. Install it, or leave quant out.'
        ) from None
    if quant == "int8":
        # bitsandbytes' Int8Params rounds to float16 first.
        values, largest, _ = functional.int8_vectorwise_quant(matrix.to(torch.float16).contiguous())
        return EightBit(values, largest / 127)
    outputs, inputs = matrix.shape
    packed, state = functional.quantize_4bit(
        matrix.contiguous(), blocksize=BLOCK, compress_statistics=True, quant_type=quant
    )
    if inputs % BLOCK:
        nested = Nested(state.state2.code, state.state2.absmax, state.offset.view(1))
        return across_rows(packed, state.absmax, state.code, BLOCK, nested, matrix.shape, matrix.dtype)
    nested = Nested(state.state2.code, state.state2.absmax, state.offset.expand(outputs).contiguous())
    return FourBit(packed.view(outputs, inputs // 2), state.absmax.view(outputs, -1), state.code, BLOCK, nested)


def across_rows(
    packed: Tensor,
    scales: Tensor,
    code: Tensor,
    block: int,
    nested: Nested | None,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Dequantise a matrix of `shape` to `dtype` whose 4-bit blocks cross rows; the last one may be shorter.

    `packed` uint8 and `scales` as in `FourBit`, flattened; `nested` has one offset.
    """
    missing = scales.numel() * block // 2 - packed.numel()
    row = FourBit(pad(packed.flatten(), (0, missing))[None], scales.view(1, -1), code, block, nested)
    return dequantised(row, dtype).flatten()[: prod(shape)].view(*shape)


def fused(parts: Sequence[Weight]) -> Weight:
    """Concatenate matrices of the same inputs along the outputs.

    Parts of one format keep it; if one of them is dense, all become dense, in its dtype, and so do 4 bits in unlike
    orders.
    """
    if len(parts) == 1:
        return parts[0]
    if four := [p for p in parts if isinstance(p, FourBit)]:
        first = four[0]
        if len(four) == len(parts) and all(_alike(p, first) for p in four):
            return _fused_four(four)
    elif len(eight := [p for p in parts if isinstance(p, EightBit)]) == len(parts):
        return EightBit(torch.cat([p.values for p in eight]), torch.cat([p.scales for p in eight]))
    dtype = next((p.dtype for p in parts if isinstance(p, Tensor)), torch.float32)
    return torch.cat([dequantised(p, dtype) for p in parts])


def _alike(part: FourBit, first: FourBit) -> bool:
    orders = part.order, first.order
    ordered = [one for one in orders if one is not None]
    same = not ordered or (len(ordered) == len(orders) and torch.equal(*ordered))
    return part.block == first.block and torch.equal(part.code, first.code) and same


def _fused_four(parts: list[FourBit]) -> FourBit:
    nested = [p.nested for p in parts if p.nested is not None]
    # Scale i of the whole has nested scale i // 256, so every part but the last must fill its blocks.
    whole = all(p.scales.numel() % NESTED_BLOCK == 0 for p in parts[:-1])
    inner = None
    if whole and len(nested) == len(parts) and all(torch.equal(n.code, nested[0].code) for n in nested):
        inner = Nested(nested[0].code, torch.cat([n.absmax for n in nested]), torch.cat([n.offset for n in nested]))
    scales = [p.scales for p in parts] if inner else [block_scales(p) for p in parts]
    zeros = None
    if any(p.zeros is not None for p in parts):
        zeros = torch.cat([torch.zeros_like(p.scales, dtype=torch.int8) if p.zeros is None else p.zeros for p in parts])
    packed, first = torch.cat([p.packed for p in parts]), parts[0]
    return FourBit(packed, torch.cat(scales), first.code, first.block, inner, zeros, first.order)


def block_scales(weight: FourBit) -> Tensor:
    """The scale of each block, float32 [outputs, inputs / block], nested ones dequantised as by bitsandbytes."""
    if weight.nested is None:
        return weight.scales
    nested = weight.nested
    read = nested.code[weight.scales.flatten().int()]
    read *= nested.absmax.repeat_interleave(NESTED_BLOCK)[: read.numel()]
    return read.view(weight.scales.shape) + nested.offset[:, None]


def by_rows(weight: Weight, of: Callable[[Tensor], Tensor]) -> Weight:
    """A weight of what `of` makes of each tensor that has a row for each output; nested scales are dequantised."""
    match weight:
        case FourBit(packed, _, code, block, _, zeros, order):
            shifts = None if zeros is None else of(zeros)
            return FourBit(of(packed), of(block_scales(weight)), code, block, None, shifts, order)
        case EightBit(values, scales):
            return EightBit(of(values), of(scales))
        case _:
            return of(weight)


def dequantised(weight: Weight, dtype: torch.dtype) -> Tensor:
    """Dequantise to a dense matrix `dtype` [outputs, inputs] on the weight's device.

    A 4-bit weight is (code - zero) * scale in float32, rounded once: the bits of
    bitsandbytes.functional.dequantize_4bit, except the sign of FP4's second zero, which is negative for bitsandbytes on
    some processors.
    """
    match weight:
        case FourBit(packed, _, code, block, _, zeros, order):
            pairs = torch.stack((code.repeat_interleave(16), code.repeat(16)), 1)
            dense = embedding(packed.int(), pairs).view(packed.shape[0], -1, block)
            if zeros is not None:
                dense -= zeros[:, :, None]
            dense = dense.mul_(block_scales(weight)[:, :, None]).flatten(1).to(dtype)
            return dense if order is None else torch.empty_like(dense).index_copy_(1, order.long(), dense)
        case EightBit(values, scales):
            return (values * scales[:, None]).to(dtype)
        case _:
            return weight.to(dtype)
