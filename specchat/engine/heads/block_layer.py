"""A layer of a head that drafts a block at once, in plain torch: no text depends on how it rounds."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from specchat.engine.heads.block_settings import MOST_BLOCK
from specchat.engine.heads.convolution import Convolution, convolved
from specchat.engine.heads.layer import joined, norm_of
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rope import tables
from specchat.engine.model.weights import Weights


class Sight(NamedTuple):
    """How many places back a row sees, None for all; and whether it does not see the rows of its block after it."""

    window: int | None = None
    causal: bool = False


class Rotary:
    """Rotary embedding for the slots of a text of `context` tokens, and of a block after it."""

    def __init__(self, c: ModelConfig, context: int, device: torch.device) -> None:
        self._cos, self._sin = (table.to(device) for table in tables(c.rope, c.head_dim, context + MOST_BLOCK))
        self._half = c.head_dim // 2

    def __call__(self, x: Tensor, first: int) -> Tensor:
        """Turn queries or keys float32 [rows, heads, head_dim] of slots first, first + 1, ..."""
        cos, sin = (table[first : first + len(x)].unsqueeze(1) for table in (self._cos, self._sin))
        return x * cos + x.roll(self._half, -1) * sin


class BlockLayer:
    """Attention of a block over the text before it and over itself, and an MLP.

    Keys and values of the text are made of the target's states, by slot. Those of the block stand in the slots after.
    """

    def __init__(
        self,
        weights: Weights,
        prefix: str,
        c: ModelConfig,
        context: int,
        turned: Rotary,
        sight: Sight,
        kernel: tuple[int, int] | None = None,
    ) -> None:
        """Read the layer whose keys begin with `prefix`, for texts of `context` tokens.

        `kernel` are the taps of its convolutions, and the channels that share one, where it has convolutions.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._dim, self._turned, self._sight = c.head_dim, turned, sight
        query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        self._query = joined(weights, attention, {"q_proj": query}, c.hidden)
        self._key_value = joined(weights, attention, {"k_proj": key, "v_proj": key}, c.hidden)
        self._out = joined(weights, attention, {"o_proj": c.hidden}, query)
        self._query_norm, self._key_norm = (norm_of(weights, f"{attention}{name}", c) for name in ("q_norm", "k_norm"))
        self._norm, self._mlp_norm = (
            RMSNorm(weights.get(f"{prefix}{name}_layernorm.weight", c.hidden), c.norm_eps)
            for name in ("input", "post_attention")
        )
        self._gate_up = joined(weights, mlp, {"gate_proj": c.intermediate, "up_proj": c.intermediate}, c.hidden)
        self._down = joined(weights, mlp, {"down_proj": c.hidden}, c.intermediate)
        self._convolutions: list[Convolution] = []
        if kernel is not None:
            names = [f"{prefix}{half}_conv." for half in ("attention", "mlp")]
            self._convolutions = [Convolution(weights, name, c.hidden, *kernel) for name in names]
        shape = (c.kv_heads, context + MOST_BLOCK, c.head_dim)
        self._keys, self._values = (torch.zeros(shape, device=weights.device) for _ in range(2))

    def remember(self, x: Tensor, first: int) -> None:
        """Write the entries of rows float32 [rows, hidden] into slots first, first + 1, ..."""
        last = first + len(x)
        key, value = self._key_value(x).view(len(x), -1, self._dim).chunk(2, 1)
        key = key if self._key_norm is None else self._key_norm(key)
        self._keys[:, first:last] = self._turned(key, first).transpose(0, 1)
        self._values[:, first:last] = value.transpose(0, 1)

    def __call__(self, x: Tensor, known: int) -> Tensor:
        """The layer over a block float32 [rows, hidden] after a text whose first `known` entries are written."""
        if not self._convolutions:
            hidden = x + self._attended(self._norm(x), known)
            return hidden + self._gated(self._mlp_norm(hidden))
        around_attention, around_mlp = self._convolutions
        normed = self._norm(x)
        before, after = around_attention.kernels(normed)
        hidden = x + convolved(self._attended(convolved(normed, before), known), after)
        normed = self._mlp_norm(hidden)
        before, after = around_mlp.kernels(normed)
        return hidden + convolved(self._gated(convolved(normed, before)), after)

    def _attended(self, x: Tensor, known: int) -> Tensor:
        self.remember(x, known)
        query = self._query(x).view(len(x), -1, self._dim)
        query = query if self._query_norm is None else self._query_norm(query)
        first, last = self._first(known), known + len(x)
        mixed = scaled_dot_product_attention(
            self._turned(query, known).transpose(0, 1).unsqueeze(0),
            self._keys[:, first:last].unsqueeze(0),
            self._values[:, first:last].unsqueeze(0),
            self._seen(known, last),
            enable_gqa=True,
        )
        return self._out(mixed.squeeze(0).transpose(0, 1).reshape(len(x), -1))

    def _first(self, known: int) -> int:
        """The first slot that any row sees."""
        return 0 if self._sight.window is None else max(0, known + 1 - self._sight.window)

    def _seen(self, known: int, last: int) -> Tensor | None:
        """bool [rows, slots]: what each row sees of the slots from the first one on; None for all."""
        if self._sight == Sight():
            return None
        slots = torch.arange(self._first(known), last, device=self._keys.device)
        rows = slots[known - last :].unsqueeze(1)
        window = last if self._sight.window is None else self._sight.window
        seen = slots > rows - window
        return seen & (slots <= rows) if self._sight.causal else seen

    def _gated(self, x: Tensor) -> Tensor:
        gate, up = self._gate_up(x).chunk(2, -1)
        return self._down(silu(gate) * up)

    def memory(self) -> int:
        """Bytes of weights and cache."""
        products = (self._query, self._key_value, self._out, self._gate_up, self._down)
        weights = sum(one.memory() for one in products) + sum(one.memory() for one in self._convolutions)
        return weights + 4 * (self._keys.numel() + self._values.numel())
