"""Keys of config.json on dtype and quantisation of the stored weights."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from specchat.engine.foreign import Foreign, Switch

SIDE = 128
"""Rows and columns of the weights that share a scale of 8-bit floats."""
FLOATS = ("float-quantized", "naive-quantized")


class _Scheme(Foreign):
    """Weights of a group of matrices, by compressed-tensors."""

    type: str = "int"
    num_bits: int = 4
    symmetric: Switch = True


class _Group(Foreign):
    weights: _Scheme | None = Field(None, description="an object")


class Quantised(Foreign):
    """Quantisation of a checkpoint, by bitsandbytes or another method."""

    quant_method: str = "bitsandbytes"
    bits: int | None = None
    sym: Switch = True
    desc_act: Switch = False
    packing_format: str | None = None
    weight_block_size: list[int] | None = None
    format: str | None = None
    config_groups: dict[str, _Group] | None = Field(None, description="an object")
    load_in_8bit: Switch = False
    load_in_4bit: Switch = False
    bnb_4bit_quant_type: str = "fp4"
    bnb_4bit_use_double_quant: Switch = False

    @property
    def kind(self) -> Literal["int4", "fp8", ""]:
        """Symmetric 4-bit integers or 8-bit floats that are read as stored; empty: neither."""
        integers = self.bits == 4 and self.sym and not self.desc_act
        match self.quant_method:
            case "fp8" if self.weight_block_size in (None, [SIDE, SIDE]):
                return "fp8"
            case "gptq" if integers:
                return "int4"
            case "auto-round" if integers and (self.packing_format or "").endswith("auto_gptq"):
                return "int4"
            case "compressed-tensors":
                schemes = [group.weights for group in (self.config_groups or {}).values()]
                kinds = {(one.type, one.num_bits, one.symmetric) if one else ("", 0, False) for one in schemes}
                if kinds == {("int", 4, True)} and self.format == "pack-quantized":
                    return "int4"
                return "fp8" if kinds == {("float", 8, True)} and self.format in FLOATS else ""
        return ""


_named = BeforeValidator(lambda value: {"quant_method": value} if isinstance(value, str) else value or None)


class StoredWeights(Foreign):
    """Storage of the weights by config.json; the dtype has an old name and a new one."""

    dtype: str | None = None
    torch_dtype: str | None = None
    quantization_config: Annotated[Quantised | None, _named] = Field(None, description="an object, or a method's name")
