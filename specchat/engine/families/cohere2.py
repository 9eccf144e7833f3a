"""Command R7B (Cohere 2024): parallel halves after one LayerNorm, windows with rope in three of four layers."""

from dataclasses import replace

from specchat.engine.families.parts import family as parts
from specchat.engine.families.parts.family import FULL, Family
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Norm, Recipe


class Cohere2Settings(Settings):
    """Published files leave out what is as here."""

    layer_norm_eps: Number = 1e-5
    logit_scale: Number = 0.0625
    sliding_window: MaybeCount = 4096
    sliding_window_pattern: Count = 4
    tie_word_embeddings: Switch = True


def recipe(c: Cohere2Settings) -> Recipe:
    of = parts.kinds(c, lambda index: (index + 1) % c.sliding_window_pattern > 0)

    def layer(index: int, prefix: str) -> Layer:
        plain = parts.attention(c, f"{prefix}.self_attn", qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        paired = replace(plain, qkv=replace(plain.qkv, paired=(plain.head_dim, plain.head_dim)))
        mixer = replace(paired, rope=None) if of[index] == FULL else paired
        norm = Norm(f"{prefix}.input_layernorm", c.hidden_size, c.layer_norm_eps)
        whole = Layer(mixer, parts.gated(c, f"{prefix}.mlp"), norm, None, parallel=True)
        return parts.within(c.sliding_window, whole, of[index])

    return replace(parts.layer_norms(parts.decoder(c, layer), c.layer_norm_eps), logit_scale=c.logit_scale)


FAMILY = Family("cohere2", "Command R7B", recipe, Cohere2Settings)
