"""StarCoder2 (Lozhkov et al. 2024): LayerNorms, biases of all products, an MLP without a gate, and a window."""

from specchat.engine.families.parts.family import Family, block, decoder, layer_norms, ungated, within
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Recipe


class Starcoder2Settings(Settings):
    hidden_act: str = "gelu_pytorch_tanh"
    num_key_value_heads: MaybeCount = 2
    norm_epsilon: Number = 1e-5
    use_bias: Switch = True
    tie_word_embeddings: Switch = True


def recipe(c: Starcoder2Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        feed = ungated(c, f"{prefix}.mlp.c_fc", f"{prefix}.mlp.c_proj", bias=c.use_bias)
        return within(c.sliding_window, block(c, prefix, feed, qkv_bias=c.use_bias, out_bias=c.use_bias))

    return layer_norms(decoder(c, layer), c.norm_epsilon, bias=True)


FAMILY = Family("starcoder2", "StarCoder2", recipe, Starcoder2Settings)
