"""ERNIE 4.5 (Baidu 2025), the dense one: Llama's layers, heads rotated in pairs of neighbours."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings, Theta
from specchat.engine.foreign import MaybeCount, Number, Switch
from specchat.engine.recipe import Layer, Recipe


class Ernie45Settings(Settings):
    head_dim: MaybeCount = 128
    rms_norm_eps: Number = 1e-5
    rope_theta: Theta = 500_000.0
    tie_word_embeddings: Switch = True
    use_bias: Switch = False


def recipe(c: Ernie45Settings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=c.use_bias, out_bias=c.use_bias, mlp_bias=c.use_bias)
        mixer = plain.attention
        return replace(plain, mixer=replace(mixer, qkv=replace(mixer.qkv, paired=(mixer.head_dim, mixer.head_dim))))

    return decoder(c, layer)


FAMILY = Family("ernie4_5", "ERNIE 4.5", recipe, Ernie45Settings)
