"""Layers of heads with KV caches of their own: the reference's, which no text depends on.

Chains of small heads go through a compiled function instead.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from specchat.engine.heads.tensors import HeadTensors, stored
from specchat.engine.model.rope import tables
from specchat.engine.model.rows import TILE
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.model.vectors import LANES
from specchat.engine.model.weights import Weights
from specchat.engine.recipe import Attention, Layer, Matrix
from specchat.engine.reference.layer import (
    Context,
    after_feed,
    after_mixer,
    attention,
    gated,
    keys_and_values,
    norm,
)


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


class HeadCache:
    """The KV entries of a layer by slot, and the rotations of their positions."""

    def __init__(self, of: Attention, slots: int, device: torch.device) -> None:
        cos, sin = tables(of.rope, of.head_dim, slots)
        self.rotations = cos.to(device), sin.to(device)
        self.keys, self.values = (torch.zeros(of.kv_heads, slots, of.head_dim, device=device) for _ in range(2))

    def rotation(self, positions: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of positions."""
        cos, sin = (table[positions] for table in self.rotations)
        return cos, sin

    def write(self, first: int, key: Tensor, value: Tensor) -> int:
        """Put entries float32 [kv_heads, rows, head_dim] into slots from `first` on; the slot after them."""
        last = first + key.shape[1]
        self.keys[:, first:last], self.values[:, first:last] = key, value
        return last

    def context(self, at: Places, rows: int, since: int = 0) -> Context:
        """The context of so many rows, whose entries are written to the cache; `seen` counts from slot `since` on."""
        positions = slice(at.first, at.first + rows) if at.positions is None else at.positions

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            last = self.write(at.first, key, value)
            return self.keys[:, since:last], self.values[:, since:last]

        return Context(self.rotation(positions), entries, at.seen, fused)

    def whole(self, slots: Tensor) -> Context:
        """The context of rows in `slots` on the device, each of which sees the slots up to its own.

        All slots are attended, the others masked: the host knows no number.
        """

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self.keys.index_copy_(1, slots, key)
            self.values.index_copy_(1, slots, value)
            return self.keys, self.values

        seen = torch.arange(self.keys.shape[1], device=slots.device) <= slots.unsqueeze(1)
        return Context(self.rotation(slots), entries, seen)

    def memory(self) -> int:
        """Bytes of the entries."""
        return self.keys.nbytes + self.values.nbytes


def fused(of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """The mixed values, as `reference.layer.attended`, by torch's own attention: a fifth faster for a block."""
    query, keys, values = (each.unsqueeze(0) for each in (query, keys, values))
    return scaled_dot_product_attention(query, keys, values, seen, scale=of.scale, enable_gqa=True).squeeze(0)


class Chained(Protocol):
    """A layer over rows that follow each other, from a slot on: `cpu.head_layer.CompiledLayer`."""

    def __call__(self, inputs: Tensor, residual: Tensor, start: int) -> Tensor: ...

    def of_layers(self, given: int) -> tuple[Any, ...]: ...

    def memory(self) -> int: ...


class HeadLayer:
    """A layer whose attention's input need not be what it adds to. Slots after the text hold the nodes of a tree."""

    def __init__(self, weights: Weights, tensors: HeadTensors, of: Layer, context: int, compiled: bool) -> None:
        """Read the layer, for texts of `context` tokens; `compiled` says whether chains may go through a function.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self.of = of = tensors.read_layer(weights, of)
        self._tensors = tensors
        slots = -(-(context + MAX_TREE_NODES) // LANES) * LANES
        self._cache = HeadCache(of.mixer, slots, weights.device)
        self.compiled: Chained | None = None
        if compiled:
            from specchat.engine.cpu.head_layer import CompiledLayer

            of = replace(of, pre_mixer=None)  # it is given what has its norm
            products = [stored(weights, matrix) for matrix in of.products]
            norms = {one: tensors.vector(f"{one.name}.weight") for one in of.norms}
            cache = self._cache.keys, self._cache.values
            self.compiled = CompiledLayer(of, products, norms, cache, self._cache.rotations)

    def __call__(self, x: Tensor, at: Places, inputs: Tensor | None = None) -> Tensor:
        """The layer over rows x float32 [rows, hidden], whose attention is given `inputs` float32 [rows, its inputs].

        Without `inputs` it is given x with its norm. The rows' entries are written to the cache.
        """
        rows, cache = len(x), self._cache
        inputs = norm(self.of.pre_mixer, x, self._tensors) if inputs is None else inputs
        if at.slots is not None:
            context = cache.whole(at.slots)
        elif at.seen is not None:
            context = cache.context(at, rows)
        elif self.compiled is not None and rows <= TILE:
            return self.compiled(inputs, x, at.first)
        else:
            seen = torch.ones(rows, at.first + rows, dtype=torch.bool, device=x.device).tril(at.first)
            context = cache.context(at._replace(seen=None if rows == 1 else seen), rows)
        return after_feed(self.of, after_mixer(self.of, x, self._tensors, context, inputs), self._tensors)

    def memory(self) -> int:
        """Bytes of the cache, and of weights that are held for the compiled function."""
        return self._cache.memory() + (0 if self.compiled is None else self.compiled.memory())


class BlockLayer:
    """A layer over a block of rows, which see the text before it and, unless it is causal, all rows of the block.

    Entries of the text are made of the target's hidden states, by slot. Those of the block stand in the slots after.
    """

    def __init__(
        self, weights: Weights, tensors: HeadTensors, of: Layer, slots: int, kernel: tuple[int, int] | None
    ) -> None:
        """Read the layer; `kernel` are the taps of its convolutions, and the channels that share one, if it has some.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._of = of = tensors.read_layer(weights, of, apart=True)
        self._tensors = tensors
        self._cache = HeadCache(of.mixer, slots, weights.device)
        self._around: list[Convolution] = []
        if kernel is not None:
            prefix = of.feed.down.names[0].removesuffix("mlp.down_proj")
            names = [f"{prefix}{half}_conv." for half in ("attention", "mlp")]
            self._around = [Convolution(weights, tensors, name, of.feed.down.outputs[0], *kernel) for name in names]

    def remember(self, x: Tensor, first: int) -> None:
        """Write the entries of rows float32 [rows, hidden] into slots first, first + 1, ..."""
        rotation = self._cache.rotation(slice(first, first + len(x)))
        self._cache.write(first, *keys_and_values(self._of.mixer, x, self._tensors, rotation))

    def __call__(self, x: Tensor, known: int) -> Tensor:
        """The layer over a block float32 [rows, hidden] after a text whose first `known` entries are written."""
        of, tensors, rows = self._of, self._tensors, len(x)
        since = max(0, known + 1 - of.mixer.window) if of.mixer.window else 0
        at = Places(known, seen=self._seen(known - since, rows, x.device))
        context = self._cache.context(at, rows, since)
        if not self._around:
            return after_feed(of, after_mixer(of, x, tensors, context), tensors)
        around_mixer, around_feed = self._around
        normed = norm(of.pre_mixer, x, tensors)
        before, after = around_mixer.kernels(normed)
        x = x + convolved(attention(of.mixer, convolved(normed, before), tensors, context), after)
        normed = norm(of.pre_feed, x, tensors)
        before, after = around_feed.kernels(normed)
        return x + convolved(gated(of.feed, convolved(normed, before), tensors), after)

    def _seen(self, known: int, rows: int, device: torch.device) -> Tensor | None:
        """bool [rows, known + rows]: what each row sees after so many entries of the text; None for all."""
        of = self._of.mixer
        if of.causal or of.window:
            seen = torch.ones(rows, known + rows, dtype=torch.bool, device=device)
            seen = seen.triu(known + 1 - of.window) if of.window else seen
            return seen.tril(known) if of.causal else seen
        return None

    def memory(self) -> int:
        """Bytes of the cache."""
        return self._cache.memory()


class Convolution:
    """DFlash2's convolution over a block, around each half of a layer: a row sees those before it without attention.

    With x[i] = 0 before the block, c a channel and g(c) its group, for a half's input (s = 0) and output (s = 1):

        y[i, c] = sum over t of (base[s, t, c] + d[i, s, t, g(c)]) x[i - t, c]

    where d = P times the half's input makes a kernel for each row. Keys: "base_kernel" [2, taps, hidden] and
    "kernel_projection.weight" [2 taps groups, hidden].
    """

    def __init__(self, weights: Weights, tensors: HeadTensors, prefix: str, hidden: int, taps: int, group: int) -> None:
        """Read the one whose keys begin with `prefix`; `group` channels share what is made for a row.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._taps, self._group, self._tensors = taps, group, tensors
        self._base = tensors.table(weights, f"{prefix}base_kernel", 2, taps, hidden)
        made = Matrix((f"{prefix}kernel_projection",), (2 * taps * (hidden // group),), hidden)
        self._projection = tensors.read(weights, made)

    def kernels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of a half's input float32 [rows, hidden] the kernels before and after it, float32 [rows, taps, hidden]."""
        made = self._tensors.product(x, self._projection).view(len(x), 2, self._taps, -1)
        before, after = (self._base + made.repeat_interleave(self._group, -1)).unbind(1)
        return before, after


def convolved(x: Tensor, kernel: Tensor) -> Tensor:
    """Rows float32 [rows, hidden] by a kernel float32 [rows, taps, hidden] for each."""
    made = kernel[:, 0] * x
    for back in range(1, kernel.shape[1]):
        made[back:] += kernel[back:, back] * x[:-back]
    return made
