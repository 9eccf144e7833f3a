"""Gemma 2 (Gemma team 2024): windows in every other layer, caps on attention scores and logits, norms around halves."""

from dataclasses import replace

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.family import Family
from specchat.engine.families.parts.settings import MaybeNumber, Settings
from specchat.engine.foreign import MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Recipe, Unsupported


class Gemma2Settings(Settings):
    """Published files leave out what is as here."""

    head_dim: MaybeCount = 256
    query_pre_attn_scalar: Number = 256.0
    sliding_window: MaybeCount = 4096
    attn_logit_softcapping: MaybeNumber = 50.0
    final_logit_softcapping: MaybeNumber = 30.0
    use_bidirectional_attention: Switch = False
    tie_word_embeddings: Switch = True
    hidden_activation: str = "gelu_pytorch_tanh"


def recipe(c: Gemma2Settings) -> Recipe:
    if c.use_bidirectional_attention:
        raise Unsupported("attention to later tokens: not in specchat's decoder")
    of = parts.kinds(c, lambda index: index % 2 == 0)

    def layer(index: int, prefix: str) -> Layer:
        plain = parts.attention(c, f"{prefix}.self_attn", qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        mixer = replace(plain, scale=c.query_pre_attn_scalar**-0.5, score_cap=c.attn_logit_softcapping or 0.0)
        feed = parts.gated(c, f"{prefix}.mlp", act=c.hidden_activation)
        return parts.within(c.sliding_window, parts.between_norms(c, prefix, mixer, feed, plus_one=True), of[index])

    made = parts.decoder(c, layer)
    norm, cap = replace(made.norm, plus_one=True), c.final_logit_softcapping or 0.0
    return replace(made, norm=norm, embed_scale=c.hidden_size**0.5, cap=cap)


FAMILY = Family("gemma2", "Gemma 2", recipe, Gemma2Settings)
