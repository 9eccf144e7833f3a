"""config.json of a Llama-family checkpoint as the decoder needs it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specchat.engine.errors import ForeignModel, ModelError
from specchat.engine.foreign import LARGEST, checked, shown
from specchat.engine.model.files import found, read
from specchat.engine.model.settings import Ends, Scaling, Settings

FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "mimo": "MiMo"}
"""What is known, by its model_type: the names that people know it by."""
BIASED = ("qwen2", "mimo")
"""Families with biases of query, key and value alone. MiMo is Qwen2 but for a layer that drafts."""
SILU = ("silu", "swish")
LEAST_CONTEXT = 16
"""Fewer tokens hold no chat."""
ROPE_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (),
}
"""The scalings of rotary embeddings that are known, and the options that each cannot do without."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: `kind` is default, linear, llama3 or yarn; `options` are the checkpoint's own keys."""

    theta: float
    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and switches of one checkpoint. `context` is the longest sequence in tokens, unless more is asked for."""

    family: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    norm_eps: float
    rope: Rope
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    eos: frozenset[int]
    stretched: int = 0
    """The longest sequence that the scaling of positions allows where it is asked for; 0: no longer than `context`."""

    @property
    def longest(self) -> int:
        """The longest sequence that can be asked for, in tokens."""
        return max(self.context, self.stretched)

    def parameters(self) -> int:
        """Number of weights, biases and head norms left out, a tied head counted once."""
        head = self.vocab * self.hidden
        return self.layers * self.layer_parameters + self.hidden + head * (1 if self.tied else 2)

    @property
    def head_layers(self) -> float:
        """How many layers have as many weights as the head."""
        return self.vocab * self.hidden / self.layer_parameters

    @property
    def layer_parameters(self) -> int:
        """Weights of a layer, biases and head norms left out."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden


class _Lacking(ValueError):
    """A setting that transformers may know and this decoder does not."""


def parse_config(folder: Path, raw: dict[str, Any]) -> ModelConfig:
    """The model that `raw`, the JSON of `folder`/config.json, describes; generation_config.json may name more ends.

    Raises:
        ModelError: a key is missing or wrong, or an architecture the native decoder does not know.
    """
    path = folder / "config.json"
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ForeignModel(
            path, f"model_type {shown(family)} is not one that specchat's decoder runs ({', '.join(FAMILIES)})"
        )
    try:
        config = _parse(checked(Settings, raw, str(path)), raw, family, str(path))
    except KeyError as error:
        raise ModelError(f"{path}: key {error} is missing.") from None
    except _Lacking as lacking:
        raise ForeignModel(path, str(lacking)) from None
    except ValueError as error:
        raise ModelError(f"{path}: {error}.") from None
    generation = folder / "generation_config.json"
    if not found(generation):
        return config
    return replace(config, eos=config.eos | _with_rows(read(generation, Ends).ends, config.vocab))


def _parse(given: Settings, raw: dict[str, Any], family: str, where: str) -> ModelConfig:
    if raw.get("hidden_act", "silu") not in SILU:
        raise _Lacking(f"specchat's decoder has no hidden_act {shown(raw['hidden_act'])}, only silu")
    heads = given.num_attention_heads
    kv_heads = given.num_key_value_heads or heads
    if heads % kv_heads:
        raise ValueError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    head_dim = given.head_dim or given.hidden_size // heads
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"attention heads have {head_dim} values (head_dim), not an even number of them")
    rope = _rope(given, where)
    context, stretched = reach(rope.kind, rope.options, given.max_position_embeddings)
    if given.sliding_window and (family == "mistral" or given.use_sliding_window):
        # Within the window sliding attention is full attention; beyond it this decoder would be wrong.
        context = min(context, given.sliding_window)
        stretched = 0
    if context < LEAST_CONTEXT:
        raise ValueError(f"max_position_embeddings or sliding_window is {context}, and a chat needs {LEAST_CONTEXT}")
    bias = given.attention_bias
    return ModelConfig(
        family=family,
        hidden=given.hidden_size,
        intermediate=given.intermediate_size,
        layers=given.num_hidden_layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=given.vocab_size,
        context=context,
        norm_eps=given.rms_norm_eps,
        rope=rope,
        tied=given.tie_word_embeddings,
        qkv_bias=bias or family in BIASED,
        out_bias=bias and family not in BIASED,
        mlp_bias=given.mlp_bias,
        qk_norm=family == "qwen3",
        eos=_with_rows(given.ends, given.vocab_size),
        stretched=stretched,
    )


def reach(kind: str, options: Mapping[str, Any], context: int) -> tuple[int, int]:
    """How many tokens a model of `context` positions holds by itself, and how many where they are asked for.

    `kind` and `options` say how its rotary embeddings are scaled. YaRN's product is what a model was made for. Of other
    scalings max_position_embeddings may be the length before or after, and some change what is said of short texts.
    """
    original = _sound(options.get("original_max_position_embeddings")) or context
    factor = _sound(options.get("factor")) or max(1.0, context / original)
    stretched = max(context, int(min(original * factor, LARGEST - 1)))
    match kind:
        case "yarn":
            return stretched, stretched
        case "longrope":
            return min(context, int(original)), stretched
        case "linear" | "llama3" | "dynamic":
            return context, stretched
        case _:
            return context, context


def _sound(value: object) -> float | None:
    """A number that may count tokens, None where it is none."""
    return float(value) if isinstance(value, int | float) and 0 < value < LARGEST else None


def _rope(given: Settings, where: str) -> Rope:
    # transformers 5 writes rope_parameters; older checkpoints have rope_theta beside rope_scaling.
    options = dict(given.rope_parameters or given.rope_scaling)
    scaling = checked(Scaling, options, where)
    theta = scaling.rope_theta or given.rope_theta or 10000.0
    kind = options.get("rope_type", options.get("type", "default"))
    if not isinstance(kind, str):
        raise ValueError(f"rope_type is {shown(kind)}, not a text")
    if kind not in ROPE_NEEDS:
        raise _Lacking(f"specchat's decoder has no rope scaling {shown(kind)} ({', '.join(ROPE_NEEDS)})")
    options.setdefault("max_position_embeddings", given.max_position_embeddings)
    if missing := [key for key in ROPE_NEEDS[kind] if getattr(scaling, key) is None]:
        raise KeyError(missing[0])
    if kind == "llama3" and options["low_freq_factor"] >= options["high_freq_factor"]:
        raise ValueError("low_freq_factor is not below high_freq_factor")
    if kind == "yarn" and theta <= 1:
        raise ValueError(f"rope_theta is {theta}, and yarn needs more than 1")
    return Rope(theta, kind, options)


def _with_rows(tokens: frozenset[int], vocab: int) -> frozenset[int]:
    """Those that the model can say."""
    return frozenset(token for token in tokens if 0 <= token < vocab)
