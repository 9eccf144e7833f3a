"""Blocks in the order in which the kernels of a GPU read them, and back."""

import torch
from torch import Tensor

from specchat.engine.formats.gpu_blocks import GridWords, InWords, WordBlocks
from specchat.engine.formats.grids import GROUP, OF_HALVES, GridType
from specchat.engine.formats.layout import Blocks, GridBlocks

SLAB = 1 << 22
"""Words that change places at a time."""
BITS = 32
"""Bits of a word."""
SEVENS = 7
"""Bits of the signs of a group where the eighth follows from them."""
SHIFTS_AT, ROWS_AT = 2, 10
"""Words of `GridWords.codebook` before its shifts, and before its rows."""
Places = list[tuple[int, int]]
"""Bits of a word as they lie, each with the one that it becomes."""


def in_words(weight: Blocks) -> InWords:
    """Return `weight` in the order of the kernels, in memory of its own."""
    if isinstance(weight, GridBlocks):
        return _grid_words(weight)
    unit, of_high = _unit(weight.code is not None), weight.bits - weight.low_bits
    scales, supers = weight.scales, weight.supers
    if weight.minimum_supers is not None:
        assert supers is not None
        supers = torch.stack((supers, weight.minimum_supers), -1)
        if weight.minimums is not None:
            pairs = [numbers.unflatten(1, (-1, 2)) for numbers in (scales, weight.minimums)]
            scales = torch.cat(pairs, -1).flatten(1)
    elif supers is not None:
        supers = supers if weight.bits == OF_HALVES and weight.code is None else supers.float()
    code = weight.code
    if code is None:
        code = torch.tensor([weight.offset], dtype=torch.uint8, device=scales.device)
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


def from_words(weight: InWords) -> Blocks:
    """Return the blocks that `in_words` had."""
    if isinstance(weight, GridWords):
        return _grid_blocks(weight)
    is_code = weight.code.dtype == torch.float32
    unit, of_high = _unit(is_code), weight.bits - weight.low_bits
    scales, minimums, supers, minimum_supers = weight.scales, weight.minimums, weight.supers, None
    if supers is not None and supers.dim() == 2:
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
        code=weight.code if is_code else None,
        bits=weight.bits,
        offset=0 if is_code else int(weight.code),
        block=weight.block,
        order=weight.order,
    )


def _grid_words(weight: GridBlocks) -> GridWords:
    assert weight.code is not None
    assert weight.supers is not None
    low, among = weight.low, weight.grid.signs == "in scales"
    signs = weight.scales if among else weight.signs
    if weight.grid.signs == "paired":
        low, signs = (half.clone() for half in low.unflatten(1, (-1, 2)).unbind(-1))
    assert signs is not None
    return GridWords(
        low=low.view(torch.int32),
        high=None if weight.high is None else weight.high.view(torch.int32),
        signs=_moved(signs.view(torch.int32), _sign_places(weight.grid), 1),
        scales=None if among else weight.scales,
        supers=weight.supers.float(),
        code=weight.code,
        codebook=_addressed(weight.codebook),
        grid=weight.grid,
        bits=weight.bits,
        block=weight.block,
        order=weight.order,
    )


def _addressed(codebook: Tensor) -> Tensor:
    """A codebook as `gpu_blocks.GridWords` has it."""
    shifts = torch.arange(0, BITS, 4, dtype=torch.int32, device=codebook.device)
    found = torch.cat((codebook.new_zeros(SHIFTS_AT), shifts, codebook)).view(torch.int64)
    found[0] = found.view(torch.int32)[ROWS_AT:].data_ptr()
    return found


def _grid_blocks(weight: GridWords) -> GridBlocks:
    places = [(target, source) for source, target in _sign_places(weight.grid)]
    low, signs = weight.low.view(torch.uint8), _moved(weight.signs, places, 1).view(torch.uint8)
    if weight.grid.signs == "paired":
        low = torch.stack((low, signs), -1).flatten(1)
    return GridBlocks(
        low=low,
        high=None if weight.high is None else weight.high.view(torch.uint8),
        scales=signs if weight.scales is None else weight.scales,
        minimums=None,
        supers=weight.supers.half(),
        minimum_supers=None,
        code=weight.code,
        bits=weight.bits,
        offset=0,
        block=weight.block,
        order=weight.order,
        signs=signs if weight.grid.signs == "apart" else None,
        codebook=weight.codebook.view(torch.int32)[ROWS_AT:],
        grid=weight.grid,
    )


def _unit(is_code: bool) -> int:
    return 4 if is_code else 8


def _turned(words: Tensor, bits: int, unit: int, back: bool = False) -> Tensor:
    """Move the numbers of `bits` bits of words int32 [outputs, words] to their units, or back."""
    places = [(bits * number, _offset(number, bits, unit)) for number in range(BITS // bits)]
    return _moved(words, [(target, source) for source, target in places] if back else places, bits)


def _sign_places(grid: GridType) -> Places:
    """The bits of the signs of 32 inputs and those of units; other numbers take the bits of signs that are left out."""
    found = []
    for number in range(BITS):
        group, at = divmod(number, GROUP)
        source = number
        if grid.signs == "in scales":
            source = SEVENS * group + at if at < SEVENS else SEVENS * BITS // GROUP + group
        elif grid.signs == "paired":
            # The lowest bit of a group's byte is the ninth one of its row.
            source = GROUP * group + (at + 1) % GROUP
        found.append((source, _offset(number, 1, GROUP)))
    return found


def _moved(words: Tensor, places: Places, bits: int) -> Tensor:
    """Move `bits` bits each of words int32 [outputs, words]."""
    if all(one == other for one, other in places):
        return words
    moved = torch.zeros_like(words)
    for found, out in zip(words.flatten().split(SLAB), moved.view(-1).split(SLAB), strict=True):
        for source, target in places:
            out |= (found >> source & ((1 << bits) - 1)) << target
    return moved


def _offset(number: int, bits: int, unit: int) -> int:
    turn, at = divmod(number, BITS // unit)
    return unit * (at ^ (unit == 4)) + bits * turn
