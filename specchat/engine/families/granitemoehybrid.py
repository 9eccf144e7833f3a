"""Granite 4 H (IBM 2025): layers of Mamba 2, and of attention mostly without rope; experts beside a shared MLP."""

from dataclasses import replace
from typing import Literal

from specchat.engine.families.granitemoe import GraniteMoeSettings, experts, shared_mlp
from specchat.engine.families.parts.delta import LINEAR
from specchat.engine.families.parts.family import BEFORE, FULL, Family, attention, decoder, kinds
from specchat.engine.families.parts.mamba import MambaSettings, MambaShape, mamba
from specchat.engine.foreign import Count, Switch
from specchat.engine.recipe import Experts, Gated, Layer, Norm, Recipe

OLDER = {"mamba": LINEAR, "attention": FULL}
"""Kinds of layers in published files."""


class GraniteHybridSettings(GraniteMoeSettings, MambaSettings):
    shared_intermediate_size: Count = 1024
    position_embedding_type: str | None = None
    mamba_n_heads: Count = 128
    mamba_n_groups: Count = 1
    mamba_d_state: Count = 256
    mamba_d_head: Count | Literal["auto"] = "auto"
    mamba_d_conv: Count = 4
    mamba_expand: Count = 2
    mamba_conv_bias: Switch = True
    mamba_proj_bias: Switch = False

    @property
    def shape(self) -> MambaShape:
        inner, heads = self.mamba_expand * self.hidden_size, self.mamba_n_heads
        head_dim = inner // heads if self.mamba_d_head == "auto" else self.mamba_d_head
        if heads * head_dim != inner:
            raise ValueError(f"mamba_n_heads {heads} of {head_dim} values are not mamba_expand times hidden_size")
        return MambaShape(heads, head_dim, self.mamba_n_groups, self.mamba_d_state, self.mamba_d_conv)


def recipe(c: GraniteHybridSettings) -> Recipe:
    named = [OLDER.get(kind, kind) for kind in c.layer_types or ()]
    of = kinds(c.model_copy(update={"layer_types": named}), lambda _: True, LINEAR)

    def layer(index: int, prefix: str) -> Layer:
        before, between = (Norm(f"{prefix}.{end}", c.hidden_size, c.rms_norm_eps) for end in BEFORE)
        if of[index] == LINEAR:
            biases = {"conv_bias": c.mamba_conv_bias, "bias": c.mamba_proj_bias}
            mixer = mamba(c, f"{prefix}.mamba", c.shape, c.rms_norm_eps, **biases)
            return Layer(mixer, feed(c, prefix), before, between, residual=c.residual_multiplier)
        bias = c.attention_bias
        plain = attention(c, f"{prefix}.self_attn", qkv_bias=bias, out_bias=bias)
        rope = plain.rope if c.position_embedding_type == "rope" else None
        attends = replace(plain, scale=c.attention_multiplier, rope=rope)
        return Layer(attends, feed(c, prefix), before, between, residual=c.residual_multiplier)

    return replace(decoder(c, layer), embed_scale=c.embedding_multiplier, logit_scale=1 / c.logits_scaling)


def feed(c: GraniteHybridSettings, prefix: str) -> Gated | Experts:
    return experts(c, prefix) if c.experts else shared_mlp(c, prefix)


FAMILY = Family("granitemoehybrid", "Granite 4 H", recipe, GraniteHybridSettings)
