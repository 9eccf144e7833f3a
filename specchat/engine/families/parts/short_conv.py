"""Layers of short convolutions, and of attention between them, in the names of LFM2."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.settings import Settings, Theta
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Attention, Gated, Matrix, Norm, ShortConv


class ShortConvSettings(Settings):
    """Published files leave out what is as here."""

    intermediate_size: Count = 12288
    block_ff_dim: MaybeCount = None
    """Takes the place of intermediate_size."""
    block_auto_adjust_ff_dim: bool = True
    block_ffn_dim_multiplier: Number = 1.0
    block_multiple_of: Count = 256
    num_key_value_heads: MaybeCount = 8
    norm_eps: Number = 1e-5
    rope_theta: Theta = 1e6
    conv_L_cache: Count = 3
    conv_bias: Switch = False
    full_attn_idxs: Annotated[list[int] | None, Field(description="a list of layers")] = None
    tie_word_embeddings: Switch = True
    tie_embedding: Annotated[bool | None, Field(description="true or false")] = None
    """Takes the place of tie_word_embeddings."""

    @property
    def width(self) -> int:
        """Values between the products of an MLP."""
        whole = self.block_ff_dim or self.intermediate_size
        if not self.block_auto_adjust_ff_dim:
            return whole
        width = int(self.block_ffn_dim_multiplier * int(2 * whole / 3))
        return -(-width // self.block_multiple_of) * self.block_multiple_of


def short_conv(c: ShortConvSettings, prefix: str) -> ShortConv:
    """A short convolution; `prefix` begins the names of its tensors.

    Raises:
        ValueError: its channels are not an even number.
    """
    if c.hidden_size % 2:
        raise ValueError(f"hidden_size is {c.hidden_size}, and a short convolution needs an even number")
    return ShortConv(
        taps=c.conv_L_cache,
        mix=Matrix((f"{prefix}.in_proj",), (c.hidden_size,) * 3, c.hidden_size),
        out=Matrix((f"{prefix}.out_proj",), (c.hidden_size,), c.hidden_size),
        convolution=f"{prefix}.conv.weight",
    )


def attention(c: ShortConvSettings, prefix: str) -> Attention:
    """Attention with norms of heads."""
    made = parts.attention(c, prefix)
    query, key = (Norm(f"{prefix}.{name}_layernorm", made.head_dim, c.norm_eps) for name in "qk")
    return replace(made, out=made.out.fused(f"{prefix}.out_proj"), query_norm=query, key_norm=key)


def mlp(c: ShortConvSettings, prefix: str) -> Gated:
    """A gated MLP."""
    made = parts.gated(c, prefix, width=c.width)
    names = tuple(f"{prefix}.{name}" for name in ("w1", "w3"))
    return replace(made, gate_up=replace(made.gate_up, names=names), down=made.down.fused(f"{prefix}.w2"))
