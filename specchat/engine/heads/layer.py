"""A transformer layer of a head with its own cache, in plain torch: no text depends on how it rounds."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from specchat.engine.model.config import ModelConfig
from specchat.engine.model.decoder import STASH_ROWS
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rope import tables
from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights


class Places(NamedTuple):
    """Where rows of a pass stand: in slots `first`, first + 1, ... of the cache.

    `positions` int64 [rows] are those that queries and keys are turned by. `seen` bool [rows, first + rows] are the
    slots that each row attends to.
    """

    first: int
    positions: Tensor
    seen: Tensor


def chained(first: int, rows: int) -> Places:
    """Rows that follow each other and all that is in the slots before."""
    positions = torch.arange(first, first + rows)
    return Places(first, positions, torch.arange(first + rows) <= positions.unsqueeze(1))


class HeadLayer:
    """Attention over what stands before, and an MLP. Slots after the text hold the nodes of a tree."""

    def __init__(self, weights: Weights, prefix: str, c: ModelConfig, inputs: int, context: int) -> None:
        """Read the layer whose keys begin with `prefix`, whose attention has so many inputs.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._heads, self._kv_heads, self._dim = c.heads, c.kv_heads, c.head_dim
        query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim

        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        self._qkv = joined(weights, attention, {"q_proj": query, "k_proj": key, "v_proj": key}, inputs)
        self._out = joined(weights, attention, {"o_proj": c.hidden}, query)
        self._query_norm, self._key_norm = (norm_of(weights, f"{attention}{name}", c) for name in ("q_norm", "k_norm"))
        self._mlp_norm = RMSNorm(weights.get(f"{prefix}post_attention_layernorm.weight", c.hidden), c.norm_eps)
        self._gate_up = joined(weights, mlp, {"gate_proj": c.intermediate, "up_proj": c.intermediate}, c.hidden)
        self._down = joined(weights, mlp, {"down_proj": c.hidden}, c.intermediate)
        slots = context + STASH_ROWS
        self._cos, self._sin = tables(c, slots)
        self._keys, self._values = (torch.zeros(c.kv_heads, slots, c.head_dim) for _ in range(2))

    def __call__(self, x: Tensor, residual: Tensor, at: Places) -> Tensor:
        """The layer over rows float32 [rows, inputs] of attention's own input, onto `residual` float32 [rows, hidden].

        Their entries are written to the cache.
        """
        rows, last = len(x), at.first + len(x)
        heads = [self._heads, self._kv_heads, self._kv_heads]
        query, key, value = self._qkv(x).view(rows, -1, self._dim).split(heads, 1)
        query = query if self._query_norm is None else self._query_norm(query)
        key = key if self._key_norm is None else self._key_norm(key)
        self._keys[:, at.first : last] = self._turned(key, at.positions).transpose(0, 1)
        self._values[:, at.first : last] = value.transpose(0, 1)
        mixed = scaled_dot_product_attention(
            self._turned(query, at.positions).transpose(0, 1).unsqueeze(0),
            self._keys[:, :last].unsqueeze(0),
            self._values[:, :last].unsqueeze(0),
            at.seen,
            enable_gqa=True,
        )
        hidden = residual + self._out(mixed.squeeze(0).transpose(0, 1).reshape(rows, -1))
        gate, up = self._gate_up(self._mlp_norm(hidden)).chunk(2, -1)
        return hidden + self._down(silu(gate) * up)

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)
        return x * cos + x.roll(self._dim // 2, -1) * sin

    def memory(self) -> int:
        """Bytes of weights and cache."""
        products = (self._qkv, self._out, self._gate_up, self._down)
        return sum(one.memory() for one in products) + 4 * (self._keys.numel() + self._values.numel())


def joined(weights: Weights, prefix: str, parts: Mapping[str, int], inputs: int) -> Linear:
    """One product for matrices of so many outputs each, which have the same inputs; with biases if they have some.

    Raises:
        ModelError: weights missing, damaged or of other shapes.
    """
    names = [f"{prefix}{part}" for part in parts]
    matrices = [weights.get(f"{name}.weight", size, inputs) for name, size in zip(names, parts.values(), strict=True)]
    if f"{names[0]}.bias" not in weights:
        return Linear(torch.cat(matrices), drafting=True)
    biases = [weights.get(f"{name}.bias", size) for name, size in zip(names, parts.values(), strict=True)]
    return Linear(torch.cat(matrices), torch.cat(biases), drafting=True)


def norm_of(weights: Weights, name: str, c: ModelConfig) -> RMSNorm | None:
    """The norm `name` of each attention head, if there is one.

    Raises:
        ModelError: it is damaged or of another shape.
    """
    key = f"{name}.weight"
    return RMSNorm(weights.get(key, c.head_dim), c.norm_eps) if key in weights else None
