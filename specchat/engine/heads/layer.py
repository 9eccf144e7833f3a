"""Layers of heads with KV caches of their own, run by the reference: no text depends on their rounding.

Chains of small heads use a compiled function instead.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specchat.engine.heads.rows import HeadRows, MixStacks
from specchat.engine.heads.tensors import HeadTensors, as_stored, read_linear
from specchat.engine.model.rows import TILE
from specchat.engine.recipe import Experts, Layer, Matrix
from specchat.engine.reference.layer import after_feed, after_mixer, attention
from specchat.engine.reference.ops import Context, gated_mlp, keys_and_values, norm
from specchat.engine.weights.matrices import read_norm
from specchat.engine.weights.weights import Weights

if TYPE_CHECKING:
    from specchat.engine.cpu.drafting.heads import CompiledLayer


class HeadLayer:
    """A layer whose attention input may differ from its residual, with its KV cache; on a GPU that is bfloat16."""

    def __init__(
        self,
        weights: Weights,
        tensors: HeadTensors,
        of: Layer,
        slots: int,
        compiled: bool = False,
        apart: bool = False,
    ) -> None:
        """Read the layer, for `slots` KV entries; `compiled` allows a compiled function for chains.

        `apart` as in `HeadTensors.read_layer`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self.of = tensors.read_layer(weights, of, apart)
        self._tensors, mixer = tensors, of.attention
        self._rotations = tensors.rotations(mixer, slots, weights.device)
        dtype = torch.float32 if weights.device.type == "cpu" else torch.bfloat16
        shape = mixer.kv_heads, slots, mixer.head_dim
        self._keys, self._values = (torch.zeros(shape, device=weights.device, dtype=dtype) for _ in range(2))
        self.compiled: CompiledLayer | None = None
        if compiled:
            from specchat.engine.cpu.drafting import heads

            of = replace(of, pre_mixer=None)  # its input is already normed
            products = [read_linear(weights, matrix) for matrix in of.products]
            norms = {one: read_norm(weights, one) for one in of.norms}
            cache = self._keys, self._values
            self.compiled = heads.CompiledLayer(of, products, norms, cache, self._rotations)

    def __call__(self, x: Tensor, rows: HeadRows, inputs: Tensor | None = None, wanted: int = 0) -> Tensor:
        """Run the layer on x float32 [rows, hidden], with attention input `inputs` float32 [rows, its inputs].

        `inputs` default to the normed x. The rows' keys and values go into the cache. Of a last layer the results may
        be of the last `wanted` rows alone; 0: all.
        """
        inputs = norm(self.of.pre_mixer, x, self._tensors) if inputs is None else inputs
        if self.compiled is not None and rows.first is not None and len(x) <= TILE:
            return self.compiled(inputs, x, rows.first)
        mixed = after_mixer(self.of, x, self._tensors, self._context(rows), inputs)[-wanted:]
        mix = None if rows.mix is None else partial(self._mix, rows.mix)
        return after_feed(self.of, mixed, self._tensors, mix)

    def _context(self, rows: HeadRows) -> Context:
        """Attention context of rows, which writes their keys and values."""

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            self._write(rows, key, value)
            return self._keys, self._values

        return Context(rows.rotation(self._rotations), entries, attend=rows.attend)

    def _write(self, rows: HeadRows, key: Tensor, value: Tensor) -> None:
        """Write keys and values float32 [kv_heads, rows, head_dim]."""
        self._keys.index_copy_(1, rows.slots, key.to(self._keys.dtype))
        self._values.index_copy_(1, rows.slots, value.to(self._values.dtype))

    def _mix(self, mix: MixStacks, of: Experts, inputs: Tensor) -> Tensor:
        return mix(of, inputs, self._tensors)

    def memory(self) -> int:
        """Bytes of the cache and of weights copied for the compiled function."""
        return self._keys.nbytes + self._values.nbytes + (0 if self.compiled is None else self.compiled.memory())


class BlockLayer(HeadLayer):
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
        super().__init__(weights, tensors, as_stored(weights, of), slots, apart=True)
        self._around: list[Convolution] = []
        if kernel is not None:
            prefix = of.gated.down.names[0].removesuffix("mlp.down_proj")
            names = [f"{prefix}{half}_conv." for half in ("attention", "mlp")]
            self._around = [Convolution(weights, tensors, name, of.gated.down.outputs[0], *kernel) for name in names]

    def write_entries(self, x: Tensor, rows: HeadRows) -> None:
        """Write the KV entries of x float32 [rows, hidden], rows of the text."""
        self._write(rows, *keys_and_values(self.of.attention, x, self._tensors, rows.rotation(self._rotations)))

    def __call__(self, x: Tensor, rows: HeadRows, inputs: Tensor | None = None, wanted: int = 0) -> Tensor:
        """Run the layer on a block x float32 [rows, hidden]."""
        if not self._around:
            return super().__call__(x, rows, inputs, wanted)
        of, tensors = self.of, self._tensors
        around_mixer, around_feed = self._around
        normed = norm(of.pre_mixer, x, tensors)
        before, after = around_mixer.kernels(normed)
        mixed = attention(of.attention, convolve(normed, before), tensors, self._context(rows))
        x = x + convolve(mixed, after)
        normed = norm(of.pre_feed, x, tensors)
        before, after = around_feed.kernels(normed)
        return x + convolve(gated_mlp(of.gated, convolve(normed, before), tensors), after)


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
