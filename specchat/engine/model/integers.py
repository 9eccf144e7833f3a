"""Matrices of symmetric 4-bit integers, as compressed-tensors, GPTQ and AutoRound store them: (q - 8) * scale.

compressed-tensors packs "weight_packed" int32 [outputs, inputs / 8] along the inputs, with "weight_scale" [outputs,
groups]; GPTQ and AutoRound "qweight" int32 [inputs / 8, outputs], with "scales" [groups, outputs], the same zero in all
of "qzeros", and the group of each input in "g_idx". The lowest bits are the first input.
"""

from collections.abc import Callable, Container

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats import FourBit
from specchat.engine.model.quantise import KERNEL_BLOCKS, code_table, dequantised

PACKED, QWEIGHT = "weight_packed", "qweight"
ZEROS = (0x77777777, -0x77777778)
"""Words of eight zeros as GPTQ stores them: 7, to which its first version adds 1, or 8 (0x88888888)."""


def has_integers(name: str, names: Container[str]) -> bool:
    """True where matrix `name` (without its ending) is stored so."""
    return f"{name}.{PACKED}" in names or f"{name}.{QWEIGHT}" in names


def integers(
    name: str, names: Container[str], read: Callable[[str], Tensor], outputs: int, inputs: int, where: str
) -> FourBit | Tensor:
    """Return matrix `name`; dense where no kernel has blocks that fit its groups.

    Raises:
        ModelError: a part is missing, does not fit the others, or says that the integers are not symmetric.
    """

    def part(ending: str) -> Tensor:
        if f"{name}.{ending}" not in names:
            raise ModelError(f"{where}: {name}.{ending} is missing. Download the checkpoint again.")
        return read(f"{name}.{ending}")

    by_row = f"{name}.{PACKED}" in names
    words, scales = (part(PACKED), part("weight_scale")) if by_row else (part(QWEIGHT).t(), part("scales").t())
    groups = scales.shape[-1] if scales.dim() == 2 else 0
    fits = words.dtype == torch.int32 and words.shape == (outputs, -(-inputs // 8)) and inputs % 8 == 0
    if not fits or not groups or scales.shape[0] != outputs or inputs % groups or not scales.is_floating_point():
        raise ModelError(
            f"{where}: {name} has 4-bit words {list(words.shape)} and scales {list(scales.shape)}, which do not make "
            f"{outputs} outputs of {inputs} inputs."
        )
    group = inputs // groups
    _check_symmetric(name, names, part, group, where)
    block = next((block for block in KERNEL_BLOCKS if group % block == 0), 0)
    read_bytes = words.contiguous().view(torch.uint8)
    packed = (read_bytes << 4) | (read_bytes >> 4)
    whole = FourBit(packed, scales.float().contiguous(), code_table("int4"), group)
    if not block:
        return dequantised(whole, torch.bfloat16)
    return FourBit(packed, whole.scales.repeat_interleave(group // block, 1), whole.code, block)


def _check_symmetric(name: str, names: Container[str], part: Callable[[str], Tensor], group: int, where: str) -> None:
    shifted, moved = f"{name}.weight_zero_point" in names, f"{name}.weight_g_idx" in names
    if f"{name}.qzeros" in names:
        zeros = part("qzeros")
        shifted = not any(bool((zeros == word).all()) for word in ZEROS)
    if f"{name}.g_idx" in names:
        places = part("g_idx").long()
        moved = not torch.equal(places, torch.arange(len(places)) // group)
    if shifted or moved:
        raise ModelError(
            f"{where}: {name} has {'zero points' if shifted else 'another order of its inputs'}, which specchat's "
            'decoder does not read. With backend = "hf" transformers runs it.'
        )
