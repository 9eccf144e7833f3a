"""Keys of config.json on dtype and quantisation of the stored weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from specchat.clean import one_line
from specchat.engine.errors import ForeignModel
from specchat.engine.foreign import Foreign
from specchat.engine.formats import recognised
from specchat.engine.formats.format import Format
from specchat.engine.formats.settings import Quantised

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


def stored_format(path: Path, settings: Quantised) -> Format | None:
    """The format by `settings`, "quantization_config" in `path`; None: 16 bits.

    Raises:
        ForeignModel: it is none that is read here.
    """
    found = recognised(settings)
    if found is not None:
        return found
    method = one_line(" ".join(filter(None, (settings.quant_method, settings.quant_algo))), 40)
    if method == "bitsandbytes":
        if not settings.bitsandbytes:
            return None  # 16-bit weights of a model that was trained quantised
        method = f"bitsandbytes {settings.bitsandbytes}"
    raise ForeignModel(
        path,
        f"it is quantised with {method}, and specchat's decoder runs bitsandbytes nf4, fp4, int8, int4, fp8",
    )
