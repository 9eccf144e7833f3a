"""Blocks in the order in which the kernels of a GPU read them, and back."""

import torch
from torch import Tensor

from specchat.engine.formats.fields import from_fields
from specchat.engine.formats.grids import NUMBERS, grid_numbers, grid_scales
from specchat.engine.formats.layout import Blocks, GridBlocks, WordBlocks

SLAB = 1 << 22
"""Words that change places at a time."""
CODES = 16
"""Values of a code on a GPU."""


def in_words(weight: Blocks) -> WordBlocks:
    """Return `weight` in the order of the kernels, in memory of its own."""
    weight = spelt_out(weight) if isinstance(weight, GridBlocks) else weight
    unit, of_high = _unit(weight.code is not None), weight.bits - weight.low_bits
    scales, supers = weight.scales, weight.supers
    if weight.minimum_supers is not None:
        assert supers is not None
        supers = torch.stack((supers, weight.minimum_supers), -1)
        if weight.minimums is not None:
            pairs = [numbers.unflatten(1, (-1, 2)) for numbers in (scales, weight.minimums)]
            scales = torch.cat(pairs, -1).flatten(1)
    elif supers is not None:
        supers = supers.float()
    if weight.code is None:
        code = torch.tensor([weight.offset], dtype=torch.uint8, device=scales.device)
    else:
        code = torch.nn.functional.pad(weight.code, (0, CODES - len(weight.code)))
    return WordBlocks(
        low=_turned(weight.low.view(torch.int32), weight.low_bits, unit),
        high=None if weight.high is None else _turned(weight.high.view(torch.int32), of_high, unit),
        scales=scales,
        minimums=None if weight.minimum_supers is not None else weight.minimums,
        supers=supers,
        code=code,
        bits=weight.bits,
        block=weight.block,
        order=weight.order,
    )


def spelt_out(weight: GridBlocks) -> Blocks:
    """Return `weight` with what its rows of a codebook stand for: no kernel looks them up."""
    assert weight.code is not None
    (outputs, inputs), magnitude = weight.shape, weight.bits - 1
    low, high = weight.low.new_empty(outputs, inputs * weight.low_bits // 8), None
    if weight.low_bits < weight.bits:
        high = low.new_empty(outputs, inputs // 8)
    step = max(1, SLAB // inputs)
    for first in range(0, outputs, step):
        some = slice(first, first + step)
        numbers = grid_numbers(weight, some)
        if high is not None:
            high[some] = from_fields(numbers >> 3, 1)
        low[some] = from_fields(numbers, weight.low_bits)
    code = weight.code.view(2, NUMBERS)[:, : 1 << magnitude].flatten()
    scales = grid_scales(weight).to(torch.uint8)
    return Blocks(low, high, scales, None, weight.supers, None, code, weight.bits, 0, weight.block, weight.order)


def from_words(weight: WordBlocks) -> Blocks:
    """Return the blocks that `in_words` had, of a codebook those of `spelt_out`."""
    is_code = weight.code.dtype == torch.float32
    unit, of_high = _unit(is_code), weight.bits - weight.low_bits
    scales, minimums, supers, minimum_supers = weight.scales, weight.minimums, weight.supers, None
    if supers is not None and supers.dtype == torch.float32:
        supers = supers.half()
    elif supers is not None:
        supers, minimum_supers = supers.unbind(-1)
    if weight.minimums_in == "bytes":
        scales, minimums = (half.flatten(1) for half in scales.unflatten(1, (-1, 2, 2)).unbind(2))
    return Blocks(
        low=_turned(weight.low, weight.low_bits, unit, back=True).view(torch.uint8),
        high=None if weight.high is None else _turned(weight.high, of_high, unit, back=True).view(torch.uint8),
        scales=scales,
        minimums=minimums,
        supers=supers,
        minimum_supers=minimum_supers,
        code=weight.code[: 2**weight.bits] if is_code else None,
        bits=weight.bits,
        offset=0 if is_code else int(weight.code),
        block=weight.block,
        order=weight.order,
    )


def _unit(is_code: bool) -> int:
    return 4 if is_code else 8


def _turned(words: Tensor, bits: int, unit: int, back: bool = False) -> Tensor:
    """Move the numbers of `bits` bits of words int32 [outputs, words] to their units, or back."""
    places = [(bits * number, _offset(number, bits, unit)) for number in range(32 // bits)]
    if all(one == other for one, other in places):
        return words
    turned = torch.zeros_like(words)
    for found, out in zip(words.flatten().split(SLAB), turned.view(-1).split(SLAB), strict=True):
        for source, target in places:
            source, target = (target, source) if back else (source, target)
            out |= (found >> source & ((1 << bits) - 1)) << target
    return turned


def _offset(number: int, bits: int, unit: int) -> int:
    turn, at = divmod(number, 32 // unit)
    return unit * (at ^ (unit == 4)) + bits * turn
