"""Gemma (Gemma team 2024), the first: Llama's layers with gelu, and norms whose files hold their weights less 1."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Switch
from specchat.engine.recipe import Layer, Norm, Recipe, Unsupported


class GemmaSettings(Settings):
    """Published files leave out what is as here."""

    num_key_value_heads: MaybeCount = 16
    head_dim: MaybeCount = 256
    hidden_act: str = "gelu_pytorch_tanh"
    tie_word_embeddings: Switch = True
    use_bidirectional_attention: Switch = False


def recipe(c: GemmaSettings) -> Recipe:
    if c.use_bidirectional_attention:
        raise Unsupported("attention to later tokens: not in specchat's decoder")
    if c.hidden_act == "gelu":  # The first files mean its approximation by tanh.
        c = c.model_copy(update={"hidden_act": "gelu_pytorch_tanh"})

    def less_one(norm: Norm | None) -> Norm | None:
        return norm and replace(norm, plus_one=True)

    def layer(_: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        return replace(plain, pre_mixer=less_one(plain.pre_mixer), pre_feed=less_one(plain.pre_feed))

    made = decoder(c, layer)
    return replace(made, norm=replace(made.norm, plus_one=True), embed_scale=c.hidden_size**0.5)


FAMILY = Family("gemma", "Gemma", recipe, GemmaSettings)
