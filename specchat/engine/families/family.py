"""The type of a family, and the parts that most families share, in transformers' names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from specchat.engine.families.settings import Scaling, Settings
from specchat.engine.foreign import shown
from specchat.engine.recipe import Attention, Gated, Layer, Matrix, Norm, Recipe, Rope, Unsupported

SILU = ("silu", "swish")
"""Names of the supported activation in config.json."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
ROPE_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (),
}
"""Supported scalings of rotary embeddings, with their required options."""


@dataclass(frozen=True)
class Family:
    """A model family.

    Attributes:
        model_type: its name in config.json.
        name: for people.
        recipe: makes a recipe from `settings`, the keys of config.json. It raises ValueError for a wrong value and
            `Unsupported` for an unsupported feature.
    """

    model_type: str
    name: str
    recipe: Callable[[Any], Recipe]
    settings: type[Settings] = Settings


def attention(c: Settings, prefix: str, *, qkv_bias: bool = False, out_bias: bool = False) -> Attention:
    """Full causal attention with `c`'s rope; `prefix` begins the names of its tensors.

    Raises:
        ValueError: the number of heads or their size is wrong.
    """
    heads = c.num_attention_heads
    kv_heads = c.num_key_value_heads or heads
    if heads % kv_heads:
        raise ValueError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    head_dim = c.head_dim or c.hidden_size // heads
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"attention heads have {head_dim} values (head_dim), not an even number of them")
    query, key = heads * head_dim, kv_heads * head_dim
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        qkv=Matrix(tuple(f"{prefix}.{name}" for name in PROJECTIONS), (query, key, key), c.hidden_size, qkv_bias),
        out=Matrix((f"{prefix}.o_proj",), (c.hidden_size,), query, out_bias),
        rope=rope_of(c, head_dim),
    )


def head_norms(c: Settings, mixer: Attention, prefix: str, *, together: bool = False) -> Attention:
    """`mixer` with norms of queries and keys: of each head, or `together` over all heads."""
    queries, keys = (mixer.heads, mixer.kv_heads) if together else (1, 1)
    return replace(
        mixer,
        query_norm=Norm(f"{prefix}.q_norm", queries * mixer.head_dim, c.rms_norm_eps),
        key_norm=Norm(f"{prefix}.k_norm", keys * mixer.head_dim, c.rms_norm_eps),
    )


def gated(c: Settings, prefix: str, *, bias: bool = False) -> Gated:
    """A gated MLP; `prefix` begins the names of its tensors.

    Raises:
        Unsupported: its activation is not silu.
    """
    if c.hidden_act not in SILU:
        raise Unsupported(f"specchat's decoder has no hidden_act {shown(c.hidden_act)}, only silu")
    inner = c.intermediate_size
    return Gated(
        Matrix((f"{prefix}.gate_proj", f"{prefix}.up_proj"), (inner, inner), c.hidden_size, bias),
        Matrix((f"{prefix}.down_proj",), (c.hidden_size,), inner, bias),
    )


def block(c: Settings, prefix: str, *, qkv_bias: bool = False, out_bias: bool = False, mlp_bias: bool = False) -> Layer:
    """Llama's layer (Touvron et al. 2023): a norm before attention and one before a gated MLP."""
    return Layer(
        mixer=attention(c, f"{prefix}.self_attn", qkv_bias=qkv_bias, out_bias=out_bias),
        feed=gated(c, f"{prefix}.mlp", bias=mlp_bias),
        pre_mixer=Norm(f"{prefix}.input_layernorm", c.hidden_size, c.rms_norm_eps),
        pre_feed=Norm(f"{prefix}.post_attention_layernorm", c.hidden_size, c.rms_norm_eps),
    )


def decoder(c: Settings, layer: Callable[[int, str], Layer]) -> Recipe:
    """A decoder of `c`'s number of layers: layer(i, prefix) makes layer i with tensors below the prefix."""
    embed = Matrix(("model.embed_tokens",), (c.vocab_size,), c.hidden_size)
    return Recipe(
        layers=tuple(layer(index, f"model.layers.{index}") for index in range(c.num_hidden_layers)),
        embed=embed,
        norm=Norm("model.norm", c.hidden_size, c.rms_norm_eps),
        head=embed if c.tie_word_embeddings else replace(embed, names=("lm_head",)),
    )


def described(recipe: Recipe) -> dict[str, Any]:
    """The settings that make layers like the first one of `recipe`, in the keys of config.json."""
    layer, rope = recipe.layers[0], next((rope for rope in recipe.ropes if rope is not None), None)
    return {
        "hidden_size": recipe.hidden,
        "intermediate_size": layer.feed.width,
        "num_hidden_layers": len(recipe.layers),
        "num_attention_heads": layer.mixer.heads,
        "num_key_value_heads": layer.mixer.kv_heads,
        "head_dim": layer.mixer.head_dim,
        "vocab_size": recipe.vocab,
        "rms_norm_eps": recipe.norm.eps,
        **({"rope_theta": rope.theta} if rope else {}),
        **({"rope_scaling": {**rope.options, "rope_type": rope.kind}} if rope and rope.kind != "default" else {}),
        "tie_word_embeddings": recipe.tied,
        "hidden_act": "silu",
    }


def rope_of(given: Settings, width: int) -> Rope:
    """The rotary embeddings by `given`, over `width` values.

    Raises:
        ValueError: a value is wrong.
        KeyError: one is missing.
        Unsupported: their scaling is unknown.
    """
    options = dict(given.scaling)
    scaling = Scaling.model_validate(options)
    theta = scaling.rope_theta or given.rope_theta or 10000.0
    kind = options.get("rope_type", options.get("type", "default"))
    if not isinstance(kind, str):
        raise ValueError(f"rope_type is {shown(kind)}, not a text")
    if kind not in ROPE_NEEDS:
        raise Unsupported(f"specchat's decoder has no rope scaling {shown(kind)} ({', '.join(ROPE_NEEDS)})")
    options.setdefault("max_position_embeddings", given.max_position_embeddings)
    if missing := [key for key in ROPE_NEEDS[kind] if getattr(scaling, key) is None]:
        raise KeyError(missing[0])
    if kind == "llama3" and options["low_freq_factor"] >= options["high_freq_factor"]:
        raise ValueError("low_freq_factor is not below high_freq_factor")
    if kind == "yarn" and theta <= 1:
        raise ValueError(f"rope_theta is {theta}, and yarn needs more than 1")
    return Rope(theta, kind, width, options)
