"""Layers of Mamba 2 (Dao and Gu 2024), and the keys of config.json that their families have in common."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

from specchat.engine.families.parts.settings import Settings
from specchat.engine.foreign import shown
from specchat.engine.recipe import Delta, Layer, Matrix, Norm, Recipe, Selective, Unsupported


class MambaSettings(Settings):
    mamba_hidden_act: str = "silu"
    time_step_limit: Any = None
    """Two numbers, of which files write the second, infinity, in several ways."""


class MambaShape(NamedTuple):
    """Heads of `head_dim` values, groups of which share keys and queries of `state` values; taps of the convolution."""

    heads: int
    head_dim: int
    groups: int
    state: int
    taps: int


def mamba(
    c: MambaSettings, prefix: str, shape: MambaShape, eps: float, *, conv_bias: bool = True, bias: bool = False
) -> Delta:
    """A mixer of Mamba 2, with biases of its products or not; `prefix` begins the names of its tensors.

    Raises:
        ValueError: heads cannot be shared equally among groups.
        Unsupported: time steps are limited, or another activation than silu follows the convolution.
    """
    heads, head_dim, groups, state, taps = shape
    if heads % groups:
        raise ValueError(f"{heads} heads of recurrent states cannot be shared equally by {groups} groups")
    if other := {c.hidden_act, c.mamba_hidden_act} - {"silu", "swish"}:
        raise Unsupported(f"specchat's decoder has no recurrent layers with {shown(min(other))}, only with silu")
    limit = c.time_step_limit
    if limit and (limit[0] or (isinstance(limit[1], float | int) and isfinite(limit[1]))):
        raise Unsupported(f"specchat's decoder has no recurrent layers with a limit on time steps ({limit})")
    values, channels = heads * head_dim, heads * head_dim + 2 * groups * state
    return Delta(
        key_heads=groups,
        value_heads=heads,
        key_dim=state,
        value_dim=head_dim,
        taps=taps,
        mix=Matrix((f"{prefix}.in_proj",), (values, channels, heads), c.hidden_size, bias),
        gates=None,
        out=Matrix((f"{prefix}.out_proj",), (c.hidden_size,), values, bias),
        norm=Norm("", values // groups, eps),
        convolution=f"{prefix}.conv1d.weight",
        decay=f"{prefix}.A_log",
        shift=f"{prefix}.dt_bias",
        selective=Selective(f"{prefix}.D", f"{prefix}.norm.weight", f"{prefix}.conv1d.bias" if conv_bias else ""),
    )


def backbone(c: MambaSettings, layers: Iterable[Layer], eps: float) -> Recipe:
    """A decoder of layers, in the names of Mamba 2."""
    embed = Matrix(("backbone.embeddings",), (c.vocab_size,), c.hidden_size)
    head = embed if c.tie_word_embeddings else replace(embed, names=("lm_head",))
    return Recipe(tuple(layers), embed, Norm("backbone.norm_f", c.hidden_size, eps), head)
