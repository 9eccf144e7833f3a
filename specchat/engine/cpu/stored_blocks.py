"""Weights in blocks as products store them: their form, and the fields of a PRODUCT."""

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.products.block_form import (
    EXPONENTS,
    FLOATS,
    HALVES,
    MINIMUMS,
    PAIRED,
    SIGNED,
    TABLED,
    UNSHIFTED,
    UNSIGNED,
    ZEROS,
    BlockForm,
)
from specchat.engine.formats.gguf import block_of_zeros
from specchat.engine.formats.grids import GRIDS, GROUP
from specchat.engine.formats.int8_rows import code_factor, takes_int8_rows
from specchat.engine.formats.layout import Blocks, EightBit, FileRows, FourBit, GridBlocks, Plain
from specchat.engine.formats.quantise import block_scales
from specchat.engine.formats.scale_tables import by_exponents, table_of

CODED = 16
"""Numbers of a table."""


def block_of(weight: Plain) -> int:
    """Inputs of a block of a weight in blocks; a row is one of 8 bits."""
    held = block_of_zeros(weight.kind) if isinstance(weight, FileRows) else weight
    assert isinstance(held, FourBit | Blocks | EightBit)
    return held.shape[1] if isinstance(held, EightBit) else held.block


def form_of_blocks(weight: FourBit | Blocks) -> BlockForm:
    """Storage of weights in blocks for rows of float32."""
    if isinstance(weight, GridBlocks):
        return BlockForm(4, coded=True, scales=UNSIGNED, grid=1 + [*GRIDS].index(weight.grid.name))
    if isinstance(weight, FourBit):
        in_floats = FLOATS if _exponents(weight) is None else EXPONENTS
        scales = in_floats if scale_table(weight) is None else TABLED
        return BlockForm(4, coded=True, scales=scales, shifts=UNSHIFTED if weight.zeros is None else ZEROS)
    shifts = MINIMUMS if weight.minimums is not None else PAIRED if weight.minimum_supers is not None else UNSHIFTED
    scales = {torch.float16: HALVES, torch.int8: SIGNED, torch.uint8: UNSIGNED}[weight.scales.dtype]
    offset = 0 if weight.bits == GROUP else weight.offset
    return BlockForm(weight.low_bits, weight.bits - weight.low_bits, offset, weight.code is not None, scales, shifts)


def rounded_form(weight: Plain) -> BlockForm | None:
    """The storage of weights for rows of bytes; None where they take none."""
    held = block_of_zeros(weight.kind) if isinstance(weight, FileRows) else weight
    if not takes_int8_rows(held):
        return None
    if isinstance(held, EightBit):
        return BlockForm(GROUP, rounded=1)
    assert isinstance(held, FourBit | Blocks)
    form = form_of_blocks(held)._replace(rounded=(held.block // GROUP).bit_length())
    if held.code is None:
        return form
    factor = code_factor(held.code)
    if factor == 1 and torch.equal(held.code, torch.arange(CODED) + held.code[0]):
        return form._replace(coded=False, offset=-int(held.code[0]))
    return form._replace(finer=factor.bit_length() - 1, most=int(factor * held.code.abs().max()))


def block_parts(weight: FourBit | Blocks | EightBit, form: BlockForm) -> dict[str, NDArray[Any] | None]:
    """The fields of a PRODUCT in blocks as rows: numbers of a group lie in one word of each plane."""
    if isinstance(weight, EightBit):
        return {"address": weight.values.numpy().view("<u4"), "scales": weight.scales.float().numpy()[:, None]}
    if isinstance(weight, FourBit):
        packed, zeros = weight.packed.numpy(), weight.zeros
        in_bytes = _exponents(weight) if scale_table(weight) is None else weight.scales
        words = ((packed >> 4) | (packed << 4)).view("<u4")
        return {
            "address": words,
            "scales": (block_scales(weight) if in_bytes is None else in_bytes).numpy(),
            "shifts": None if zeros is None else zeros.numpy(),
        }
    if isinstance(weight, GridBlocks):
        assert weight.supers is not None
        of_rows, of_signs, of_scales = weight.grid.widths(form.rounded > 0)
        return {
            "address": weight.low.numpy().view(f"<u{of_rows}"),
            "high": None if weight.high is None else weight.high.numpy(),
            "scales": weight.scales.numpy().view(f"<u{of_scales}"),
            "signs": None if weight.signs is None else weight.signs.numpy().view(f"<u{of_signs}"),
            "supers": weight.supers.numpy(),
        }
    if form.low == GROUP:
        low = (weight.low - weight.offset).view(torch.int8).numpy()
        low = low.view("<u4") if form.rounded else low
    else:
        low = weight.low.numpy().view(f"<u{form.low}")
    high = None
    if weight.high is not None:
        words = weight.high.numpy().view(f"<u{form.high}")
        high = words if form.rounded else _fields_table(form)[words]
    tensors = {
        "scales": weight.scales,
        "shifts": weight.minimums,
        "supers": weight.supers,
        "shift_supers": weight.minimum_supers,
    }
    return {"address": low, "high": high} | {name: one if one is None else one.numpy() for name, one in tensors.items()}


def scale_table(weight: FourBit) -> Tensor | None:
    """The table of scales, float32 [256]; None without one, or where outputs that only fill a vector would not be 0."""
    table = table_of(weight)
    return None if table is None or table[0] * weight.code[0] != 0 else table


def _exponents(weight: FourBit) -> Tensor | None:
    """Scales as exponents of float32, uint8, if all are powers of two.

    None too where number 0 is not 0: outputs that only fill a vector would not be 0, as no exponent is.
    """
    found = by_exponents(weight)
    return None if found is weight or weight.code[0] != 0 else found.scales


@cache
def _fields_table(form: BlockForm) -> NDArray[Any]:
    """Words of the high plane, by those whose fields are in the order of the inputs."""
    words = np.arange(1 << GROUP * form.high, dtype=np.uint32)
    found = np.zeros_like(words)
    for number in range(GROUP):
        value = words >> (form.high * number) & ((1 << form.high) - 1)
        found |= value << (form.high * form.field(number))
    return found.astype(f"<u{form.high}")
