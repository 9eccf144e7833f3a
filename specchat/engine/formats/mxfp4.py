"""MXFP4 (Open Compute Project 2023): 4-bit floats in blocks of 32 that share a power of two.

gpt-oss's experts have them, and checkpoints of compressed-tensors: "weight_packed" uint8 [outputs, inputs / 2], the
even input in the low nibble, with "weight_scale" uint8 [outputs, inputs / 32].
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.engine.errors import ModelError
from specchat.engine.formats.format import Format, StorageLayout, StoredParts
from specchat.engine.formats.settings import Quantised

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import FourBit

BLOCK = 32
"""Weights per scale."""
BIAS = 127
"""The bias of the stored exponents."""
OVERFLOW = 253
"""The first stored exponent with which the largest value of a nibble is none of float32; 255 stands for NaN."""
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CODE = (*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES))
"""The values of a nibble: sign, two bits of exponent, one of mantissa."""


@dataclass(frozen=True)
class Mxfp4(Format):
    """Matrices of experts in "blocks" and "scales", which stay so in memory."""

    name = "mxfp4"
    code = CODE
    of_experts = True
    int8_rows = True

    def stated(self, settings: Quantised) -> "Mxfp4 | None":
        return self if settings.quant_method == self.name else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        return StorageLayout(4, BLOCK, "exponents")

    def holds(self, source: StoredParts, name: str) -> bool:
        return f"{name}.blocks" in source

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "FourBit":
        return mxfp4(source.part(f"{name}.blocks"), source.part(f"{name}.scales"), shape, f"{source.folder}, {name}")


def mxfp4(blocks: "Tensor", scales: "Tensor", shape: tuple[int, int], where: str) -> "FourBit":
    """The matrix [outputs, inputs] of `blocks` uint8 [outputs, inputs / 32, 16], the even input in the low nibble.

    `scales` are uint8 exponents [outputs, inputs / 32]; `where` begins a message.

    Raises:
        ModelError: the parts do not fit the shape, or a value is not finite.
    """
    import torch

    from specchat.engine.formats.layout import FourBit
    from specchat.engine.formats.quantise import dequantised, from_octets

    outputs, inputs = shape
    many = inputs // BLOCK
    fits = tuple(blocks.shape) == (outputs, many, BLOCK // 2) and tuple(scales.shape) == (outputs, many)
    if inputs % BLOCK or not fits or blocks.dtype != torch.uint8 or scales.dtype != torch.uint8:
        raise ModelError(
            f"{where}: MXFP4 blocks {list(blocks.shape)} with scales {list(scales.shape)} do not make a matrix of "
            f"{outputs}x{inputs}."
        )
    packed, code = from_octets(blocks.reshape(outputs, inputs // 2)), torch.tensor(CODE)
    powers = torch.exp2(scales.float() - BIAS)
    large = (scales >= OVERFLOW).any(1)
    if bool(large.any()):
        values = dequantised(FourBit(packed[large], powers[large], code, BLOCK), torch.float32)
        if not bool(values.isfinite().all()):
            raise ModelError(f"{where} has scales that are no numbers. Download it again.")
    return FourBit(packed, powers, code, BLOCK)


@dataclass(frozen=True)
class PackedMxfp4(Mxfp4):
    """Any matrices, as compressed-tensors packs them."""

    quant = "fp4"
    of_experts = False
    renames = True

    def stated(self, settings: Quantised) -> "PackedMxfp4 | None":
        packed = settings.quant_method == "compressed-tensors" and settings.format == "mxfp4-pack-quantized"
        return self if packed and settings.all_have(type="float", num_bits=4, group_size=BLOCK) else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        return None if inputs % BLOCK else super().layout(inputs, name)

    def holds(self, source: StoredParts, name: str) -> bool:
        return f"{name}.weight_packed" in source

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "FourBit":
        blocks, scales = source.part(f"{name}.weight_packed"), source.part(f"{name}.weight_scale")
        whole = blocks.dim() == 2 and blocks.shape[1] % (BLOCK // 2) == 0
        return mxfp4(
            blocks.unflatten(1, (-1, BLOCK // 2)) if whole else blocks, scales, shape, f"{source.folder}, {name}"
        )


FORMATS = (Mxfp4(), PackedMxfp4())
