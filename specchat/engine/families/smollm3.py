"""SmolLM3 (Bakouch et al. 2025): Llama's layers, every fourth without rotary embeddings (NoPE)."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from specchat.engine.families.parts.family import Family, block, decoder
from specchat.engine.families.parts.settings import Settings, Theta
from specchat.engine.foreign import Count, Switch
from specchat.engine.recipe import Layer, Recipe


class SmolLM3Settings(Settings):
    no_rope_layers: Annotated[list[int] | None, Field(description="a list of 0 and 1")] = None
    """1 for each layer with rotary embeddings."""
    no_rope_layer_interval: Count = 4
    rope_theta: Theta = 2e6
    tie_word_embeddings: Switch = True


def recipe(c: SmolLM3Settings) -> Recipe:
    layers, interval = c.num_hidden_layers, c.no_rope_layer_interval
    turns = c.no_rope_layers or [(index + 1) % interval for index in range(layers)]
    if len(turns) != layers:
        raise ValueError(f"no_rope_layers has {len(turns)} values, and num_hidden_layers is {layers}")

    def layer(index: int, prefix: str) -> Layer:
        bias = c.attention_bias
        plain = block(c, prefix, qkv_bias=bias, out_bias=bias, mlp_bias=c.mlp_bias)
        if turns[index]:
            return plain
        return replace(plain, mixer=replace(plain.attention, rope=None, window=c.window))

    return decoder(c, layer)


FAMILY = Family("smollm3", "SmolLM3", recipe, SmolLM3Settings)
