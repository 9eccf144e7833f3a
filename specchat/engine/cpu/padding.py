"""Tensors of a model in whole vectors: hidden states and attention heads end in zeros, which change no sum."""

from math import sqrt
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from specchat.engine.formats.layout import Blocks, EightBit, Table, Weight
from specchat.engine.formats.quantise import dequantised
from specchat.engine.memory.vectors import head_places, head_size, whole_vectors
from specchat.engine.recipe import Attention, Norm, Recipe
from specchat.engine.weights.matrices import reordered

Floats = NDArray[np.float32]
ZERO = -1
"""Place of a zero."""


def pad_qkv(attention: Attention, weight: Weight, bias: Tensor | None) -> tuple[Weight, Tensor | None]:
    """Pad the heads of queries, keys and values: rows of a matrix and its bias."""
    if head_size(attention) == attention.head_dim:
        return weight, bias
    rotated, straight = _rotated_places(attention), _places(attention)
    heads = [rotated, *[straight] * attention.gated] * attention.heads
    if attention.share is None:
        heads += [rotated] * attention.kv_heads + [straight] * attention.kv_heads
    order = [row if row == ZERO else attention.head_dim * head + row for head, rows in enumerate(heads) for row in rows]
    return reordered(weight, order), None if bias is None else torch.cat([bias, bias.new_zeros(1)])[order]


def pad_out(attention: Attention, weight: Weight) -> Weight:
    """Pad the heads in the columns of the product after attention; blocks across heads become float32."""
    more = head_size(attention) - attention.head_dim
    if not more:
        return weight
    dense = weight if isinstance(weight, EightBit | Tensor) else dequantised(weight, torch.float32)
    columns = dense.values if isinstance(dense, EightBit) else dense
    columns = pad(columns.view(len(columns), attention.heads, attention.head_dim), (0, more)).flatten(1)
    return EightBit(columns, dense.scales) if isinstance(dense, EightBit) else columns


@overload
def pad_rows(table: Tensor) -> Tensor: ...


@overload
def pad_rows(table: Table) -> Table: ...


def pad_rows(table: Table) -> Table:
    """Pad rows [any, hidden]; returns the same table where they fill whole vectors, as those in blocks do."""
    if isinstance(table, Blocks):
        return table
    more = whole_vectors(table.shape[1]) - table.shape[1]
    return pad(table, (0, more)) if more else table


def pad_norms(recipe: Recipe, norms: dict[Norm, Floats]) -> dict[Norm, Floats]:
    """Pad the weights of norms of hidden states and of attention heads."""
    found = {norm: pad_norm(one, norm.size) if norm.size == recipe.hidden else one for norm, one in norms.items()}
    for attention in recipe.attentions:
        size = head_size(attention)
        rotated, straight = _rotated_places(attention), _places(attention)
        for norm, places in (
            (attention.query_norm, rotated),
            (attention.key_norm, rotated),
            (attention.value_norm, straight),
        ):
            if norm is not None and size != attention.head_dim:
                heads = np.pad(norms[norm].reshape(-1, attention.head_dim), ((0, 0), (0, 1)))[:, places]
                found[norm] = heads.ravel() * np.float32(sqrt(attention.head_dim / size))
    return found


def pad_norm(weights: Floats, size: int) -> Floats:
    """Pad the weight of a norm of hidden states, and its bias: a mean is over zeros too, so the weight is smaller."""
    padded = whole_vectors(size)
    found = np.pad(weights.reshape(-1, size), ((0, 0), (0, padded - size)))
    found[0] *= np.float32(sqrt(size / padded))
    return found.ravel()


def padded_eps(eps: float, size: int, padded: int) -> float:
    """The eps of a norm over `padded` values, of which `size` are not padding."""
    return eps * size / padded


def _rotated_places(attention: Attention) -> list[int]:
    """For each value of a query's or key's padded head the place in its head."""
    found = [ZERO] * head_size(attention)
    for value, place in enumerate(head_places(attention)):
        found[place] = value
    return found


def _places(attention: Attention) -> list[int]:
    """The same for a value's or gate's."""
    return [*range(attention.head_dim), *[ZERO] * (head_size(attention) - attention.head_dim)]
