"""Keys of config.json on dtype and quantisation of the stored weights."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from specchat.engine.foreign import Foreign, Switch


class Quantised(Foreign):
    """Quantisation of a checkpoint, by bitsandbytes or another method."""

    quant_method: str = "bitsandbytes"
    load_in_8bit: Switch = False
    load_in_4bit: Switch = False
    bnb_4bit_quant_type: str = "fp4"
    bnb_4bit_use_double_quant: Switch = False


_named = BeforeValidator(lambda value: {"quant_method": value} if isinstance(value, str) else value or None)


class StoredWeights(Foreign):
    """Storage of the weights by config.json; the dtype has an old name and a new one."""

    dtype: str | None = None
    torch_dtype: str | None = None
    quantization_config: Annotated[Quantised | None, _named] = Field(None, description="an object, or a method's name")
