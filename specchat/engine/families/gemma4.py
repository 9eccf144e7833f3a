"""Gemma 4 (Gemma team 2026): Gemma 3's order of windows and norms, values normed, wider heads in full layers."""

from dataclasses import replace

from specchat.engine.families import family as parts
from specchat.engine.families.beside import BesideSettings, beside
from specchat.engine.families.family import FULL, Family
from specchat.engine.families.per_layer import PerLayerSettings, shared, with_input, with_inputs
from specchat.engine.families.settings import MaybeNumber
from specchat.engine.families.unlike import UnlikeSettings
from specchat.engine.foreign import MaybeCount, Switch
from specchat.engine.recipe import Attention, Layer, Norm, Recipe, Unsupported

ROPES = {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}}


class Gemma4Settings(UnlikeSettings, BesideSettings, PerLayerSettings):
    sliding_window: MaybeCount = 512
    final_logit_softcapping: MaybeNumber = None
    use_bidirectional_attention: str | None = None
    tie_word_embeddings: Switch = True


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
        normed = parts.head_norms(c, replace(made, scale=1.0, rope=rope, value_norm=values), prefix)
        return shared(c, index, of, normed)

    def layer(index: int, prefix: str) -> Layer:
        mixer = attention(index, f"{prefix}.self_attn")
        width = c.intermediate_size * (2 if c.use_double_wide_mlp and index >= c.owning else 1)
        feed = parts.gated(c, f"{prefix}.mlp", act=c.hidden_activation, width=width)
        plain = with_input(c, prefix, parts.between_norms(c, prefix, mixer, feed))
        made = replace(beside(c, prefix, plain), scalar=f"{prefix}.layer_scalar")
        return parts.within(c.sliding_window, made, of[index])

    made = with_inputs(c, parts.decoder(c, layer))
    return replace(made, embed_scale=c.hidden_size**0.5, cap=c.final_logit_softcapping or 0.0)


FAMILY = Family("gemma4_text", "Gemma 4", recipe, Gemma4Settings, also_seeing=("gemma4", "gemma4_unified"))
