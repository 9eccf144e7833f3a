"""Layers of heads with KV caches of their own, run by the reference: no text depends on their rounding.

Chains of small heads use a compiled function instead.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.heads.slots import DeviceSlots
from specchat.engine.heads.tensors import HeadTensors, as_stored, read_linear
from specchat.engine.memory.vectors import LANES
from specchat.engine.model.rows import TILE
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.recipe import Attention, Experts, Layer, Matrix
from specchat.engine.reference.layer import after_feed, after_mixer, attention
from specchat.engine.reference.ops import Attended, Context, gated_mlp, keys_and_values, norm
from specchat.engine.weights.matrices import read_norm
from specchat.engine.weights.weights import Weights

if TYPE_CHECKING:
    from specchat.engine.cpu.drafting.heads import CompiledLayer

AttendAfter = Callable[[Tensor, int, bool, int], Attended]
"""(known, rows, causal, window) -> attention of a block of rows after `known` int64 [1] KV entries of text."""
AttendWithin = Callable[[bool, int], Attended]
"""(causal, window) -> attention of a block of rows after a text."""
MixStacks = Callable[[Experts, Tensor, HeadTensors], Tensor]
"""(experts, inputs float32 [rows, inputs], their tensors) -> the mixture's output float32 [rows, hidden]."""


class Places(NamedTuple):
    """Positions of the rows of a pass: `first`, first + 1, ... in the cache.

    `positions` int64 [rows] rotate queries and keys. `seen` bool [rows, first + rows] is the attention mask. By default
    rows are consecutive and causal. Where the host does not know `first`, `slots` has all positions, `attend` mixes the
    KV entries of the whole cache, and `mix` runs mixtures of experts. Results are needed of the last `wanted` rows
    alone; 0: of all.
    """

    first: int
    positions: Tensor | None = None
    seen: Tensor | None = None
    slots: DeviceSlots | None = None
    attend: Attended | None = None
    mix: MixStacks | None = None
    wanted: int = 0


class HeadCache:
    """KV cache of a layer, and the rotations of its positions; on a GPU in bfloat16, as products are."""

    def __init__(self, of: Attention, slots: int, tensors: HeadTensors, device: torch.device) -> None:
        self.rotations = tensors.rotations(of, slots, device)
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        shape = of.kv_heads, slots, of.head_dim
        self.keys, self.values = (torch.zeros(shape, device=device, dtype=dtype) for _ in range(2))

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return self.keys.shape[1]

    def rotation(self, positions: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of positions."""
        if isinstance(positions, slice):
            cos, sin = (table[positions] for table in self.rotations)
        else:
            cos, sin = (table.index_select(0, positions) for table in self.rotations)
        return cos, sin

    def write(self, first: int, key: Tensor, value: Tensor) -> int:
        """Write keys and values float32 [kv_heads, rows, head_dim] from position `first` on; return the next
        position."""
        last = first + key.shape[1]
        self.keys[:, first:last], self.values[:, first:last] = key, value
        return last

    def context(self, at: Places, rows: int, since: int = 0) -> Context:
        """Attention context of `rows` rows, which writes their keys and values; `seen` counts from position `since`."""
        positions = slice(at.first, at.first + rows) if at.positions is None else at.positions

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            last = self.write(at.first, key, value)
            return self.keys[:, since:last].float(), self.values[:, since:last].float()

        return Context(self.rotation(positions), entries, at.seen, fused)

    def put(self, slots: DeviceSlots, key: Tensor, value: Tensor) -> None:
        """Write keys and values float32 [kv_heads, rows, head_dim] at `slots`."""
        self.keys.index_copy_(1, slots.slots, key.to(self.keys.dtype))
        self.values.index_copy_(1, slots.slots, value.to(self.values.dtype))

    def whole(self, slots: DeviceSlots, attend: Attended | None) -> Context:
        """Attention context of rows that the host does not know the positions of, as in `Places`."""

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.put(slots, key, value)
            return self.keys, self.values

        return Context(slots.rotation(self.rotations), entries, attend=attend)

    def memory(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes


def fused(of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Attention as `reference.layer.attended` by torch's own kernel, a fifth faster for a block."""
    query, keys, values = (each.unsqueeze(0) for each in (query, keys, values))
    return scaled_dot_product_attention(query, keys, values, seen, scale=of.scale, enable_gqa=True).squeeze(0)


class HeadLayer:
    """A layer whose attention input may differ from its residual. Positions after the text hold the nodes of a tree."""

    def __init__(self, weights: Weights, tensors: HeadTensors, of: Layer, context: int, compiled: bool) -> None:
        """Read the layer, for texts of `context` tokens; `compiled` allows a compiled function for chains.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self.of = of = tensors.read_layer(weights, of)
        self._tensors = tensors
        slots = -(-(context + MAX_TREE_NODES) // LANES) * LANES
        self._cache = HeadCache(of.attention, slots, tensors, weights.device)
        self.compiled: CompiledLayer | None = None
        if compiled:
            from specchat.engine.cpu.drafting import heads

            of = replace(of, pre_mixer=None)  # its input is already normed
            products = [read_linear(weights, matrix) for matrix in of.products]
            norms = {one: read_norm(weights, one) for one in of.norms}
            cache = self._cache.keys, self._cache.values
            self.compiled = heads.CompiledLayer(of, products, norms, cache, self._cache.rotations)

    def __call__(self, x: Tensor, at: Places, inputs: Tensor | None = None, wanted: int = 0) -> Tensor:
        """Run the layer on rows x float32 [rows, hidden], with attention input `inputs` float32 [rows, its inputs].

        `inputs` default to the normed x. The rows' keys and values go into the cache. Of a last layer the results may
        be of the last `wanted` rows alone; 0: all.
        """
        rows, cache = len(x), self._cache
        inputs = norm(self.of.pre_mixer, x, self._tensors) if inputs is None else inputs
        if at.slots is not None:
            context = cache.whole(at.slots, at.attend)
        elif at.seen is not None:
            context = cache.context(at, rows)
        elif self.compiled is not None and rows <= TILE:
            return self.compiled(inputs, x, at.first)
        else:
            seen = torch.ones(rows, at.first + rows, dtype=torch.bool, device=x.device).tril(at.first)
            context = cache.context(at._replace(seen=None if rows == 1 else seen), rows)
        mixed = after_mixer(self.of, x, self._tensors, context, inputs)[-wanted:]
        mix = None if at.mix is None else partial(self._mix, at.mix)
        return after_feed(self.of, mixed, self._tensors, mix)

    def _mix(self, mix: MixStacks, of: Experts, inputs: Tensor) -> Tensor:
        return mix(of, inputs, self._tensors)

    @property
    def capacity(self) -> int:
        """Slots of the cache."""
        return self._cache.capacity

    def memory(self) -> int:
        """Bytes of the cache and of weights copied for the compiled function."""
        return self._cache.memory() + (0 if self.compiled is None else self.compiled.memory())


class BlockLayer:
    """A layer over a block of rows, which attend to the text and, unless it is causal, to the whole block.

    KV entries of the text come from the target's hidden states. Those of the block follow them.
    """

    def __init__(
        self, weights: Weights, tensors: HeadTensors, of: Layer, slots: int, kernel: tuple[int, int] | None
    ) -> None:
        """Read the layer; `kernel` is the kernel size and channels per group of its convolutions, if any.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._of = of = tensors.read_layer(weights, as_stored(weights, of), apart=True)
        self._tensors = tensors
        self._cache = HeadCache(of.attention, slots, tensors, weights.device)
        self._around: list[Convolution] = []
        if kernel is not None:
            prefix = of.gated.down.names[0].removesuffix("mlp.down_proj")
            names = [f"{prefix}{half}_conv." for half in ("attention", "mlp")]
            self._around = [Convolution(weights, tensors, name, of.gated.down.outputs[0], *kernel) for name in names]

    @property
    def capacity(self) -> int:
        """Slots of the cache."""
        return self._cache.capacity

    def write_entries(self, x: Tensor, at: int | DeviceSlots) -> None:
        """Write the KV entries of rows float32 [rows, hidden] at positions at, at + 1, ..., or at the slots `at`."""
        of, tensors, cache = self._of.attention, self._tensors, self._cache
        if isinstance(at, DeviceSlots):
            cache.put(at, *keys_and_values(of, x, tensors, at.rotation(cache.rotations)))
        else:
            cache.write(at, *keys_and_values(of, x, tensors, cache.rotation(slice(at, at + len(x)))))

    def __call__(self, x: Tensor, known: int | DeviceSlots, attend: AttendWithin | None = None) -> Tensor:
        """Run the layer on a block float32 [rows, hidden] after `known` KV entries of text.

        If the host does not know them, these are the slots of the block, and `attend` is needed. The window of a layer
        that is not causal is then counted from the end of the block.
        """
        of, tensors, rows = self._of, self._tensors, len(x)
        if isinstance(known, DeviceSlots):
            assert attend is not None
            causal = of.attention.causal
            window = of.attention.window + (0 if causal else rows - 1) if of.attention.window else 0
            context = self._cache.whole(known, attend(causal, window))
        else:
            since = max(0, known + 1 - of.attention.window) if of.attention.window else 0
            at = Places(known, seen=self._seen(known - since, rows, x.device))
            context = self._cache.context(at, rows, since)
        if not self._around:
            return after_feed(of, after_mixer(of, x, tensors, context), tensors)
        around_mixer, around_feed = self._around
        normed = norm(of.pre_mixer, x, tensors)
        before, after = around_mixer.kernels(normed)
        x = x + convolve(attention(of.attention, convolve(normed, before), tensors, context), after)
        normed = norm(of.pre_feed, x, tensors)
        before, after = around_feed.kernels(normed)
        return x + convolve(gated_mlp(of.gated, convolve(normed, before), tensors), after)

    def _seen(self, known: int, rows: int, device: torch.device) -> Tensor | None:
        """Attention mask bool [rows, known + rows] after `known` KV entries; None for full attention."""
        of = self._of.attention
        if of.causal or of.window:
            seen = torch.ones(rows, known + rows, dtype=torch.bool, device=device)
            seen = seen.triu(known + 1 - of.window) if of.window else seen
            return seen.tril(known) if of.causal else seen
        return None

    def memory(self) -> int:
        """Bytes of the cache."""
        return self._cache.memory()


class Convolution:
    """DFlash2's causal convolution over a block, around each half of a layer.

    With x[i] = 0 before the block, c a channel and g(c) its group, for a half's input (s = 0) and output (s = 1):

        y[i, c] = sum over t of (base[s, t, c] + d[i, s, t, g(c)]) x[i - t, c]

    where d = P times the half's input gives each row its own kernel. Keys: "base_kernel" [2, size, hidden] and
    "kernel_projection.weight" [2 size groups, hidden].
    """

    def __init__(self, weights: Weights, tensors: HeadTensors, prefix: str, hidden: int, taps: int, group: int) -> None:
        """Read the tensors under `prefix`; `group` channels share a row's kernel.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._taps, self._group, self._tensors = taps, group, tensors
        self._base = tensors.table(weights, f"{prefix}base_kernel", 2, taps, hidden)
        made = Matrix((f"{prefix}kernel_projection",), (2 * taps * (hidden // group),), hidden)
        self._projection = tensors.read(weights, made)

    def kernels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Kernels before and after a half, float32 [rows, size, hidden], from its input float32 [rows, hidden]."""
        made = self._tensors.product(x, self._projection).view(len(x), 2, self._taps, -1)
        before, after = (self._base + made.repeat_interleave(self._group, -1)).unbind(1)
        return before, after


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve rows float32 [rows, hidden] with each one's kernel float32 [rows, size, hidden]."""
    made = kernel[:, 0] * x
    for back in range(1, kernel.shape[1]):
        made[back:] += kernel[back:, back] * x[:-back]
    return made
