"""The Llama-family decoder on a GPU: the same mathematics as model/decoder.py in row-invariant Triton kernels.

A pass is a fixed sequence of launches over static buffers. Where a row stands, and whether a sub-layer is left out, is
read on the device, so that one captured graph serves every position and every skip set.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.device.buffers import BLOCK, PASS_ROWS, VERIFY_ROWS, Buffers
from specchat.engine.device.states import States
from specchat.engine.device.weights import ModelWeights, held_bytes
from specchat.engine.kernels.activation import silu_mul
from specchat.engine.kernels.attention import attend
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.norm import add_rms_norm
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.rope import rope_and_write
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.rope import tables

ALIGNED = 4
"""int32 values from one 16-byte boundary to the next: kernels are compiled once for aligned pointers."""


@dataclass(frozen=True)
class Branches:
    """Where the rows of a pass stand in a tree of tokens that follow the text.

    Attributes:
        length: int32 [1], entries of the cache that all rows look at.
        offsets: int32 [>= rows], row r's position less the slot of the first row.
        path: int64 [>= rows], row r also looks at slot length + j where bit j is set: its own and those above it.
    """

    length: Tensor
    offsets: Tensor
    path: Tensor


class SkipFlags:
    """Which sub-layers a pass leaves out, where kernels can read it: int32 [layers, 2, ALIGNED], non-zero skips."""

    def __init__(self, layers: int, device: torch.device) -> None:
        self._flags = torch.zeros(layers, 2, ALIGNED, device=device, dtype=torch.int32)
        self._skip = NOTHING

    def set(self, skip: Skip) -> None:
        """Copy a skip set to the device; graphs that read these flags follow it from their next replay on."""
        if skip == self._skip:  # a copy waits for the device, and a family asks for its set at every step
            return
        chosen = torch.zeros(self._flags.shape, dtype=torch.int32)
        chosen[sorted(skip.attention), 0] = 1
        chosen[sorted(skip.mlp), 1] = 1
        self._flags.copy_(chosen)
        self._skip = skip

    def of(self, layer: int) -> tuple[Tensor, Tensor]:
        """The flags int32 [1] of a layer's attention and MLP."""
        return self._flags[layer, 0, :1], self._flags[layer, 1, :1]


class DeviceDecoder:
    """A model on a device with its cache. Not thread-safe: one sequence at a time."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, context: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """`dtype` is what is computed in: bfloat16 or float16, float32 only under Triton's interpreter."""
        self.config = config
        self.weights = weights
        self.context = min(config.longest, context)
        # A pass writes all its rows, also those after the text: the last one may stand at the end of the context.
        capacity = -(-(self.context + PASS_ROWS) // BLOCK) * BLOCK
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.all_keys, self.all_values = (torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))
        self.keys: tuple[Tensor, ...] = self.all_keys.unbind(0)
        self.values: tuple[Tensor, ...] = self.all_values.unbind(0)
        cos, sin = tables(config.rope, config.head_dim, capacity)
        self.cos, self.sin = cos.to(device), sin.to(device)
        self.buffers = Buffers(config, weights, capacity, device, dtype)
        self.states: States | None = None
        """The hidden states that are kept of a text, if any are."""

    def tap(self, layers: Sequence[int]) -> None:
        """Keep the hidden states after so many layers too, 0 being the embeddings; before any pass is captured."""
        kept, cache = () if self.states is None else self.states.layers, self.all_keys
        self.states = States(
            [*kept, *layers], self.config.hidden, cache.shape[2], PASS_ROWS, cache.device, cache.dtype
        )  # fmt: skip

    def forward(
        self, tokens: Tensor, start: Tensor, rows: int, skip: SkipFlags | None = None, tree: Branches | None = None
    ) -> None:
        """Write `rows` tokens to the cache from slot `start` on; leaves the normed hidden states in `buffers.x`.

        Args:
            tokens: int32 [>= rows] on the device.
            start: int32 [1] on the device; a chain looks at all entries before it.
            rows: 1..PASS_ROWS; row r is bit for bit what it would be alone, at the end of its path as a chain.
        """
        b, eps, states = self.buffers, self.config.norm_eps, self.states
        length, offsets, path = (tree.length, tree.offsets, tree.path) if tree else (start, b.offsets, None)
        embed(tokens, self.weights.embed, b.residual, rows)
        partials: Tensor | None = None
        skipped: Tensor | None = None
        for index, layer in enumerate(self.weights.layers):
            no_attention, no_mlp = skip.of(index) if skip else (None, None)
            keys, values = self.keys[index], self.values[index]
            add_rms_norm(b.residual, partials, layer.attention_norm, eps, b.x, rows, skipped)
            if states is not None:
                states.put(index, b.residual, start, rows)
            multiply(b.x, *layer.qkv, b.qkv, rows, no_attention)
            rope_and_write(
                b.qkv, layer.query_norm, layer.key_norm, eps, self.cos, self.sin, start, offsets, b.query, keys,
                values, rows, no_attention,
            )  # fmt: skip
            attend(b.query, keys, values, length, path, b.attention, b.mixed, rows, no_attention)
            multiply(b.mixed, *layer.out, b.out, rows, no_attention)
            add_rms_norm(b.residual, b.out, layer.mlp_norm, eps, b.x, rows, no_attention)
            multiply(b.x, *layer.gate_up, b.gate_up, rows, no_mlp)
            silu_mul(b.gate_up, b.act, rows, no_mlp)
            multiply(b.act, *layer.down, b.down, rows, no_mlp)
            partials, skipped = b.down, no_mlp
        add_rms_norm(b.residual, partials, self.weights.norm, eps, b.x, rows, skipped)
        if states is not None:
            states.put(self.config.layers, b.residual, start, rows)

    def logits(self, first: int, rows: int) -> Tensor:
        """Logits of rows first .. first + rows - 1 of the last pass: float32 [VERIFY_ROWS, vocab], rows 0.. filled."""
        if rows > VERIFY_ROWS:
            raise ValueError(f"{rows} rows of logits; a pass gives at most {VERIFY_ROWS}")
        partials = self.buffers.logits
        multiply(self.buffers.x[first:], self.weights.head, None, partials, rows)
        for part in partials[1:]:
            partials[0, :rows].add_(part[:rows])
        whole, tokens = self.buffers.whole, self.weights.tokens
        if whole is None or tokens is None:
            return partials[0]
        whole[:rows].index_copy_(1, tokens, partials[0, :rows])
        return whole

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.config.parameters()

    def memory(self) -> int:
        """Bytes of weights, cache, kept states, tables and buffers on the device."""
        tensors = (self.all_keys, self.all_values, self.cos, self.sin)
        return (
            held_bytes(self.weights)
            + self.buffers.memory()
            + (0 if self.states is None else self.states.memory())
            + sum(t.numel() * t.element_size() for t in tensors)
        )  # fmt: skip
