"""Phi-3 and Phi-4 (Abdin et al. 2024): Llama's layers with fused matrices; small ones have LongRoPE, some a window."""

from dataclasses import replace

from specchat.engine.families.parts.family import Family, block, decoder, partly, within
from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import MaybeCount, Number
from specchat.engine.recipe import Layer, Recipe

LONG = "su", "yarn", "longrope"
"""Names of LongRoPE in files of any age."""


class Phi3Settings(Settings):
    """Published files leave out what is as here."""

    rms_norm_eps: Number = 1e-5
    original_max_position_embeddings: MaybeCount = 4096


def recipe(c: Phi3Settings) -> Recipe:
    options = dict(c.scaling)
    if options.get("rope_type", options.get("type")) in LONG:
        options["rope_type"] = LONG[-1]
        options.setdefault("original_max_position_embeddings", c.original_max_position_embeddings)
    c = c.model_copy(update={"rope_parameters": options})

    def layer(_: int, prefix: str) -> Layer:
        plain = block(c, prefix)
        mixer = partly(c, plain.attention, 1.0)
        mixer = replace(mixer, qkv=mixer.qkv.fused(f"{prefix}.self_attn.qkv_proj"))
        feed = replace(plain.gated, gate_up=plain.gated.gate_up.fused(f"{prefix}.mlp.gate_up_proj"))
        return within(c.sliding_window, replace(plain, mixer=mixer, feed=feed))

    return decoder(c, layer)


FAMILY = Family("phi3", "Phi-3", recipe, Phi3Settings)
