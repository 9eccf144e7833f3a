"""OLMoE (Muennighoff et al. 2024): Llama's layers with norms over all queries and all keys, and experts as MLP."""

from dataclasses import replace

from specchat.engine.families.parts.experts import Chosen, ExpertsSettings, mixture
from specchat.engine.families.parts.family import Family, block, decoder, head_norms
from specchat.engine.families.parts.settings import MaybeNumber
from specchat.engine.foreign import Number, Switch
from specchat.engine.recipe import Layer, Recipe, Unsupported


class OlmoeSettings(ExpertsSettings):
    """Published files leave out what is as here."""

    USUAL = 64
    rms_norm_eps: Number = 1e-5
    num_experts_per_tok: Chosen = 8
    norm_topk_prob: Switch = False
    clip_qkv: MaybeNumber = None


def recipe(c: OlmoeSettings) -> Recipe:
    if c.clip_qkv:
        raise Unsupported("bounds of queries, keys and values (clip_qkv): not in specchat's decoder")

    def layer(_: int, prefix: str) -> Layer:
        plain = block(c, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        mixer = head_norms(c, plain.attention, f"{prefix}.self_attn", together=True)
        experts = mixture(c, f"{prefix}.mlp", c.intermediate_size, renormalised=c.norm_topk_prob)
        return replace(plain, mixer=mixer, feed=experts)

    return decoder(c, layer)


FAMILY = Family("olmoe", "OLMoE", recipe, OlmoeSettings)
