"""config.json of a Llama-family checkpoint as the decoder needs it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: `kind` is default, linear, llama3 or yarn; `options` are the checkpoint's own keys."""

    theta: float
    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and switches of one checkpoint. `context` is the longest sequence in tokens."""

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

    def parameters(self) -> int:
        """Number of weights, biases and head norms left out, a tied head counted once."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        block = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * block + self.hidden + self.vocab * self.hidden * (1 if self.tied else 2)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelError: the file is missing, unreadable or not a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the folder is not a complete checkpoint.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} cannot be read as JSON ({error}). Download the checkpoint again.") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path} does not hold a JSON object. Download the checkpoint again.")
    return data


def load_config(folder: Path) -> ModelConfig:
    """Read and check `folder`/config.json.

    Raises:
        ModelError: missing file or key, or an architecture the native decoder does not know.
    """
    path = folder / "config.json"
    raw = read_json(path)
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise ModelError(
            f"{path}: model_type {family!r} is not one that specchat's decoder runs ({', '.join(FAMILIES)})."
        )
    try:
        return _parse(raw, family, _eos(folder, raw))
    except KeyError as error:
        raise ModelError(f"{path}: key {error} is missing.") from None
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path}: {error}.") from None


def _parse(raw: dict[str, Any], family: str, eos: frozenset[int]) -> ModelConfig:
    if raw.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act {raw['hidden_act']!r} is not supported, only silu")
    heads = _positive(raw, "num_attention_heads")
    kv_heads = _positive(raw, "num_key_value_heads") if raw.get("num_key_value_heads") else heads
    if heads % kv_heads:
        raise ValueError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    hidden = _positive(raw, "hidden_size")
    context = _positive(raw, "max_position_embeddings")
    window = raw.get("sliding_window")
    if window and (family == "mistral" or raw.get("use_sliding_window")):
        # Within the window sliding attention is full attention; beyond it this decoder would be wrong.
        context = min(context, int(window))
    bias = bool(raw.get("attention_bias", False))
    return ModelConfig(
        family=family,
        hidden=hidden,
        intermediate=_positive(raw, "intermediate_size"),
        layers=_positive(raw, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=int(raw.get("head_dim") or hidden // heads),
        vocab=_positive(raw, "vocab_size"),
        context=context,
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope=_rope(raw),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=bias or family == "qwen2",
        out_bias=bias and family != "qwen2",
        mlp_bias=bool(raw.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        eos=eos,
    )


def _positive(raw: dict[str, Any], key: str) -> int:
    value = raw[key]
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{key} is {value!r}, not a positive whole number")
    return value


def _rope(raw: dict[str, Any]) -> Rope:
    # transformers 5 writes rope_parameters; older checkpoints have rope_theta beside rope_scaling.
    options = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    theta = float(options.get("rope_theta", raw.get("rope_theta", 10000.0)))
    kind = options.get("rope_type", options.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise ValueError(f"rope scaling {kind!r} is not supported (default, linear, llama3, yarn)")
    options.setdefault("max_position_embeddings", raw["max_position_embeddings"])
    return Rope(theta, kind, options)


def _eos(folder: Path, raw: dict[str, Any]) -> frozenset[int]:
    found: set[int] = set()
    generation = folder / "generation_config.json"
    for source in (raw, read_json(generation) if generation.exists() else {}):
        ids = source.get("eos_token_id")
        found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    return frozenset(found)
