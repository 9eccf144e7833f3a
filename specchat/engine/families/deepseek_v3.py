"""DeepSeek V3 and R1 (DeepSeek 2024): latent attention, and experts of groups. GLM-4.7 Flash has the same layers."""

from dataclasses import replace
from math import log

from specchat.engine.families.parts.family import Family, block, decoder, rope_of
from specchat.engine.families.parts.grouped import GroupedSettings, grouped
from specchat.engine.families.parts.settings import Scaling
from specchat.engine.foreign import Count, MaybeCount, Number, Switch
from specchat.engine.recipe import Attention, Latent, Layer, Matrix, Norm, Recipe

EPS = 1e-6
"""The eps of the norms of latents, whatever config.json says."""


class DeepseekV3Settings(GroupedSettings):
    """Published files leave out what is as here."""

    USUAL = 256
    moe_intermediate_size: Count = 2048
    n_group: MaybeCount = 8
    topk_group: MaybeCount = 4
    routed_scaling_factor: Number = 2.5
    first_k_dense_replace: int = 3
    kv_lora_rank: Count = 512
    q_lora_rank: MaybeCount = 1536
    qk_rope_head_dim: Count = 64
    qk_nope_head_dim: Count = 128
    v_head_dim: Count = 128
    rope_interleave: Switch = True


def latent_attention(c: DeepseekV3Settings, prefix: str) -> Attention:
    """Attention whose heads are made of latents; `prefix` begins the names of its tensors.

    Raises:
        ValueError: the rotated part of heads is odd, or values are longer than keys.
    """
    heads, rotated, plain, value = c.num_attention_heads, c.qk_rope_head_dim, c.qk_nope_head_dim, c.v_head_dim
    size, rank = plain + rotated, c.q_lora_rank
    if rotated % 2:
        raise ValueError(f"qk_rope_head_dim is {rotated}, not an even number")
    if value > size:
        raise ValueError(f"v_head_dim is {value}, more than the {size} values of a key")
    query = Matrix((f"{prefix}.q_b_proj",), (heads * size,), rank) if rank else None
    first = f"{prefix}.q_a_proj" if rank else f"{prefix}.q_proj"
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=size,
        scale=size**-0.5 * _stretch(c) ** 2,
        qkv=Matrix(
            (first, f"{prefix}.kv_a_proj_with_mqa"),
            (rank or heads * size, c.kv_lora_rank + rotated),
            c.hidden_size,
            c.attention_bias,
        ),
        out=Matrix((f"{prefix}.o_proj",), (c.hidden_size,), heads * value, c.attention_bias),
        rope=rope_of(c, rotated),
        latent=Latent(
            query,
            Norm(f"{prefix}.q_a_layernorm", rank, EPS) if rank else None,
            Matrix((f"{prefix}.kv_b_proj",), (heads * plain, heads * value), c.kv_lora_rank, by_head=(plain, value)),
            Norm(f"{prefix}.kv_a_layernorm", c.kv_lora_rank, EPS),
            c.rope_interleave,
        ),
        value_dim=None if value == size else value,
    )


def _stretch(c: DeepseekV3Settings) -> float:
    """The factor of a stretched rope on queries and keys (Peng et al. 2023), where files say that it is on them."""
    of = Scaling.model_validate(c.scaling)
    if c.scaling.get("rope_type", c.scaling.get("type", "default")) == "default" or (of.factor or 1.0) <= 1:
        return 1.0
    return 0.1 * (of.mscale_all_dim or 0.0) * log(of.factor or 1.0) + 1.0


def recipe(c: DeepseekV3Settings) -> Recipe:
    def layer(index: int, prefix: str) -> Layer:
        return grouped(c, index, prefix, replace(block(c, prefix), mixer=latent_attention(c, f"{prefix}.self_attn")))

    return decoder(c, layer)


class Glm4MoeLiteSettings(DeepseekV3Settings):
    """Published files leave out what is as here."""

    USUAL = 64
    rms_norm_eps: Number = 1e-5
    q_lora_rank: MaybeCount = 768
    qk_nope_head_dim: Count = 192
    v_head_dim: Count = 256
    num_experts_per_tok: Count = 4
    moe_intermediate_size: Count = 1536
    routed_scaling_factor: Number = 1.8
    n_group: MaybeCount = 1
    topk_group: MaybeCount = 1
    first_k_dense_replace: int = 1


FAMILY = Family("deepseek_v3", "DeepSeek V3", recipe, DeepseekV3Settings)
FLASH = Family("glm4_moe_lite", "GLM-4.7 Flash", recipe, Glm4MoeLiteSettings)
