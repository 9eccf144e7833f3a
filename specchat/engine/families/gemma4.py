"""Gemma 4 dense (Gemma team 2026): Gemma 3's order of windows and norms, values normed, wider heads in full layers."""

from dataclasses import replace

from specchat.engine.families import family as parts
from specchat.engine.families.family import FULL, Family
from specchat.engine.families.settings import MaybeNumber, Settings
from specchat.engine.foreign import MaybeCount, Switch
from specchat.engine.recipe import Attention, Layer, Norm, Recipe, Unsupported

ROPES = {FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}}


class Gemma4Settings(Settings):
    head_dim: MaybeCount = 256
    global_head_dim: MaybeCount = 512
    num_global_key_value_heads: MaybeCount = None
    attention_k_eq_v: Switch = False
    sliding_window: MaybeCount = 512
    final_logit_softcapping: MaybeNumber = None
    hidden_size_per_layer_input: MaybeCount = 256
    num_kv_shared_layers: MaybeCount = None
    enable_moe_block: Switch = False
    use_bidirectional_attention: str | None = None
    tie_word_embeddings: Switch = True
    hidden_activation: str = "gelu_pytorch_tanh"


def recipe(c: Gemma4Settings) -> Recipe:
    if c.hidden_size_per_layer_input or c.num_kv_shared_layers:
        raise Unsupported("per-layer embeddings and layers that share KV entries: not in specchat's decoder yet")
    if c.enable_moe_block or c.use_bidirectional_attention == "all":
        raise Unsupported("experts beside an MLP, or attention to later tokens: not in specchat's decoder yet")
    c = c.model_copy(update={"rope_parameters": c.rope_parameters or ROPES})
    # The last layer sees all, whatever its kind is said to be.
    of = [*parts.kinds(c, lambda index: (index + 1) % 6 > 0)[:-1], FULL]

    def attention(prefix: str, kind: str) -> Attention:
        wide = {"head_dim": c.global_head_dim or c.head_dim}
        if c.attention_k_eq_v and c.num_global_key_value_heads:
            wide["num_key_value_heads"] = c.num_global_key_value_heads
        own = c.model_copy(update=wide) if kind == FULL else c
        made = parts.attention(own, prefix, qkv_bias=c.attention_bias, out_bias=c.attention_bias)
        if kind == FULL and c.attention_k_eq_v:
            query, key, _ = made.qkv.names
            made = replace(made, qkv=replace(made.qkv, names=(query, key, key)))
        rope = parts.rope_of_kind(own, made.head_dim, kind, 1e4)
        values = Norm("", made.head_dim, c.rms_norm_eps)
        return parts.head_norms(c, replace(made, scale=1.0, rope=rope, value_norm=values), prefix)

    def layer(index: int, prefix: str) -> Layer:
        mixer = attention(f"{prefix}.self_attn", of[index])
        plain = parts.between_norms(c, prefix, mixer, parts.gated(c, f"{prefix}.mlp", act=c.hidden_activation))
        return parts.within(c.sliding_window, replace(plain, scalar=f"{prefix}.layer_scalar"), of[index])

    made = parts.decoder(c, layer)
    return replace(made, embed_scale=c.hidden_size**0.5, cap=c.final_logit_softcapping or 0.0)


FAMILY = Family("gemma4_text", "Gemma 4", recipe, Gemma4Settings, also_seeing=("gemma4", "gemma4_unified"))
