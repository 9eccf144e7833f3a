"""Keys of "quantization_config" in config.json, of all methods."""

from typing import Any

from pydantic import Field

from specchat.engine.foreign import Foreign, Switch


class Scheme(Foreign):
    """Weights of a group of matrices, by compressed-tensors."""

    type: str = "int"
    num_bits: int = 4
    symmetric: Switch = True
    strategy: Any = None
    actorder: Any = None
    group_size: Any = None


class _Group(Foreign):
    weights: Scheme | None = Field(None, description="an object")


class Quantised(Foreign):
    """Quantisation of a checkpoint, by bitsandbytes or another method; keys of type `Any` differ between methods."""

    quant_method: str = "bitsandbytes"
    quant_algo: str | None = None
    bits: int | None = None
    sym: Switch = True
    desc_act: Switch = False
    static_groups: Any = None
    group_size: Any = None
    zero_point: Any = True
    version: Any = None
    checkpoint_format: Any = None
    dynamic: Any = None
    extra_config: Any = None
    packing_format: str | None = None
    weight_block_size: list[int] | None = None
    format: str | None = None
    config_groups: dict[str, _Group] | None = Field(None, description="an object")
    load_in_8bit: Switch = False
    load_in_4bit: Switch = False
    bnb_4bit_quant_type: str = "fp4"
    bnb_4bit_use_double_quant: Switch = False

    @property
    def schemes(self) -> list[Scheme]:
        """The schemes of compressed-tensors' groups."""
        return [group.weights or Scheme(type="") for group in (self.config_groups or {}).values()]

    def all_have(self, **values: Any) -> bool:
        """True if there are schemes, and all have these values."""
        return bool(self.schemes) and all(
            getattr(one, name) == value for one in self.schemes for name, value in values.items()
        )

    @property
    def bitsandbytes(self) -> str:
        """The quantisation by bitsandbytes; empty: none, or another method."""
        if self.quant_method != "bitsandbytes" or not (self.load_in_8bit or self.load_in_4bit):
            return ""
        return "int8" if self.load_in_8bit else self.bnb_4bit_quant_type
