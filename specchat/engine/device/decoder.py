"""A recipe on a GPU, in row-invariant Triton kernels.

A pass is a fixed sequence of launches over static buffers, read from the recipe. The kernels read positions and skip
flags on the device, so that one captured graph serves every position and every skip set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.attention import Attentions, Placed
from specchat.engine.device.buffers import Buffers
from specchat.engine.device.feeds import Feeds, first_norm, first_weight
from specchat.engine.device.layer_inputs import TokenInputs
from specchat.engine.device.recurrent import Recurrent
from specchat.engine.device.states import States
from specchat.engine.device.weights import ModelWeights, held_bytes
from specchat.engine.formats.layout import Weight
from specchat.engine.kernels import ahead
from specchat.engine.kernels.embed import embed
from specchat.engine.kernels.gpu_shapes import CACHE_BLOCK, PASS_ROWS, VERIFY_ROWS
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.norm import OtherNorm, add_rms_norm
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.recipe import Delta, Norm, Recipe, ShortConv
from specchat.engine.weights.config import ModelConfig

ALIGNED = 4
"""int32 values between 16-byte boundaries: kernels are compiled once for aligned pointers."""


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


class SkipFlags:
    """Flags on the device for what a pass skips: int32 [layers, 3, ALIGNED], non-zero skips.

    The third of a layer is that of both halves.
    """

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self._flags = torch.zeros(len(recipe.layers), 3, ALIGNED, device=device, dtype=torch.int32)
        self._never = recipe.shared
        """Layers whose attention is not skipped, since others attend to their KV entries."""
        self._skip = NOTHING

    def set(self, skip: Skip) -> None:
        """Copy a skip set to the device; graphs that read these flags follow it from their next replay."""
        if skip == self._skip:  # a copy waits for the device, and a strategy sets its skip set at every step
            return
        chosen = torch.zeros(self._flags.shape, dtype=torch.int32)
        attention = skip.attention - self._never
        for half, layers in enumerate((attention, skip.mlp, attention & skip.mlp)):
            chosen[sorted(layers), half] = 1
        self._flags.copy_(chosen)
        self._skip = skip

    def of(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the flags int32 [1] of a layer's attention and MLP."""
        return self._flags[layer, 0, :1], self._flags[layer, 1, :1]

    def whole(self, layer: int) -> Tensor:
        """Return the flag int32 [1] of all of a layer."""
        return self._flags[layer, 2, :1]


class PendingSum(NamedTuple):
    """A sub-layer's output, added to the residual stream by the next kernel that reads the stream.

    Attributes:
        parts: float32 [splits, PASS_ROWS, hidden], the sums of its last product, or those of a mixture's; None adds
            nothing.
        after: norm of the output, if any.
        factor: scale of the output.
        skip: int32 [1]; non-zero adds nothing.
        scalar: float32 [1], factor on the stream after the addition, at the end of a layer that has one.
        earlier: int32 [1]; where it and `skip` are set, `scalar` is left out.
    """

    parts: Tensor | MixtureOutput | None
    after: Norm | None
    factor: float
    skip: Tensor | None
    scalar: Tensor | None = None
    earlier: Tensor | None = None


class DeviceDecoder:
    """Model on a device with its cache. Not thread-safe: one sequence at a time."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, context: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate the cache and buffers; `dtype` is bfloat16 or float16, float32 only under Triton's interpreter."""
        self.config, self.weights = config, weights
        self.device, self.dtype = device, dtype
        self.context = min(config.longest, context)
        # A pass writes all its rows, also unused ones: the last one may stand at the end of the context.
        self.capacity = -(-(self.context + PASS_ROWS) // CACHE_BLOCK) * CACHE_BLOCK
        self.attention = Attentions(config.recipe, weights, self.context, self.capacity, device, dtype)
        self.recurrent = Recurrent(config.recipe, weights, device) if config.recipe.recurrent else None
        norm, scale = config.recipe.norm, config.recipe.logit_scale
        # Only the head reads the output of the last norm.
        self._norms = weights.norms if scale == 1 else weights.norms | {norm: weights.norms[norm] * scale}
        self.buffers = Buffers(config.recipe, weights, self.capacity, device, dtype)
        self.feeds = Feeds(config.recipe, weights, device, dtype)
        own = config.recipe.per_layer
        self.inputs = None if own is None else TokenInputs(config.recipe, own, weights, device, dtype)
        """Inputs of each layer by token, if any."""
        self.states: States | None = None
        """Recorded hidden states, if any."""

    def record_states(self, layers: Sequence[int]) -> None:
        """Record hidden states after these layer counts too, 0 being the embeddings; before any pass is captured."""
        kept = () if self.states is None else self.states.layers
        self.states = States([*kept, *layers], self.config.hidden, self.capacity, PASS_ROWS, self.device, self.dtype)

    def forward(
        self,
        tokens: Tensor,
        start: Tensor,
        rows: int,
        skip: SkipFlags | None = None,
        tree: Branches | None = None,
        last: Tensor | None = None,
    ) -> None:
        """Write `rows` tokens to the cache from position `start` on; leaves the head's input in `buffers.x`.

        Args:
            tokens: int32 [>= rows] on the device.
            start: int32 [1] on the device; a chain attends to all KV entries before it.
            rows: 1..PASS_ROWS; row r is bit for bit the same as alone, at the end of its path as a chain.
            last: int32 [1] on the device, the last row whose result counts; None: all do.
        """
        b, states, recipe = self.buffers, self.states, self.config.recipe
        at = Placed(rows, start, *((tree.length, tree.offsets, tree.path) if tree else (start, b.offsets, None)))
        embed(tokens, self.weights.embed, b.residual, rows, recipe.embed_scale, recipe.embed_eps)
        if self.inputs and recipe.per_layer:
            self._add_and_norm(None, None, rows)
            self.inputs.make(recipe.per_layer, self.weights, tokens, b.x, rows)
        added: PendingSum | None = None
        for index, layer in enumerate(recipe.layers):
            no_mixer, no_feed = skip.of(index) if skip else (None, None)
            own = b.layers[index]
            self._add_and_norm(
                added, layer.pre_mixer, rows, of_next=self.weights.products[layer.mixer.products[0]].weight
            )
            if states is not None:
                states.put(index, b.residual, start, rows)
            if isinstance(layer.mixer, Delta):
                assert self.recurrent is not None
                self.recurrent.mix(index, layer.mixer, b, own, at, no_mixer)
            elif isinstance(layer.mixer, ShortConv):
                self.attention.convolve(index, layer.mixer, b, own, at, no_mixer)
            else:
                self.attention.mix(index, layer.mixer, b, own, at, no_mixer)
            mixed = PendingSum(own.out, layer.post_mixer, layer.residual, no_mixer)
            others, of_next = self.feeds.other_norms(index, layer, self.weights), first_weight(layer, self.weights)
            self._add_and_norm(mixed, first_norm(layer), rows, others, of_next)
            fed = self.feeds.run(index, layer, self.weights, b.x, rows, no_feed, last)
            added = PendingSum(fed, layer.post_feed, layer.residual, no_feed)
            earlier = no_mixer
            if self.inputs and layer.input:
                self._add_and_norm(added, None, rows)
                earlier = whole = skip.whole(index) if skip else None
                made = self.inputs.added(index, layer, self.weights, b.x, rows, whole)
                added = PendingSum(made, layer.input.norm, 1.0, whole)
            if layer.scalar:
                added = added._replace(scalar=self.weights.vectors[layer.scalar], earlier=earlier)
        self._add_and_norm(added, recipe.norm, rows, of_next=self.weights.head)
        if states is not None:
            states.put(self.config.layers, b.residual, start, rows)

    def _add_and_norm(
        self,
        added: PendingSum | None,
        norm: Norm | None,
        rows: int,
        others: tuple[OtherNorm, ...] = (),
        of_next: Weight | None = None,
    ) -> None:
        """Add to the residual stream, and write its norm to `buffers.x`, and others where they say.

        `of_next` is the weight of the next product.
        """
        parts, after, factor, skip, scalar, earlier = added or PendingSum(None, None, 1.0, None)
        (weight, eps), b = self._norm(norm), self.buffers
        of_added = None if after is None else (self._norms[after], after.eps)
        rest = weight, eps, b.x, rows, skip, of_added, factor, scalar, earlier
        meanwhile = None if of_next is None else ahead.of_weight(of_next, 1)
        if isinstance(parts, MixtureOutput):
            add_mixture(b.residual, parts, *rest, ahead=meanwhile)
        else:
            add_rms_norm(b.residual, parts, *rest, others, meanwhile)

    def _norm(self, norm: Norm | None) -> tuple[Tensor | None, float]:
        """Weight and eps of a norm."""
        return (None, 0.0) if norm is None else (self._norms[norm], norm.eps)

    @property
    def caches(self) -> dict[tuple[int, int, int], Tensor]:
        """The caches of `Attentions`."""
        return self.attention.caches

    @property
    def entries(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer with entries: [kv_heads, held, head_dim]."""
        return list(self.attention.entries.values())

    def keep(self, state: VerifyState, places: Tensor | None) -> None:
        """After `commit`, move what the caches hold of the accepted nodes together."""
        self.attention.keep(state, places)
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
        if cap := self.config.recipe.cap:
            partials[0, :rows].div_(cap).tanh_().mul_(cap)
        whole, tokens = self.buffers.whole, self.weights.tokens
        if whole is None or tokens is None:
            return partials[0]
        whole[:rows].index_copy_(1, tokens, partials[0, :rows])
        return whole

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.config.parameters()

    def memory(self) -> int:
        """Bytes of weights, cache, recorded hidden states, tables and buffers on the device, not in main memory."""
        parts = self.buffers, self.feeds, self.attention, self.recurrent, self.states, self.inputs
        return held_bytes(self.weights) + sum(part.memory() for part in parts if part is not None)
