"""Gated DeltaNet and Mamba 2 in plain torch: float32, differentiable, any leading dimensions.

Tokens take the step form one after another, also in prompts: a form in chunks rounds otherwise.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from specchat.engine.model.norm import unscaled
from specchat.engine.recipe import LENGTH_EPS, Delta
from specchat.engine.reference.protocols import Tensors


class StateChange(NamedTuple):
    """The change of states by a token: float32 key [..., key_heads, key_dim], update [..., value_heads, value_dim],
    decay [..., value_heads]."""

    key: Tensor
    update: Tensor
    decay: Tensor


class Past(NamedTuple):
    """The states that earlier tokens left, and where those of the rows go.

    Attributes:
        states: float32 [..., value_heads, key_dim, value_dim].
        inputs: those of the convolution, float32 [..., taps - 1, channels].
        keep: called after each row with its inputs of the convolution, float32 [..., channels], what it changed, and
            the states.
    """

    states: Tensor
    inputs: Tensor
    keep: Callable[[Tensor, StateChange, Tensor], None] | None = None


def empty(of: Delta, leading: tuple[int, ...], device: torch.device) -> Past:
    """The past of a text's first token; `leading` are the dimensions before its rows."""
    states = torch.zeros(*leading, of.value_heads, of.key_dim, of.value_dim, device=device)
    return Past(states, torch.zeros(*leading, of.taps - 1, of.channels, device=device))


def step_rows(of: Delta, products: Tensor, gates: Tensor | None, tensors: Tensors, past: Past) -> Tensor:
    """Inputs float32 [..., rows, inputs] of the last product, of rows that follow each other.

    Args:
        products, gates: of the products `mix` and `gates`, float32 [..., rows, outputs].
    """
    (first, of_z), selective = of.begins, of.selective
    mixed, z = products.narrow(-1, first, of.channels), products.narrow(-1, of_z, of.value_heads * of.value_dim)
    write, forget = (None, products[..., -of.value_heads :]) if gates is None else gates.chunk(2, -1)
    grown = softplus(forget + tensors.vector(of.shift))
    write = grown if write is None else write.sigmoid()
    decay = torch.exp(-tensors.vector(of.decay).exp() * grown)
    inputs = torch.cat([past.inputs, mixed], -2)
    query, key, value = _heads(of, _convolved(of, inputs, tensors))
    states, made = past.states, []
    for row in range(products.shape[-2]):
        new = value[..., row, :, :]
        if selective is None:
            remembered = states * decay[..., row, :, None, None]
            new = new - (remembered * _shared(of, key[..., row, :, :])[..., None]).sum(-2)
        update = new * write[..., row, :, None]
        change = StateChange(key[..., row, :, :], update, decay[..., row, :])
        states = advanced(of, states, change)
        if past.keep is not None:
            past.keep(mixed[..., row, :], change, states)
        made.append((states * _shared(of, query[..., row, :, :])[..., None]).sum(-2))
    outputs, opened = torch.stack(made, -3), silu(z.unflatten(-1, (of.value_heads, -1)))
    if selective is None:
        return (tensors.norm(of.norm)(outputs) * opened).flatten(-2)
    outputs = (outputs + tensors.vector(selective.skip)[:, None] * value) * opened
    normed = unscaled(outputs.unflatten(-2, (of.key_heads, -1)).flatten(-2), of.norm.eps)
    return normed.flatten(-2) * tensors.vector(selective.weight)


def advanced(of: Delta, states: Tensor, change: StateChange) -> Tensor:
    """States after a token: g S + k u^T, always by the same operations."""
    forgot = states * change.decay[..., None, None]
    return torch.addcmul(forgot, _shared(of, change.key)[..., None], change.update[..., None, :])


def _shared(of: Delta, heads: Tensor) -> Tensor:
    """Key heads float32 [..., key_heads, key_dim] by value head."""
    return heads.repeat_interleave(of.sharing, -2)


def _convolved(of: Delta, inputs: Tensor, tensors: Tensors) -> Tensor:
    """Channels float32 [..., rows, channels] after the convolution of [..., taps - 1 + rows, channels] and silu."""
    taps, rows = tensors.vector(of.convolution)[:, 0], inputs.shape[-2] - of.taps + 1
    seen = [inputs[..., tap : tap + rows, :] * taps[:, tap] for tap in range(of.taps)]
    if of.selective and of.selective.conv_bias:
        seen.append(tensors.vector(of.selective.conv_bias).expand_as(seen[0]))
    return silu(torch.stack(seen).sum(0))


def _heads(of: Delta, channels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys float32 [..., rows, key_heads, key_dim] and values [..., rows, value_heads, value_dim]."""
    query, key, value = (channels.narrow(-1, *span) for span in of.spans)
    query, key = (each.unflatten(-1, (of.key_heads, -1)) for each in (query, key))
    if of.selective:
        return query, key, value.unflatten(-1, (of.value_heads, -1))
    query, key = (each * (each.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt() for each in (query, key))
    return query * of.key_dim**-0.5, key, value.unflatten(-1, (of.value_heads, -1))
