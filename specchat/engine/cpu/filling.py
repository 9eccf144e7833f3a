"""Tensors of a model in whole vectors: hidden states and attention heads end in zeros, which change no sum."""

from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from specchat.engine.formats import EightBit, FourBit, Weight
from specchat.engine.model.matrices import reordered
from specchat.engine.model.quantise import dequantised
from specchat.engine.model.vectors import head_places, head_size, whole_vectors
from specchat.engine.recipe import Attention, Norm, Recipe

Floats = NDArray[np.float32]
ZERO = -1
"""Place of a zero."""


def filled_qkv(of: Attention, weight: Weight, bias: Tensor | None) -> tuple[Weight, Tensor | None]:
    """Fill the heads of queries, keys and values: rows of a matrix and its bias."""
    if head_size(of) == of.head_dim:
        return weight, bias
    turned, straight = _turned(of), _straight(of)
    heads = [turned, *[straight] * of.gated] * of.heads
    if of.share is None:
        heads += [turned] * of.kv_heads + [straight] * of.kv_heads
    order = [row if row == ZERO else of.head_dim * head + row for head, rows in enumerate(heads) for row in rows]
    return reordered(weight, order), None if bias is None else torch.cat([bias, bias.new_zeros(1)])[order]


def filled_out(of: Attention, weight: Weight) -> Weight:
    """Fill the heads in the columns of the product after attention; 4 bits, in blocks across heads, become float32."""
    more = head_size(of) - of.head_dim
    if not more:
        return weight
    dense = dequantised(weight, torch.float32) if isinstance(weight, FourBit) else weight
    columns = dense.values if isinstance(dense, EightBit) else dense
    assert isinstance(columns, Tensor)
    columns = pad(columns.view(len(columns), of.heads, of.head_dim), (0, more)).flatten(1)
    return EightBit(columns, dense.scales) if isinstance(dense, EightBit) else columns


def filled_rows(table: Tensor) -> Tensor:
    """Fill rows [any, hidden]; where they fill whole vectors it is the same tensor."""
    more = whole_vectors(table.shape[1]) - table.shape[1]
    return pad(table, (0, more)) if more else table


def filled_norms(recipe: Recipe, norms: dict[Norm, Floats]) -> dict[Norm, Floats]:
    """Fill the weights of norms of hidden states and of attention heads."""
    found = {norm: filled_norm(one) if norm.size == recipe.hidden else one for norm, one in norms.items()}
    for of in recipe.attentions:
        size = head_size(of)
        turned, straight = _turned(of), _straight(of)
        for norm, places in ((of.query_norm, turned), (of.key_norm, turned), (of.value_norm, straight)):
            if norm is not None and size != of.head_dim:
                heads = np.pad(norms[norm].reshape(-1, of.head_dim), ((0, 0), (0, 1)))[:, places]
                found[norm] = heads.ravel() * np.float32(sqrt(of.head_dim / size))
    return found


def filled_norm(weight: Floats) -> Floats:
    """Fill the weight of a norm of hidden states: their mean is over zeros too, so the weight is smaller."""
    size = whole_vectors(len(weight))
    return np.pad(weight, (0, size - len(weight))) * np.float32(sqrt(len(weight) / size))


def filled_eps(eps: float, size: int, filled: int) -> float:
    """The eps of a norm over `filled` values of which `size` are not fillers."""
    return eps * size / filled


def _turned(of: Attention) -> list[int]:
    """For each value of a query's or key's filled head the place in its head."""
    found = [ZERO] * head_size(of)
    for value, place in enumerate(head_places(of)):
        found[place] = value
    return found


def _straight(of: Attention) -> list[int]:
    """The same for a value's or gate's."""
    return [*range(of.head_dim), *[ZERO] * (head_size(of) - of.head_dim)]
