"""Fixes rotary frequencies that would change with the length of a sequence, and bounds the context."""

from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specchat.engine.weights.config import reach

LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Rope scalings that transformers recomputes as a sequence grows, although older KV entries keep the former ones."""


def fix_frequencies(network: Any, context: int) -> None:
    """Use the frequencies of `context` tokens for every length, so that rows do not depend on their pass.

    They equal transformers' own unless a sequence needs the scaling.
    """
    for module in network.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, str) and kind in LENGTH_DEPENDENT:
            _fix(module, kind, context, {})
            module.rope_type = "default"
        elif isinstance(kind, dict):
            for layer in (layer for layer, name in kind.items() if name in LENGTH_DEPENDENT):
                _fix(module, kind[layer], context, {"layer_type": layer})
            module.rope_type = {layer: "default" if name in LENGTH_DEPENDENT else name for layer, name in kind.items()}


def _fix(module: Any, kind: str, context: int, of: dict[str, str]) -> None:
    prefix = "".join(f"{layer}_" for layer in of.values())
    device = getattr(module, f"{prefix}inv_freq").device
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](module.config, device, seq_len=context, **of)
    module.register_buffer(f"{prefix}inv_freq", frequencies, persistent=False)
    setattr(module, f"{prefix}attention_scaling", scaling)


def reach_of(config: Any) -> tuple[int, int] | None:
    """`model.config.reach` of a network's text `config`; None if it is unbounded."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    scaling = getattr(config, "rope_parameters", None) or {}
    layers = [part for part in scaling.values() if isinstance(part, dict)] or [scaling]
    found = [reach(str(part.get("rope_type", "default")), part, positions) for part in layers]
    return min(usual for usual, _ in found), min(longest for _, longest in found)
