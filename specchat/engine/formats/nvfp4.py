"""NVFP4: 4-bit floats in blocks of 16 with a scale e4m3 each, and a float32 for the whole matrix.

compressed-tensors has "weight_packed" uint8 [outputs, inputs / 2], the even input in the low nibble, "weight_scale"
e4m3 [outputs, inputs / 16], and "weight_global_scale", which divides these. ModelOpt has the first as "weight", and
"weight_scale_2", which multiplies them. Both round the scales of blocks to float32 once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.engine.errors import ModelError
from specchat.engine.formats.format import Format, StorageLayout, StoredParts
from specchat.engine.formats.mxfp4 import CODE
from specchat.engine.formats.settings import Quantised

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import FourBit

BLOCK = 16
"""Weights per scale."""
NO_NUMBER = 127
"""The byte of a scale, without its sign, that stands for NaN."""


@dataclass(frozen=True)
class Nvfp4(Format):
    """Matrices as compressed-tensors packs them."""

    packed, whole = "weight_packed", "weight_global_scale"

    quant = "fp4"
    name = "nvfp4"
    code = CODE
    renames = True
    int8_rows = True

    def stated(self, settings: Quantised) -> "Nvfp4 | None":
        packed = settings.quant_method == "compressed-tensors" and settings.format == "nvfp4-pack-quantized"
        fits = settings.all_have(type="float", num_bits=4, group_size=BLOCK, symmetric=True)
        return self if packed and fits else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        return None if inputs % BLOCK else StorageLayout(4, BLOCK, "table")

    def holds(self, source: StoredParts, name: str) -> bool:
        return f"{name}.{self.packed}" in source and f"{name}.{self.whole}" in source

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "FourBit":
        import torch

        from specchat.engine.formats.layout import FourBit
        from specchat.engine.formats.quantise import from_octets
        from specchat.engine.formats.scale_tables import by_table

        outputs, inputs = shape
        octets, scales = source.part(f"{name}.{self.packed}"), source.part(f"{name}.weight_scale")
        whole, where = source.part(f"{name}.{self.whole}"), f"{source.folder}, {name}"
        fits = tuple(octets.shape) == (outputs, inputs // 2) and tuple(scales.shape) == (outputs, inputs // BLOCK)
        kinds = (octets.dtype, scales.dtype, whole.dtype) == (torch.uint8, torch.float8_e4m3fn, torch.float32)
        if inputs % BLOCK or not fits or not kinds or whole.numel() != 1:
            raise ModelError(
                f"{where}: NVFP4 numbers {octets.dtype} {list(octets.shape)} with scales {scales.dtype} "
                f"{list(scales.shape)} and {whole.dtype} {list(whole.shape)} do not make a matrix of "
                f"{outputs}x{inputs}."
            )
        stored = scales.contiguous().view(torch.uint8)
        values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num()
        table = self._scaled(values, whole.flatten())
        if not bool((max(CODE) * table).isfinite().all()) or bool((stored & NO_NUMBER == NO_NUMBER).any()):
            raise ModelError(f"{where} has scales that are no numbers. Download it again.")
        return by_table(FourBit(from_octets(octets), stored, torch.tensor(CODE), BLOCK), stored, table)

    def _scaled(self, values: "Tensor", whole: "Tensor") -> "Tensor":
        return values / whole


@dataclass(frozen=True)
class ModelOptNvfp4(Nvfp4):
    """Matrices as ModelOpt packs them."""

    packed, whole = "weight", "weight_scale_2"

    renames = False

    def stated(self, settings: Quantised) -> "ModelOptNvfp4 | None":
        return self if settings.quant_method == "modelopt" and settings.quant_algo == "NVFP4" else None

    def _scaled(self, values: "Tensor", whole: "Tensor") -> "Tensor":
        return values * whole


FORMATS = (Nvfp4(), ModelOptNvfp4())
