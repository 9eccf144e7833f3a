"""Apertus (Swiss AI 2025): Llama's layers with norms of heads and an MLP without a gate, whose xIELU is learned."""

from typing import Any

from specchat.engine.families.parts.family import Family, attention, decoder, head_norms, ungated
from specchat.engine.families.parts.settings import Settings, Theta
from specchat.engine.foreign import Number
from specchat.engine.recipe import Layer, Norm, Recipe

THETA = 12e6
ROPE = {
    "rope_type": "llama3",
    "rope_theta": THETA,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
"""The rotary embeddings where config.json says nothing of scaling, whatever `rope_theta` it has."""


class ApertusSettings(Settings):
    hidden_act: str = "xielu"
    rms_norm_eps: Number = 1e-5
    rope_theta: Theta = THETA

    @property
    def scaling(self) -> dict[str, Any]:
        return super().scaling or ROPE


def recipe(c: ApertusSettings) -> Recipe:
    def layer(_: int, prefix: str) -> Layer:
        mixer = attention(c, f"{prefix}.self_attn", qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        pre_mixer, pre_feed = (
            Norm(f"{prefix}.{half}_layernorm", c.hidden_size, c.rms_norm_eps) for half in ("attention", "feedforward")
        )
        feed = ungated(c, f"{prefix}.mlp.up_proj", f"{prefix}.mlp.down_proj")
        return Layer(head_norms(c, mixer, f"{prefix}.self_attn"), feed, pre_mixer, pre_feed)

    return decoder(c, layer)


FAMILY = Family("apertus", "Apertus", recipe, ApertusSettings)
