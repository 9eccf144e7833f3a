"""A recipe on a GPU, in row-invariant Triton kernels.

A pass is a fixed sequence of launches over static buffers, those of the recipe's program. The kernels read
positions and skip flags on the device, so that one captured graph serves every position and every skip set.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.attention import KvCaches, Placed
from specchat.engine.device.buffers import Buffers
from specchat.engine.device.launches import Launches, ModelParts
from specchat.engine.device.ops import GPU
from specchat.engine.device.recurrent import Recurrent
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.states import States
from specchat.engine.device.text_memory import TextMemory, TextRows
from specchat.engine.device.weights import ModelWeights, held_bytes
from specchat.engine.kernels.gpu_shapes import CACHE_BLOCK, PASS_ROWS, VERIFY_ROWS
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.program.lower import lower
from specchat.engine.weights.config import ModelConfig


class Exit(NamedTuple):
    """A pass that ends after the first `layers` layers.

    `adapt` makes of the hidden states float32 [rows, hidden] what the last norm and the head read; None: nothing else.
    """

    layers: int
    adapt: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Branches:
    """Tree-attention layout of a pass whose rows are nodes of a tree after the text.

    Attributes:
        length: int32 [1], KV entries that all rows attend to.
        offsets: int32 [>= rows], row r's position less the KV entry of the first row.
        path: int64 [>= rows], row r also attends to KV entry length + j where bit j is set: its own and its ancestors'.
    """

    length: Tensor
    offsets: Tensor
    path: Tensor


class RowOptions(NamedTuple):
    """Rows of a pass that count, and pictures among them.

    Attributes:
        last: int32 [1] on the device, the last row whose result counts; None: all do. More than PASS_ROWS rows, of a
            chain, have one.
        until: as in `Placed`.
        deep: as in `Launches`.
        apart: texts of their own that rows go on from; none if all go on from the decoder's.
    """

    last: Tensor | None = None
    until: Tensor | None = None
    deep: int = 0
    apart: Sequence[TextRows] = ()


ALL_ROWS = RowOptions()


class DeviceDecoder:
    """Model on a device with its cache. Not thread-safe: one sequence at a time."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, context: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate the cache and buffers; `dtype` is bfloat16, float32 only under Triton's interpreter."""
        self.config, self.weights = config, weights
        self.device, self.dtype = device, dtype
        self.context = min(config.longest, context)
        # A pass but a prompt's writes all its rows, also unused ones: the last may stand at the end of the context.
        self.capacity = -(-(self.context + PASS_ROWS) // CACHE_BLOCK) * CACHE_BLOCK
        recipe = config.recipe
        self.program = lower(recipe)
        self.caches = KvCaches(recipe, self.context, self.capacity, device, dtype)
        self.recurrent = Recurrent(recipe, weights, device) if recipe.recurrent else None
        scale, self._cap = GPU.run(self.program.head)
        self._norms = weights.norms if scale == 1 else weights.norms | {recipe.norm: weights.norms[recipe.norm] * scale}
        sizes = self.context, self.capacity
        self.buffers = Buffers(recipe, self.program, weights, *sizes, device, dtype, config.sees)
        self.states: States | None = None
        """Recorded hidden states, if any."""

    def record_states(self, layers: Sequence[int]) -> None:
        """Record hidden states after these layer counts too, 0 being the embeddings; before any pass is captured."""
        kept = () if self.states is None else self.states.layers
        self.states = self._recording([*kept, *layers])

    def _recording(self, layers: Sequence[int]) -> States:
        return States(layers, self.config.hidden, self.capacity, self.width, self.device, self.dtype)

    @property
    def text(self) -> TextMemory:
        """The memory of the decoder's text."""
        return TextMemory(self.caches, self.recurrent, self.states)

    def another_text(self) -> TextMemory:
        """Allocate as much for another text."""
        recurrent = None if self.recurrent is None else Recurrent(self.config.recipe, self.weights, self.device)
        states = None if self.states is None else self._recording(self.states.layers)
        return TextMemory(self.caches.another(), recurrent, states)

    def forward(
        self,
        tokens: Tensor,
        start: Tensor,
        rows: int,
        skip: SkipFlags | None = None,
        tree: Branches | None = None,
        early: Exit | None = None,
        options: RowOptions = ALL_ROWS,
    ) -> None:
        """Write `rows` tokens to the cache from position `start` on; leaves the head's input in `buffers.x`.

        Args:
            tokens: int32 [>= rows] on the device.
            start: int32 [1] on the device; a chain attends to all KV entries before it.
            rows: 1..`width`; row r is bit for bit the same as alone, at the end of its path as a chain.
            early: where the pass ends early, if it does.
        """
        of_chain = start, self.buffers.offsets, None
        length, offsets, path = (tree.length, tree.offsets, tree.path) if tree else of_chain
        at = Placed(rows, start, length, offsets, path, options.until)
        run = self._begun(at, skip, options)
        self._embed(run, tokens)
        self._run(run, range(len(self.program.layers) if early is None else early.layers))
        if early is not None and early.adapt is not None:
            run.flush()
            hidden = self.buffers.residual[:rows]
            hidden.copy_(early.adapt(hidden))
        run.normalise(self.program.head.norm, self.buffers.x)
        run.flush(self.weights.head)

    def run_layers(
        self,
        x: Tensor,
        tokens: Tensor,
        start: Tensor,
        rows: int,
        last: Tensor,
        until: Tensor | None,
        layers: range,
        without: Collection[int],
    ) -> None:
        """Run layers over x float32 [<= rows, hidden]; leaves their outputs in `buffers.residual`.

        Args:
            without: layers whose MLP is left out.
        """
        run = self._begun(Placed(rows, start, start, self.buffers.offsets, None, until), None, RowOptions(last))
        if self.program.inputs:
            self._embed(run, tokens)
        self.buffers.residual[: len(x)].copy_(x)
        self._run(run, layers, without)
        run.flush()

    def _begun(self, at: Placed, skip: SkipFlags | None, options: RowOptions) -> Launches:
        if self.recurrent is not None and at.rows > PASS_ROWS:
            assert options.last is not None
            self.recurrent.groups.begin(at.start, options.last)
        texts = options.apart or (TextRows(0, at, self.text),)
        return Launches(
            ModelParts(self.weights, self._norms, self.buffers), at, texts, skip, options.last, options.deep
        )

    def _embed(self, run: Launches, tokens: Tensor) -> None:
        GPU.run(self.program.embed, run, tokens)
        if self.program.inputs:
            GPU.run(self.program.inputs, run, tokens)

    def _run(self, run: Launches, layers: range, without: Collection[int] = ()) -> None:
        for index in layers:
            run.begin(index)
            for op in self.program.layers[index]:
                if op.half != "feed" or index not in without:
                    run.half = op.half
                    GPU.run(op.kind, run)
        run.begin(layers.stop)

    @property
    def width(self) -> int:
        """Rows of the widest pass of a prompt."""
        return min(half.buffers.cuts.width for half in self.halves)

    @property
    def halves(self) -> "tuple[DeviceDecoder, ...]":
        """The decoders of its layers: itself, and before it that of first layers on another GPU."""
        return (self,)

    @property
    def entries(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer with entries: [kv_heads, held, head_dim]."""
        return list(self.caches.entries.values())

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        """After `commit`, move what the caches hold of the accepted nodes together."""
        self.caches.keep(state, places)
        if self.recurrent is not None:
            self.recurrent.keep(state, places)

    def logits(self, first: int, rows: int) -> Tensor:
        """Logits of rows first .. first + rows - 1 of the last pass: float32 [VERIFY_ROWS, vocab], rows 0.. filled."""
        if rows > VERIFY_ROWS:
            raise ValueError(f"{rows} rows of logits; a pass gives at most {VERIFY_ROWS}")
        partials = self.buffers.logits
        multiply(self.buffers.x[first:], self.weights.head, None, partials, rows)
        for part in partials[1:]:
            partials[0, :rows].add_(part[:rows])
        if self._cap:
            partials[0, :rows].div_(self._cap).tanh_().mul_(self._cap)
        whole, tokens = self.buffers.whole, self.weights.tokens
        if whole is not None and tokens is not None:
            whole[:rows].index_copy_(1, tokens, partials[0, :rows])
        return self.last_logits

    @property
    def last_logits(self) -> Tensor:
        """The buffer of `logits`."""
        return self.buffers.logits[0] if self.buffers.whole is None else self.buffers.whole

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.config.parameters()

    def memory(self) -> int:
        """Bytes of weights, cache, recorded hidden states, tables and buffers on the device, not in main memory."""
        parts = self.buffers, self.caches, self.recurrent, self.states
        return held_bytes(self.weights) + sum(part.memory() for part in parts if part is not None)
