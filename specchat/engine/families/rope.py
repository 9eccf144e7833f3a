"""Rotary embeddings by config.json, in its old and its new keys."""

from specchat.engine.families.settings import Scaling, Settings
from specchat.engine.foreign import shown
from specchat.engine.recipe import Rope, Unsupported

ROPE_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (),
}
"""Supported scalings of rotary embeddings, with their required options."""


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
