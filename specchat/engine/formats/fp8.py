"""Matrices of 8-bit floats (e4m3) with scales, as Qwen, DeepSeek and compressed-tensors store them; made dense."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specchat.engine.errors import ModelError
from specchat.engine.formats.format import Format, StorageLayout, StoredParts
from specchat.engine.formats.settings import Quantised

if TYPE_CHECKING:
    from torch import Tensor

SIDE = 128
"""Rows and columns of the weights that share a scale."""
SCALES = ("_scale_inv", "_scale")
"""Endings of the scales' name after the weight's. Both are factors."""
METHODS = ("float-quantized", "naive-quantized")
MODELOPT_METHODS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN")


@dataclass(frozen=True)
class Fp8(Format):
    """8-bit floats with a scale for all, one a row, or one for each square of SIDE weights."""

    name = "fp8"

    def stated(self, settings: Quantised) -> "Fp8 | None":
        match settings.quant_method:
            case "modelopt":
                found = settings.quant_algo in MODELOPT_METHODS
            case "fp8":
                found = settings.weight_block_size in (None, [SIDE, SIDE])
            case "compressed-tensors":
                kinds = {(one.type, one.num_bits, one.symmetric) for one in settings.schemes}
                found = kinds == {("float", 8, True)} and settings.format in METHODS
            case _:
                found = False
        return self if found else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        return None

    def holds(self, source: StoredParts, name: str) -> bool:
        return source.stored_dtype(f"{name}.weight") == "F8_E4M3"

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "Tensor":
        whole = f"{name}.weight"
        weight = source.part(whole)
        if tuple(weight.shape) != shape:
            raise ModelError(
                f"{source.folder}: tensor {whole} has shape {list(weight.shape)}, config.json asks for {list(shape)}."
            )
        found = next((source.part(whole + ending) for ending in SCALES if whole + ending in source), None)
        return dequantise_floats(whole, weight, found, str(source.folder))


def dequantise_floats(name: str, weight: "Tensor", scale: "Tensor | None", where: str) -> "Tensor":
    """Return `weight` e4m3 [outputs, inputs] times its scales, bfloat16, rounded once.

    Raises:
        ModelError: there is no scale, or it has another shape.
    """
    outputs, inputs = weight.shape
    squares = -(-outputs // SIDE), -(-inputs // SIDE)
    if scale is not None and scale.numel() == 1:
        return (weight.float() * scale.float()).bfloat16()
    if scale is not None and scale.shape in ((outputs,), (outputs, 1)):
        return (weight.float() * scale.float().view(-1, 1)).bfloat16()
    if scale is not None and scale.shape == squares:
        by_row = scale.float().repeat_interleave(SIDE, 0)[:outputs]
        return (weight.float() * by_row.repeat_interleave(SIDE, 1)[:, :inputs]).bfloat16()
    found = "no scale" if scale is None else f"scales {list(scale.shape)}"
    raise ModelError(
        f"{where}: {name} holds 8-bit floats {list(weight.shape)} with {found}, where one, one a row or "
        f"{list(squares)} are read."
    )


FORMATS = (Fp8(),)
