"""The type of a family, and the parts that most families share, in transformers' names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from specchat.engine.families.parts.settings import Scaling, Settings
from specchat.engine.foreign import shown
from specchat.engine.recipe import Activation, Attention, Gated, Layer, Matrix, Norm, Recipe, Rope, Unsupported

ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
"""The supported activations by their names in config.json."""
ALONE: dict[str, Activation] = {"relu2": "relu2", "gelu_pytorch_tanh": "gelu_tanh", "xielu": "xielu"}
"""The activations of MLPs without gates."""
CURVE = ("alpha_p", "alpha_n", "beta", "eps")
"""Names of xIELU's tensors."""
CLAMPED = "clamped_swiglu"
"""The activation of gpt-oss, which config.json does not name."""
BEFORE = ("input_layernorm", "post_attention_layernorm")
"""Names of the norms before attention and MLP."""
FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of attention in "layer_types"."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj")
ROPE_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "proportional": (),
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
        also_seeing: model_types of checkpoints that read images too; their "text_config" is of this family.
        mtp: beginning of the names of the layer for multi-token prediction that its checkpoints bring
            (`heads.mtp_settings.LAYOUTS`); empty: none that is read.
    """

    model_type: str
    name: str
    recipe: Callable[[Any], Recipe]
    settings: type[Settings] = Settings
    also_seeing: tuple[str, ...] = ()
    mtp: Literal["", "model.mtp_layers.", "mtp.", "model.layers.{0}."] = ""


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


def head_norms(
    c: Settings, mixer: Attention, prefix: str, *, together: bool = False, plus_one: bool = False
) -> Attention:
    """`mixer` with norms of queries and keys: of each head, or `together` over all heads."""
    queries, keys = (mixer.heads, mixer.kv_heads) if together else (1, 1)
    return replace(
        mixer,
        query_norm=Norm(f"{prefix}.q_norm", queries * mixer.head_dim, c.rms_norm_eps, plus_one),
        key_norm=Norm(f"{prefix}.k_norm", keys * mixer.head_dim, c.rms_norm_eps, plus_one),
    )


def gated(c: Settings, prefix: str, *, bias: bool = False, act: str = "", width: int = 0) -> Gated:
    """A gated MLP with activation `act` and `width`, or those of `c`; `prefix` begins the names of its tensors.

    Raises:
        Unsupported: its activation is unknown.
    """
    act = act or c.hidden_act
    activation: Activation = "clamped_swiglu" if act == CLAMPED else _activation(act, ACTIVATIONS)
    inner = width or c.intermediate_size
    return Gated(
        Matrix((f"{prefix}.gate_proj", f"{prefix}.up_proj"), (inner, inner), c.hidden_size, bias),
        Matrix((f"{prefix}.down_proj",), (c.hidden_size,), inner, bias),
        activation,
    )


def _activation(name: str, known: dict[str, Activation]) -> Activation:
    if name not in known:
        raise Unsupported(f"specchat's decoder has no activation {shown(name)}, only {', '.join(known)}")
    return known[name]


def ungated(c: Settings, first: str, last: str, *, bias: bool = False, width: int = 0) -> Gated:
    """An MLP without a gate between the products called `first` and `last`, with `width` or that of `c`.

    Raises:
        Unsupported: its activation is unknown.
    """
    activation = _activation(c.hidden_act, ALONE)
    inner, curve = width or c.intermediate_size, f"{first.rpartition('.')[0]}.act_fn."
    return Gated(
        Matrix((first,), (inner,), c.hidden_size, bias),
        Matrix((last,), (c.hidden_size,), inner, bias),
        activation,
        ungated=True,
        curve=tuple(curve + name for name in CURVE) if activation == "xielu" else (),
    )


def block(
    c: Settings,
    prefix: str,
    feed: Gated | None = None,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
) -> Layer:
    """Llama's layer (Touvron et al. 2023): a norm before attention and one before `feed`, by default a gated MLP."""
    return Layer(
        mixer=attention(c, f"{prefix}.self_attn", qkv_bias=qkv_bias, out_bias=out_bias),
        feed=feed or gated(c, f"{prefix}.mlp", bias=mlp_bias),
        pre_mixer=Norm(f"{prefix}.{BEFORE[0]}", c.hidden_size, c.rms_norm_eps),
        pre_feed=Norm(f"{prefix}.{BEFORE[1]}", c.hidden_size, c.rms_norm_eps),
    )


def between_norms(c: Settings, prefix: str, mixer: Attention, feed: Gated, *, plus_one: bool = False) -> Layer:
    """Gemma's layer (Gemma team 2024): a norm before and one after attention and MLP each."""
    names = ("input", "pre_feedforward", "post_attention", "post_feedforward")
    norms = [Norm(f"{prefix}.{name}_layernorm", c.hidden_size, c.rms_norm_eps, plus_one) for name in names]
    pre_mixer, pre_feed, post_mixer, post_feed = norms
    return Layer(mixer, feed, pre_mixer, pre_feed, post_mixer, post_feed)


def norms_after(c: Settings, prefix: str, mixer: Attention) -> Layer:
    """OLMo 2's layer (OLMo team 2024): a norm after attention and one after the MLP."""
    post_mixer, post_feed = (
        Norm(f"{prefix}.post_{half}_layernorm", c.hidden_size, c.rms_norm_eps) for half in ("attention", "feedforward")
    )
    return Layer(mixer, gated(c, f"{prefix}.mlp"), None, None, post_mixer, post_feed)


def layer_norms(of: Recipe, eps: float, *, bias: bool = False, plus_one: bool = False) -> Recipe:
    """`of` with LayerNorms in place of the norms of hidden states."""

    def norm(one: Norm) -> Norm:
        return replace(one, eps=eps, centred=True, bias=bias, plus_one=plus_one)

    pairs = [(one.pre_mixer and norm(one.pre_mixer), one.pre_feed and norm(one.pre_feed)) for one in of.layers]
    layers = tuple(replace(one, pre_mixer=a, pre_feed=b) for one, (a, b) in zip(of.layers, pairs, strict=True))
    return replace(of, layers=layers, norm=norm(of.norm))


def decoder(c: Settings, layer: Callable[[int, str], Layer]) -> Recipe:
    """A decoder of `c`'s number of layers: layer(i, prefix) makes layer i with tensors below the prefix.

    Raises:
        ValueError: LongRoPE has other factors than one for each pair of rotated values.
    """
    embed = Matrix(("model.embed_tokens",), (c.vocab_size,), c.hidden_size)
    made = Recipe(
        layers=tuple(layer(index, f"model.layers.{index}") for index in range(c.num_hidden_layers)),
        embed=embed,
        norm=Norm("model.norm", c.hidden_size, c.rms_norm_eps),
        head=embed if c.tie_word_embeddings else replace(embed, names=("lm_head",)),
    )
    for rope in (rope for rope in made.ropes if rope is not None and rope.kind == "longrope"):
        for key in ("short_factor", "long_factor"):
            if (found := len(rope.options[key])) != rope.width // 2:
                raise ValueError(f"{key} has {found} values, and {rope.width // 2} pairs of values are rotated")
    return made


def described(recipe: Recipe) -> dict[str, Any]:
    """The settings that make layers like the first one of `recipe` with attention and an MLP, or else usual ones."""
    found = (
        (one.attention, one.feed, one.gated.activation)
        for one in recipe.layers
        if isinstance(one.mixer, Attention) and one.feed
    )
    of, feed, activation = next(found, (None, None, "silu"))
    rope = next((rope for rope in recipe.ropes if rope is not None), None)
    names = {activation: name for name, activation in reversed(ACTIVATIONS.items())} | {CLAMPED: CLAMPED}
    shape = {"num_attention_heads": max(1, recipe.hidden // 64), "intermediate_size": 2 * recipe.hidden}
    if of and feed:
        shape = {"num_attention_heads": of.heads, "num_key_value_heads": of.kv_heads, "head_dim": of.head_dim}
        shape |= {"intermediate_size": feed.width}
    return {
        "hidden_size": recipe.hidden,
        "num_hidden_layers": len(recipe.layers),
        "vocab_size": recipe.vocab,
        "rms_norm_eps": recipe.norm.eps,
        **shape,
        **({"rope_theta": rope.theta} if rope else {}),
        **({"rope_scaling": {**rope.options, "rope_type": rope.kind}} if rope and rope.kind != "default" else {}),
        "tie_word_embeddings": recipe.tied,
        "hidden_act": names.get(activation, "silu"),
    }


def kinds(c: Settings, is_other: Callable[[int], bool], other: str = SLIDING) -> list[str]:
    """FULL or `other` for each layer, by "layer_types", else by `is_other` of its index.

    Raises:
        ValueError: there is not a kind for each layer.
        Unsupported: a kind is unknown.
    """
    layers = c.num_hidden_layers
    found = c.layer_types or [other if is_other(index) else FULL for index in range(layers)]
    if len(found) != layers:
        raise ValueError(f"layer_types has {len(found)} values, and num_hidden_layers is {layers}")
    if unknown := set(found) - {FULL, other}:
        raise Unsupported(f"specchat's decoder has no layers of {shown(min(unknown))}, only {FULL} and {other}")
    return found


def within(window: int | None, layer: Layer, kind: str = SLIDING) -> Layer:
    """`layer` with a `window`, if its kind is SLIDING."""
    return replace(layer, mixer=replace(layer.attention, window=(window or 0) if kind == SLIDING else 0))


def partly(c: Settings, mixer: Attention, usual: float) -> Attention:
    """`mixer` with its first values of each head rotated, a part of them that is `usual` where config.json has none.

    Raises:
        ValueError: so few are not rotated, or so many.
    """
    part = Scaling.model_validate(c.scaling).partial_rotary_factor or c.partial_rotary_factor or usual
    width = int(part * mixer.head_dim)
    if width < 2 or width % 2 or width > mixer.head_dim:
        raise ValueError(f"partial_rotary_factor is {part}, and heads of {mixer.head_dim} values cannot rotate {width}")
    return replace(mixer, rope=rope_of(c, width))


def rope_of_kind(c: Settings, width: int, kind: str, theta: float) -> Rope:
    """The rotary embeddings of a kind of attention; where config.json has one scaling, it is that of FULL."""
    options = c.rope_parameters.get(kind)
    if not isinstance(options, dict):
        options = {} if kind == SLIDING or isinstance(c.rope_parameters.get(SLIDING), dict) else c.scaling
    return rope_of(c, width, options, theta)


def rope_of(given: Settings, width: int, options: dict[str, Any] | None = None, theta: float | None = None) -> Rope:
    """The rotary embeddings by `given`, over `width` values; by other `options` or another default `theta` if given.

    Raises:
        ValueError: a value is wrong.
        KeyError: one is missing.
        Unsupported: their scaling is unknown.
    """
    options = dict(given.scaling if options is None else options)
    scaling = Scaling.model_validate(options)
    theta = scaling.rope_theta or theta or given.rope_theta or 10000.0
    kind = options.get("rope_type", options.get("type", "default"))
    if not isinstance(kind, str):
        raise ValueError(f"rope_type is {shown(kind)}, not a text")
    if kind == "mrope":  # Its three positions of a token, by which sections of a head rotate, are equal in text.
        kind = "default"
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
