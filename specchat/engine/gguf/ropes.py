"""The rotary embeddings of a GGUF file in the keys of config.json."""

import math
from typing import Any

from specchat.engine.errors import ForeignModel
from specchat.engine.gguf.keys import ArchitectureKeys

LOW, HIGH = 1.0, 4.0
"""Bounds of Llama 3's scaling in every published model."""
AXES = ("time", "height", "width")
"""Positions of a token, each of which turns a section of a head (M-RoPE)."""
NEAR = 1e-5
"""Relative difference that float32 explains."""


def rope_settings(m: ArchitectureKeys, full_width: int, usual_theta: float = 10_000.0) -> dict[str, Any]:
    """The options of rotary embeddings, "rope_parameters"; `full_width` are the values of a head.

    Ollama's files may leave out the base, which is `usual_theta` then.

    Raises:
        ForeignModel: their scaling is unknown.
    """
    theta, width = m.number("rope.freq_base") or usual_theta, m.integer("rope.dimension_count") or full_width
    options: dict[str, Any] = {"rope_theta": theta, "rope_type": "default"}
    if width != full_width:
        options["partial_rotary_factor"] = width / full_width
    sections = m.files.sections
    if len(sections) == len(AXES) and sum(sections) == width // 2:
        options["mrope_section"] = sections
    original = m.integer("rope.scaling.original_context_length")
    factor = m.number("rope.scaling.factor") or m.number("rope.scale_linear") or 1.0
    kind = m.text("rope.scaling.type") or "linear"
    if divisors := m.files.floats("rope_freqs.weight"):
        return options | _of_divisors(divisors, theta, m.integer("context_length") or 0)
    if short := m.files.floats("rope_factors_short.weight"):
        long = m.files.floats("rope_factors_long.weight")
        return options | _longrope(m, short, long, original or 0)
    match kind:
        case "none" | "default":
            return options
        case "linear":
            return options | ({"rope_type": "linear", "factor": factor} if factor != 1 else {})
        case "yarn":
            found = {
                "original_max_position_embeddings": original,
                "attention_factor": m.number("rope.scaling.yarn_attn_factor"),
                "beta_fast": m.number("rope.scaling.yarn_beta_fast"),
                "beta_slow": m.number("rope.scaling.yarn_beta_slow"),
            }
            stated = {key: value for key, value in found.items() if value is not None}
            return options | {"rope_type": "yarn", "factor": factor, **stated}
        case "longrope":  # without its factors, of a file whose positions are not scaled
            return options
    raise ForeignModel(m.files.path, f"specchat's decoder has no rope scaling {kind!a}")


def _longrope(m: ArchitectureKeys, short: list[float], long: list[float], original: int) -> dict[str, Any]:
    context = m.integer("context_length") or 0
    options: dict[str, Any] = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": original,
    }
    stated = m.number("rope.scaling.attn_factor")
    stretch = context / original if original else 1.0
    usual = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    # What the family computes itself has more digits.
    return options if stated is None or abs(stated / usual - 1) < NEAR else options | {"attention_factor": stated}


def _of_divisors(divisors: list[float], theta: float, context: int) -> dict[str, Any]:
    """Llama 3's scaling where the divisors of frequencies are of one with its usual bounds, else these as they are."""
    factor, waves = max(divisors), [theta ** (n / len(divisors)) for n in range(len(divisors))]
    between = next((n for n, one in enumerate(divisors) if 1 + NEAR < one < factor * (1 - NEAR)), None)
    if between is not None:
        smooth = (1 / divisors[between] - 1 / factor) / (1 - 1 / factor)
        original = round(2 * math.pi * waves[between] * (LOW + smooth * (HIGH - LOW)))
        ours = [_divisor(wave, original, factor) for wave in waves]
        if all(abs(one / other - 1) < NEAR for one, other in zip(divisors, ours, strict=True)):
            bounds = {"low_freq_factor": LOW, "high_freq_factor": HIGH, "original_max_position_embeddings": original}
            return {"rope_type": "llama3", "factor": factor, **bounds}
    return {
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "original_max_position_embeddings": max(1, context),
        "attention_factor": 1.0,
    }


def _divisor(wave: float, original: int, factor: float) -> float:
    """The divisor of the frequency 1 / wave (Llama 3.1)."""
    smooth = min(1.0, max(0.0, (original / (2 * math.pi * wave) - LOW) / (HIGH - LOW)))
    return 1 / ((1 - smooth) / factor + smooth)
