"""Gemma 4 (Gemma team 2026): Gemma 3's order of windows and norms, values normed, wider heads in full layers.

Heads may differ by layer, and experts stand beside an MLP that every token has, each with norms of their own.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.experts import Count, MaybeChosen
from specchat.engine.families.parts.family import FULL, Family
from specchat.engine.families.parts.per_layer import PerLayerSettings, shared, with_input, with_inputs
from specchat.engine.families.parts.settings import MaybeNumber
from specchat.engine.foreign import OR_NONE, Foreign, MaybeCount, Switch
from specchat.engine.recipe import Apart, Attention, Experts, Layer, Matrix, Norm, Recipe, Unsupported

ROPES = {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}}

PICTURE = 280
"""Most tokens of a picture, where the settings of its processor name none."""


class Heads(Foreign):
    """Heads of one layer, as transformers saves them. None: as in the other layers."""

    head_dim: MaybeCount = None
    num_key_value_heads: MaybeCount = None


class Gemma4Settings(PerLayerSettings):
    head_dim: MaybeCount = 256
    global_head_dim: MaybeCount = 512
    num_global_key_value_heads: MaybeCount = None
    attention_k_eq_v: Switch = False
    """Values of full attention are its keys before their norm."""
    per_layer_config: Annotated[
        dict[str, Heads] | None, OR_NONE, Field(description="an object with objects of some layers' heads")
    ] = None
    enable_moe_block: Switch = False
    num_experts: Count = None
    top_k_experts: MaybeChosen = None
    moe_intermediate_size: MaybeCount = None
    hidden_activation: str = "gelu_pytorch_tanh"
    sliding_window: MaybeCount = 512
    final_logit_softcapping: MaybeNumber = None
    use_bidirectional_attention: str | None = None
    tie_word_embeddings: Switch = True

    def of_layer(self, index: int, kind: str) -> "Gemma4Settings":
        """The settings with the heads of layer `index`, whose attention is of a kind."""
        if self.per_layer_config is not None:
            own = self.per_layer_config.get(str(index), Heads())
        else:
            kv_heads = self.num_global_key_value_heads if self.attention_k_eq_v else None
            own = Heads(head_dim=self.global_head_dim, num_key_value_heads=kv_heads) if kind == FULL else Heads()
        return self.model_copy(update=own.model_dump(exclude_none=True))


def recipe(c: Gemma4Settings) -> Recipe:
    if c.use_bidirectional_attention == "all":
        raise Unsupported("attention to later tokens: not in specchat's decoder")
    c = c.model_copy(update={"rope_parameters": c.rope_parameters or ROPES})
    # The last layer sees all, whatever its kind is said to be.
    of = [*parts.kinds(c, lambda index: (index + 1) % 6 > 0)[:-1], FULL]

    def attention(index: int, prefix: str) -> Attention:
        kind = of[index]
        own = c.of_layer(index, kind)
        made = parts.attention(own, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        if kind == FULL and c.attention_k_eq_v:
            query, key, _ = made.qkv.names
            made = replace(made, qkv=replace(made.qkv, names=(query, key, key)))
        rope = parts.rope_of_kind(own, made.head_dim, kind, 1e4)
        values = Norm("", made.head_dim, c.rms_norm_eps)
        mutual = PICTURE if kind != FULL and c.use_bidirectional_attention == "vision" else 0
        made = replace(made, scale=1.0, rope=rope, value_norm=values, mutual=mutual)
        normed = parts.head_norms(c, made, prefix)
        return shared(c, index, of, normed)

    def layer(index: int, prefix: str) -> Layer:
        mixer = attention(index, f"{prefix}.self_attn")
        width = c.intermediate_size * (2 if c.use_double_wide_mlp and index >= c.owning else 1)
        feed = parts.gated(c, f"{prefix}.mlp", act=c.hidden_activation, width=width)
        plain = with_input(c, prefix, parts.between_norms(c, prefix, mixer, feed))
        made = replace(with_experts(c, prefix, plain), scalar=f"{prefix}.layer_scalar")
        return parts.within(c.sliding_window, made, of[index])

    made = with_inputs(c, parts.decoder(c, layer))
    return replace(made, embed_scale=c.hidden_size**0.5, cap=c.final_logit_softcapping or 0.0)


def with_experts(c: Gemma4Settings, prefix: str, layer: Layer) -> Layer:
    """`layer` with experts beside its MLP, if `c` asks for some; `prefix` begins the names of their tensors.

    Raises:
        ValueError: a number is missing, or a token is to have more experts than there are.
    """
    if not c.enable_moe_block:
        return layer
    count, top, width = c.num_experts, c.top_k_experts, c.moe_intermediate_size
    if not count or not top or not width:
        key = "num_experts" if not count else "top_k_experts" if not top else "moe_intermediate_size"
        raise ValueError(f"enable_moe_block asks for experts, and {key} is {getattr(c, key) or 'missing'}")
    if top > count:
        raise ValueError(f"top_k_experts is {top}, and a layer has {count} experts")
    assert not isinstance(layer.feed, Experts)
    assert layer.pre_feed is not None

    def norm(name: str, factor: float = 1.0) -> Norm:
        return Norm(f"{prefix}.{name}", c.hidden_size, c.rms_norm_eps, factor=factor)

    experts = Experts(
        router=Matrix((f"{prefix}.router.proj",), (count,), c.hidden_size, dense=True),
        each=parts.gated(c, f"{prefix}.experts.{{}}", act=c.hidden_activation, width=width),
        count=count,
        top=top,
        renormalised=True,
        factors=f"{prefix}.router.per_expert_scale",
        shared=layer.feed,
        apart=Apart(
            router=norm("router.norm", c.hidden_size**-0.5),
            pre_experts=norm("pre_feedforward_layernorm_2"),
            post_experts=norm("post_feedforward_layernorm_2"),
            pre_shared=layer.pre_feed,
            post_shared=norm("post_feedforward_layernorm_1"),
        ),
    )
    return replace(layer, feed=experts, pre_feed=None)


FAMILY = Family("gemma4_text", "Gemma 4", recipe, Gemma4Settings, also_seeing=("gemma4", "gemma4_unified"))
