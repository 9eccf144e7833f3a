"""Schemas of the keys of config.json and generation_config.json that recipes need."""

from typing import Annotated, Any

from pydantic import Field

from specchat.engine.foreign import A_NUMBER, LARGEST, OR_NONE, Count, Foreign, MaybeCount, Number, Switch, Table

MaybeNumber = Annotated[Number | None, OR_NONE, Field(description=A_NUMBER)]
Theta = Annotated[Number | None, Field(description=A_NUMBER)]
"""The base of rotary embeddings; None: 10,000."""
Factors = Annotated[list[Number] | None, OR_NONE, Field(description="a list of positive numbers")]
MOST_LAYERS = 1024
"""No published model has a third of them, and a recipe lists them all."""
Layers = Annotated[int, Field(gt=0, le=MOST_LAYERS, description=f"a number of layers up to {MOST_LAYERS}")]
TokenId = Annotated[int, Field(gt=-LARGEST, lt=LARGEST)]


class Ends(Foreign):
    """Tokens that end a reply, in config.json and generation_config.json."""

    eos_token_id: TokenId | list[TokenId] | None = Field(None, description="a token's number or a list of them")

    @property
    def ends(self) -> frozenset[int]:
        ids = self.eos_token_id
        return frozenset(ids if isinstance(ids, list) else [] if ids is None else [ids])


class Settings(Ends):
    """The keys of config.json that most families have; a family with others adds them in a class of its own."""

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    num_key_value_heads: MaybeCount = None
    head_dim: MaybeCount = None
    vocab_size: Count
    max_position_embeddings: Count
    sliding_window: MaybeCount = None
    use_sliding_window: Switch = False
    layer_types: Annotated[list[str] | None, Field(description="a list of kinds of attention")] = None
    rms_norm_eps: Number = 1e-6
    rope_theta: Theta = None
    rope_parameters: Table
    rope_scaling: Table
    partial_rotary_factor: MaybeNumber = None
    tie_word_embeddings: Switch = False
    attention_bias: Switch = False
    mlp_bias: Switch = False
    hidden_act: str = "silu"

    @property
    def window(self) -> int:
        """Positions that a token attends to, of families whose files say `use_sliding_window`; 0: all before it."""
        return (self.sliding_window or 0) if self.use_sliding_window else 0

    @property
    def scaling(self) -> dict[str, Any]:
        """Options of the rotary embeddings: of transformers 5, or those of older checkpoints with rope_theta."""
        return self.rope_parameters or self.rope_scaling

    @property
    def scalings(self) -> list[dict[str, Any]]:
        """The options of every kind of attention, where they differ by kind."""
        kinds = [options for options in self.rope_parameters.values() if isinstance(options, dict)]
        return kinds or [self.scaling]


class Scaling(Foreign):
    """Options of rotary embeddings."""

    rope_theta: Theta = None
    factor: MaybeNumber = None
    partial_rotary_factor: MaybeNumber = None
    short_factor: Factors = None
    long_factor: Factors = None
    low_freq_factor: MaybeNumber = None
    high_freq_factor: MaybeNumber = None
    original_max_position_embeddings: MaybeNumber = None
    max_position_embeddings: Number | None = Field(None, description=A_NUMBER)
    beta_fast: MaybeNumber = None
    beta_slow: MaybeNumber = None
    attention_factor: MaybeNumber = None
    llama_4_scaling_beta: MaybeNumber = None
    mscale: MaybeNumber = None
    mscale_all_dim: MaybeNumber = None
