"""Nemotron and Minitron (NVIDIA 2024): LayerNorms, squared ReLU in an MLP without a gate, a part of heads rotated."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder, layer_norms, partly, ungated
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import Number
from specchat.engine.recipe import Layer, Recipe


class NemotronSettings(Settings):
    hidden_act: str = "relu2"
    norm_eps: Number = 1e-5


def recipe(c: NemotronSettings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        feed = ungated(c, f"{prefix}.mlp.up_proj", f"{prefix}.mlp.down_proj", bias=c.mlp_bias)
        plain = block(c, prefix, feed, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        return replace(plain, mixer=partly(c, plain.attention, 0.5))

    return layer_norms(decoder(c, layer), c.norm_eps, bias=True, plus_one=True)


FAMILY = Family("nemotron", "Nemotron", recipe, NemotronSettings)
