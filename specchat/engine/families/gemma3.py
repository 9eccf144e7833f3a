"""Gemma 3 (Gemma team 2025): windows in five of six layers, norms around both halves, gelu."""

from dataclasses import replace

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.family import FULL, Family
from specchat.engine.families.parts.settings import Layers, MaybeNumber, Settings
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Recipe, Unsupported


class Gemma3Settings(Settings):
    """Published files leave out what is as here."""

    vocab_size: Count = 262_208
    hidden_size: Count = 2304
    intermediate_size: Count = 9216
    num_hidden_layers: Layers = 26
    num_attention_heads: Count = 8
    num_key_value_heads: MaybeCount = 4
    head_dim: MaybeCount = 256
    max_position_embeddings: Count = 131_072
    rope_local_base_freq: Number = 10_000.0
    query_pre_attn_scalar: Number = 256.0
    sliding_window: MaybeCount = 4096
    sliding_window_pattern: Count = 6
    final_logit_softcapping: MaybeNumber = None
    use_bidirectional_attention: Switch = False
    mm_tokens_per_image: Count = 256
    tie_word_embeddings: Switch = True
    hidden_activation: str = "gelu_pytorch_tanh"


def recipe(c: Gemma3Settings) -> Recipe:
    if c.use_bidirectional_attention:
        raise Unsupported("attention to later tokens: not in specchat's decoder")
    of = parts.kinds(c, lambda index: (index + 1) % c.sliding_window_pattern > 0)

    def layer(index: int, prefix: str) -> Layer:
        name, kind = f"{prefix}.self_attn", of[index]
        plain = parts.attention(c, name, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        theta = (c.rope_theta or 1e6) if kind == FULL else c.rope_local_base_freq
        rope = parts.rope_of_kind(c, plain.head_dim, kind, theta)
        turned = replace(plain, rope=rope, scale=c.query_pre_attn_scalar**-0.5, mutual=c.mm_tokens_per_image)
        mixer = parts.head_norms(c, turned, name, plus_one=True)
        feed = parts.gated(c, f"{prefix}.mlp", act=c.hidden_activation)
        return parts.within(c.sliding_window, parts.between_norms(c, prefix, mixer, feed, plus_one=True), kind)

    made = parts.decoder(c, layer)
    norm, cap = replace(made.norm, plus_one=True), c.final_logit_softcapping or 0.0
    return replace(made, norm=norm, embed_scale=c.hidden_size**0.5, cap=cap)


FAMILY = Family("gemma3_text", "Gemma 3", recipe, Gemma3Settings, also_seeing=("gemma3",))
