"""A transformer layer of a head with its own cache: no text depends on how it rounds.

Chains of small heads go through it as one compiled function; the plain torch beside it reads like the papers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from specchat.engine.heads.need import compiles
from specchat.engine.heads.target import Target
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rope import tables
from specchat.engine.model.rows import TILE, Linear
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.model.vectors import LANES
from specchat.engine.model.weights import Weights


class Places(NamedTuple):
    """Where rows of a pass stand: in slots `first`, first + 1, ... of the cache.

    `positions` int64 [rows] are those that queries and keys are turned by. `seen` bool [rows, first + rows] are the
    slots that each row attends to. Without these the rows follow each other, and all that is in the slots before.
    `slots` int64 [rows] on the device say the same where the host does not know: `first` means nothing then.
    """

    first: int
    positions: Tensor | None = None
    seen: Tensor | None = None
    slots: Tensor | None = None


class Chained(Protocol):
    """A layer over rows that follow each other, from a slot on: `cpu.head_layer.CompiledLayer`."""

    def __call__(self, inputs: Tensor, residual: Tensor, start: int) -> Tensor: ...

    def of_layers(self, given: int) -> tuple[Any, ...]: ...

    def memory(self) -> int: ...


class HeadLayer:
    """Attention over what stands before, and an MLP. Slots after the text hold the nodes of a tree."""

    def __init__(self, weights: Weights, prefix: str, c: ModelConfig, inputs: int, target: Target) -> None:
        """Read the layer whose keys begin with `prefix`, whose attention has so many inputs, for a `target`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._heads, self._kv_heads, self._dim = c.heads, c.kv_heads, c.head_dim
        query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim

        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        products = [
            matrices(weights, attention, {"q_proj": query, "k_proj": key, "v_proj": key}, inputs),
            matrices(weights, attention, {"o_proj": c.hidden}, query),
            matrices(weights, mlp, {"gate_proj": c.intermediate, "up_proj": c.intermediate}, c.hidden),
            matrices(weights, mlp, {"down_proj": c.hidden}, c.intermediate),
        ]
        self._qkv, self._out, self._gate_up, self._down = (Linear(*product, drafting=True) for product in products)
        names = [f"{attention}{name}" for name in ("q_norm", "k_norm")]
        self._query_norm, self._key_norm = (norm_of(weights, name, c) for name in names)
        of_mlp = weights.get(f"{prefix}post_attention_layernorm.weight", c.hidden)
        self._mlp_norm = RMSNorm(of_mlp, c.norm_eps)
        slots = -(-(target.context + MAX_TREE_NODES) // LANES) * LANES
        self._cos, self._sin = (table.to(weights.device) for table in tables(c.rope, c.head_dim, slots))
        shape = (c.kv_heads, slots, c.head_dim)
        self._keys, self._values = (torch.zeros(shape, device=weights.device) for _ in range(2))
        self.compiled: Chained | None = None
        norms = head_norms(weights, names, c)
        if target.compiled and compiles(c) and len(norms) != 1:
            from specchat.engine.cpu.head_layer import CompiledLayer

            cache, rope = (self._keys, self._values), (self._cos, self._sin)
            self.compiled = CompiledLayer(products, of_mlp, norms, c.norm_eps, c.heads, cache, rope)

    def __call__(self, x: Tensor, residual: Tensor, at: Places) -> Tensor:
        """The layer over rows float32 [rows, inputs] of attention's own input, onto `residual` float32 [rows, hidden].

        Their entries are written to the cache.
        """
        if at.slots is not None:
            return self._on_device(x, residual, at.slots)
        rows, last = len(x), at.first + len(x)
        if at.positions is None or at.seen is None:
            if self.compiled is not None and rows <= TILE:
                return self.compiled(x, residual, at.first)
            slots = torch.arange(last, device=x.device)
            positions = slots[at.first :]
            at = Places(at.first, positions, slots <= positions.unsqueeze(1))
        assert at.positions is not None
        query, key, value = self._projected(x, at.positions)
        self._keys[:, at.first : last] = key
        self._values[:, at.first : last] = value
        mixed = scaled_dot_product_attention(
            query.unsqueeze(0),
            self._keys[:, :last].unsqueeze(0),
            self._values[:, :last].unsqueeze(0),
            at.seen,
            enable_gqa=True,
        )
        return self._after(mixed.squeeze(0), residual)

    def _on_device(self, x: Tensor, residual: Tensor, slots: Tensor) -> Tensor:
        """Rows in `slots`, each looking at all slots up to its own: of all that there are, the others masked."""
        query, key, value = self._projected(x, slots)
        self._keys.index_copy_(1, slots, key)
        self._values.index_copy_(1, slots, value)
        # The heads that share keys are rows of one product: no copy of the cache is made for each.
        grouped = query.reshape(self._kv_heads, -1, self._dim) * self._dim**-0.5
        scores = torch.bmm(grouped, self._keys.transpose(1, 2)).view(self._heads, len(x), -1)
        later = torch.arange(self._keys.shape[1], device=x.device) > slots.unsqueeze(1)
        shares = scores.masked_fill(later, float("-inf")).softmax(-1).view(self._kv_heads, -1, later.shape[1])
        return self._after(torch.bmm(shares, self._values).view(self._heads, len(x), -1), residual)

    def _projected(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value float32 [their heads, rows, head_dim], turned by their positions."""
        heads = [self._heads, self._kv_heads, self._kv_heads]
        query, key, value = self._qkv(x).view(len(x), -1, self._dim).split(heads, 1)
        query = query if self._query_norm is None else self._query_norm(query)
        key = key if self._key_norm is None else self._key_norm(key)
        query, key = (self._turned(one, positions).transpose(0, 1) for one in (query, key))
        return query, key, value.transpose(0, 1)

    def _after(self, mixed: Tensor, residual: Tensor) -> Tensor:
        """What follows attention, `mixed` being float32 [heads, rows, head_dim]."""
        hidden = residual + self._out(mixed.transpose(0, 1).reshape(len(residual), -1))
        gate, up = self._gate_up(self._mlp_norm(hidden)).chunk(2, -1)
        return hidden + self._down(silu(gate) * up)

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = (table.index_select(0, positions).unsqueeze(1) for table in (self._cos, self._sin))
        return x * cos + x.roll(self._dim // 2, -1) * sin

    def memory(self) -> int:
        """Bytes of weights and cache."""
        products = (self._qkv, self._out, self._gate_up, self._down)
        compiled = self.compiled.memory() if self.compiled is not None else 0
        return compiled + sum(one.memory() for one in products) + 4 * (self._keys.numel() + self._values.numel())


def joined(weights: Weights, prefix: str, parts: Mapping[str, int], inputs: int) -> Linear:
    """The product for `matrices` of the same arguments.

    Raises:
        ModelError: weights missing, damaged or of other shapes.
    """
    return Linear(*matrices(weights, prefix, parts, inputs), drafting=True)


def matrices(weights: Weights, prefix: str, parts: Mapping[str, int], inputs: int) -> tuple[Tensor, Tensor | None]:
    """One matrix of those of so many outputs each, which have the same inputs; with their biases if they have some.

    Raises:
        ModelError: weights missing, damaged or of other shapes.
    """
    names = [f"{prefix}{part}" for part in parts]
    found = [weights.get(f"{name}.weight", size, inputs) for name, size in zip(names, parts.values(), strict=True)]
    if f"{names[0]}.bias" not in weights:
        return torch.cat(found), None
    biases = [weights.get(f"{name}.bias", size) for name, size in zip(names, parts.values(), strict=True)]
    return torch.cat(found), torch.cat(biases)


def norm_of(weights: Weights, name: str, c: ModelConfig) -> RMSNorm | None:
    """The norm `name` of each attention head, if there is one.

    Raises:
        ModelError: it is damaged or of another shape.
    """
    found = head_norms(weights, [name], c)
    return RMSNorm(found[0], c.norm_eps) if found else None


def head_norms(weights: Weights, names: Sequence[str], c: ModelConfig) -> list[Tensor]:
    """The weights float32 [head_dim] of those norms of attention heads that there are.

    Raises:
        ModelError: they are damaged or of other shapes.
    """
    keys = [f"{name}.weight" for name in names]
    return [weights.get(key, c.head_dim) for key in keys if key in weights]
