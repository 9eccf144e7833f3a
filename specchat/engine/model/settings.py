"""The keys of config.json and generation_config.json that are read, with the kinds of their values."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from specchat.engine.foreign import A_NUMBER, LARGEST, OR_NONE, Count, Foreign, MaybeCount, Number, Switch, Table

MaybeNumber = Annotated[Number | None, OR_NONE, Field(description=A_NUMBER)]
TokenId = Annotated[int, Field(gt=-LARGEST, lt=LARGEST)]


class Ends(Foreign):
    """Which tokens end a reply, in config.json and generation_config.json."""

    eos_token_id: TokenId | list[TokenId] | None = Field(None, description="a token's number or a list of them")

    @property
    def ends(self) -> frozenset[int]:
        ids = self.eos_token_id
        return frozenset(ids if isinstance(ids, list) else [] if ids is None else [ids])


class Settings(Ends):
    """What is read of a config.json; `hidden_act` and the kind of rotary scaling are names, which are looked up."""

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: MaybeCount = None
    head_dim: MaybeCount = None
    vocab_size: Count
    max_position_embeddings: Count
    sliding_window: MaybeCount = None
    use_sliding_window: Switch = False
    rms_norm_eps: Number = 1e-6
    rope_theta: Number | None = Field(None, description=A_NUMBER)
    rope_parameters: Table
    rope_scaling: Table
    tie_word_embeddings: Switch = False
    attention_bias: Switch = False
    mlp_bias: Switch = False


class Scaling(Foreign):
    """Options of rotary embeddings."""

    rope_theta: Number | None = Field(None, description=A_NUMBER)
    factor: MaybeNumber = None
    low_freq_factor: MaybeNumber = None
    high_freq_factor: MaybeNumber = None
    original_max_position_embeddings: MaybeNumber = None
    max_position_embeddings: Number | None = Field(None, description=A_NUMBER)
    beta_fast: MaybeNumber = None
    beta_slow: MaybeNumber = None
    attention_factor: MaybeNumber = None
    mscale: MaybeNumber = None
    mscale_all_dim: MaybeNumber = None


class Quantised(Foreign):
    """How bitsandbytes or another method quantised a checkpoint."""

    quant_method: str = "bitsandbytes"
    load_in_8bit: Switch = False
    load_in_4bit: Switch = False
    bnb_4bit_quant_type: str = "fp4"
    bnb_4bit_use_double_quant: Switch = False


_named = BeforeValidator(lambda value: {"quant_method": value} if isinstance(value, str) else value or None)


class Written(Foreign):
    """How weights are kept in the files, by config.json; the dtype has an old name and a new one."""

    dtype: str | None = None
    torch_dtype: str | None = None
    quantization_config: Annotated[Quantised | None, _named] = Field(None, description="an object, or a method's name")
