"""Keys of config.json on dtype and quantisation of the stored weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from specchat.clean import one_line
from specchat.engine.errors import ForeignModel
from specchat.engine.foreign import Foreign, Switch
from specchat.engine.formats.blocks import MXFP4, MXFP4_BLOCK, IntegerFormat
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.config import ModelConfig

SIDE = 128
"""Rows and columns of the weights that share a scale of 8-bit floats."""
FLOATS = ("float-quantized", "naive-quantized")
MODELOPT_FLOATS = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN")
_GPTQ, _GPTQ_V2, _AWQ = (True, False), (False, False), (False, True)
PACKINGS = {
    "gptq": {"gptq": _GPTQ, "gptq_v2": _GPTQ_V2},
    "awq": {"gemm": _AWQ},
    "auto-round": {
        "auto_round:auto_gptq": _GPTQ,
        "auto_round:gptqmodel": _GPTQ_V2,
        "auto_round:auto_awq": _AWQ,
    },
}
"""Packings of a method that are read: `less_one` and `awq` of `blocks.IntegerFormat`."""

ACTORDERS = (True, "group", "dynamic")
"""Words of compressed-tensors for groups of any inputs."""


class _Scheme(Foreign):
    """Weights of a group of matrices, by compressed-tensors."""

    type: str = "int"
    num_bits: int = 4
    symmetric: Switch = True
    strategy: Any = None
    actorder: Any = None
    group_size: Any = None


class _Group(Foreign):
    weights: _Scheme | None = Field(None, description="an object")


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
    def kind(self) -> Literal["int4", "fp8", ""]:
        """4-bit integers or 8-bit floats that are read as stored; empty: neither."""
        if self.integers is not None:
            return "int4"
        if self.quant_method == "modelopt":
            return "fp8" if self.quant_algo in MODELOPT_FLOATS else ""
        if self.quant_method == "fp8":
            return "fp8" if self.weight_block_size in (None, [SIDE, SIDE]) else ""
        floats = {(one.type, one.num_bits, one.symmetric) for one in self._schemes} == {("float", 8, True)}
        return "fp8" if floats and self.quant_method == "compressed-tensors" and self.format in FLOATS else ""

    @property
    def integers(self) -> IntegerFormat | None:
        """The storage of 4-bit integers that are read as stored; None: others, or none."""
        # Static groups are of inputs in their order, whatever order they were quantised in.
        ordered = bool(self.desc_act) and not self.static_groups
        group, own = _group(self.group_size), self.dynamic or self.extra_config
        group = MXFP4_BLOCK if own else group
        match self.quant_method:
            case "gptq":
                packing, zeros = self.checkpoint_format or self.format or "gptq", not self.sym
            case "awq":
                packing, zeros = self.version or self.format or "gemm", bool(self.zero_point)
            case "auto-round":
                packing, zeros = self.packing_format, not self.sym
            case "compressed-tensors" if {(one.type, one.num_bits) for one in self._schemes} == {("int", 4)}:
                groups = {0 if one.strategy == "channel" else _group(one.group_size) for one in self._schemes}
                zeros = not all(one.symmetric for one in self._schemes)
                group = groups.pop() if len(groups) == 1 else MXFP4_BLOCK
                ordered = any(one.actorder in ACTORDERS for one in self._schemes)
                return IntegerFormat(group, zeros, ordered=ordered) if self.format == "pack-quantized" else None
            case _:
                return None
        found = PACKINGS[self.quant_method].get(str(packing).lower())
        return IntegerFormat(group, zeros, *found, ordered) if found and self.bits == 4 else None

    @property
    def _schemes(self) -> list[_Scheme]:
        return [group.weights or _Scheme(type="") for group in (self.config_groups or {}).values()]


def _group(size: object) -> int:
    """Inputs that share a scale, by a key of config.json; 0: all of a row; the fewest there are where it is missing."""
    whole = size if isinstance(size, int) and not isinstance(size, bool) else MXFP4_BLOCK
    return max(0, whole)


_named = BeforeValidator(lambda value: {"quant_method": value} if isinstance(value, str) else value or None)


class StoredWeights(Foreign):
    """Storage of the weights by config.json; the dtype has an old name and a new one."""

    dtype: str | None = None
    torch_dtype: str | None = None
    quantization_config: Annotated[Quantised | None, _named] = Field(None, description="an object, or a method's name")

    @model_validator(mode="before")
    @classmethod
    def _of_text_part(cls, settings: Any) -> Any:
        found = quantisation_of(settings) if isinstance(settings, dict) else None
        return {**settings, "quantization_config": found} if found else settings


def quantisation_of(settings: Mapping[str, Any]) -> Any:
    """The entry of a config.json for its quantisation, which may stand in that of the text part; None without one."""
    text = settings.get("text_config")
    nested = text.get("quantization_config") if isinstance(text, dict) else None
    return settings.get("quantization_config") or nested


def stored_quant(path: Path, settings: Quantised, config: ModelConfig) -> Quant | None:
    """The quantisation by `settings`, "quantization_config" in `path`; None where it is of experts alone, or none.

    Raises:
        ForeignModel: it is none that is read here.
    """
    method = one_line(" ".join(filter(None, (settings.quant_method, settings.quant_algo))), 40)
    if method == MXFP4 or settings.kind == "fp8":
        return None
    if settings.integers is not None:
        if not settings.integers.ordered or config.recipe.takes_orders:
            return "int4"
        raise ForeignModel(
            path,
            f"its {method} weights have inputs in another order, and specchat's decoder reads those of attention and "
            "MLPs with no norm after them",
        )
    if method == "bitsandbytes":
        if settings.load_in_8bit:
            return "int8"
        if not settings.load_in_4bit:
            return None  # 16-bit weights of a model that was trained quantised
        kind = settings.bnb_4bit_quant_type
        if kind in ("nf4", "fp4"):
            return "nf4" if kind == "nf4" else "fp4"
        method = f"bitsandbytes {kind}"
    raise ForeignModel(
        path,
        f"it is quantised with {method}, and specchat's decoder runs bitsandbytes nf4, fp4, int8, int4, fp8",
    )
