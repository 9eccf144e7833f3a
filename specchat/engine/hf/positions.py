"""Rotary embeddings whose frequencies follow the length of a text, made to stay as they are."""

from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specchat.engine.model.config import reach

MOVING = ("dynamic", "longrope")
"""Scalings that transformers makes anew as a text grows, beside a cache of entries that were made with others."""


def settle(network: Any, context: int) -> None:
    """Take the frequencies of a text of `context` tokens for every text, so that rows do not depend on their pass.

    Where no text grows beyond what the network holds without scaling, they are transformers' own.
    """
    for module in network.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, str) and kind in MOVING:
            _fix(module, kind, context, {})
            module.rope_type = "default"
        elif isinstance(kind, dict):
            for layer in (layer for layer, name in kind.items() if name in MOVING):
                _fix(module, kind[layer], context, {"layer_type": layer})
            module.rope_type = {layer: "default" if name in MOVING else name for layer, name in kind.items()}


def _fix(module: Any, kind: str, context: int, of: dict[str, str]) -> None:
    prefix = "".join(f"{layer}_" for layer in of.values())
    device = getattr(module, f"{prefix}inv_freq").device
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](module.config, device, seq_len=context, **of)
    module.register_buffer(f"{prefix}inv_freq", frequencies, persistent=False)
    setattr(module, f"{prefix}attention_scaling", scaling)


def reach_of(config: Any) -> tuple[int, int] | None:
    """`model.config.reach` of a network's text `config`; None where nothing bounds it."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    scaling = getattr(config, "rope_parameters", None) or {}
    layers = [part for part in scaling.values() if isinstance(part, dict)] or [scaling]
    found = [reach(str(part.get("rope_type", "default")), part, positions) for part in layers]
    return min(usual for usual, _ in found), min(longest for _, longest in found)
