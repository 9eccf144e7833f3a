"""Layers of heads with KV caches of their own, run by the reference: no text depends on their rounding.

Chains of small heads use a compiled function instead.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specchat.engine.heads.rows import Entries, HeadRows
from specchat.engine.heads.tensors import HeadTensors, as_stored, read_linear
from specchat.engine.model.rows import TILE
from specchat.engine.program.lower import lower_layer
from specchat.engine.program.ops import Add, Normalise, Op
from specchat.engine.recipe import Layer, Matrix
from specchat.engine.reference.layer import REFERENCE, begun, run
from specchat.engine.reference.ops import Context, LayerRows, keys_and_values, norm
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
        self._tensors, self._program, mixer = tensors, lower_layer(of), of.attention
        self._rotations = tensors.rotations(mixer, slots, weights.device)
        dtype = torch.float32 if weights.device.type == "cpu" else torch.bfloat16
        shape = mixer.kv_heads, slots, mixer.head_dim
        keys, values = (torch.zeros(shape, device=weights.device, dtype=dtype) for _ in range(2))
        self._cache = keys, values
        self.compiled: CompiledLayer | None = None
        if compiled:
            from specchat.engine.cpu.drafting import heads

            of = replace(of, pre_mixer=None)  # its input is already normed
            products = [read_linear(weights, matrix) for matrix in of.products]
            norms = {one: read_norm(weights, one) for one in of.norms}
            self.compiled = heads.CompiledLayer(of, products, norms, self._cache, self._rotations)

    def __call__(self, x: Tensor, rows: HeadRows, inputs: Tensor | None = None, wanted: int = 0) -> Tensor:
        """Run the layer on x float32 [rows, hidden], with attention input `inputs` float32 [rows, its inputs].

        `inputs` default to the normed x. The rows' keys and values go into the cache. Of a last layer the results may
        be of the last `wanted` rows alone; 0: all.
        """
        if self.compiled is not None and rows.first is not None and len(x) <= TILE:
            inputs = norm(self.of.pre_mixer, x, self._tensors) if inputs is None else inputs
            return self.compiled(inputs, x, rows.first)
        state = self._state(x, rows)
        program = begun(self._program, state, inputs)
        run(program, state, "start", "mixer")
        state.residual = state.residual[-wanted:]
        return run(program, state, "feed", "end")

    def _state(self, x: Tensor, rows: HeadRows) -> LayerRows:
        """Rows x at the beginning of the layer, whose attention writes their keys and values."""

        def entries(key: Tensor, value: Tensor) -> Entries:
            rows.write(self._cache, (key, value))
            return self._cache

        context = Context(rows.rotation(self._rotations), entries, attend=rows.attend)
        return LayerRows(x, self._tensors, context, mix=rows.mix)

    @property
    def entries(self) -> tuple[Tensor, Tensor]:
        """The cache's keys and values, [kv_heads, slots, head_dim]."""
        return self._cache

    def memory(self) -> int:
        """Bytes of the cache and of weights copied for the compiled function."""
        return sum(one.nbytes for one in self._cache) + (0 if self.compiled is None else self.compiled.memory())


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
        rows.write(self._cache, keys_and_values(self.of.attention, x, self._tensors, rows.rotation(self._rotations)))

    def __call__(self, x: Tensor, rows: HeadRows, inputs: Tensor | None = None, wanted: int = 0) -> Tensor:
        """Run the layer on a block x float32 [rows, hidden]."""
        if not self._around:
            return super().__call__(x, rows, inputs, wanted)
        state, halves = self._state(x, rows), ("mixer", "feed")
        for half, around in zip(halves, self._around, strict=True):
            around.run([op for op in self._program if op.half == half], state)
        return state.residual


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

    def run(self, half: Sequence[Op], rows: LayerRows) -> None:
        """Run a half of a layer, from its norm to its sum, with its input and its output convolved."""
        first, *between, last = (op.kind for op in half)
        assert isinstance(first, Normalise)
        assert isinstance(last, Add)
        REFERENCE.run(first, rows)
        x = rows.buffers[first.out.name]
        made = self._tensors.product(x, self._projection).view(len(x), 2, self._taps, -1)
        before, after = (self._base + made.repeat_interleave(self._group, -1)).unbind(1)
        rows.buffers[first.out.name] = convolve(x, before)
        for op in between:
            REFERENCE.run(op, rows)
        rows.buffers[last.source.name] = convolve(rows.buffers[last.source.name], after)
        REFERENCE.run(last, rows)


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve rows float32 [rows, hidden] with each one's kernel float32 [rows, size, hidden]."""
    made = kernel[:, 0] * x
    for back in range(1, kernel.shape[1]):
        made[back:] += kernel[back:, back] * x[:-back]
    return made
