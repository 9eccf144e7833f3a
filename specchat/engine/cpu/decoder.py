"""Llama-family decoder as one compiled pass: computes the same as `model/decoder.py`, in a fraction of the time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.arguments import KeptStates, PassArguments
from specchat.engine.cpu.chain import Chains
from specchat.engine.cpu.crew import Crew
from specchat.engine.cpu.deltas import Deltas
from specchat.engine.cpu.descriptors import Descriptors, PassSpans, pass_spans
from specchat.engine.cpu.layer_inputs import LayerInputs
from specchat.engine.cpu.nested_speculation import LONG_PROPOSAL
from specchat.engine.cpu.padding import pad_norm, pad_rows
from specchat.engine.cpu.parameters import Floats, Parameters
from specchat.engine.cpu.passes import PASS_ADDRESSES
from specchat.engine.cpu.short_convs import ShortConvs
from specchat.engine.cpu.threads import ByRows
from specchat.engine.cpu.workspace import PassBuffers
from specchat.engine.hardware.threads import CORES
from specchat.engine.memory.vectors import brief, filled, head_places, workers
from specchat.engine.model.cache import KVCache
from specchat.engine.model.decoder import NOTHING, AuxHiddenStates, CachedDecoder, ChainParameters, PassRows, Skip
from specchat.engine.model.norm import RMSNorm, capped
from specchat.engine.model.rope import turned
from specchat.engine.model.rows import PREFILL_ROWS, TILE
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout, chain
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import Checkpoint

LOAD_PASSES, LOAD_SECONDS = (3, 20), 0.005
"""Least and most passes that time a number of threads at load, and the seconds that the passes must take in all."""


class CpuDecoder(CachedDecoder):
    """Loaded model with its KV cache. Not thread-safe: one sequence at a time."""

    compiled: ClassVar[bool] = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        context: int | None = None,
        quant: Quant | None = None,
        threads: int = 0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Read the weights of a model for which `vectors.fits` is true.

        Args:
            context, quant: as in `ReferenceDecoder`.
            threads: the most that may work on a pass; 0 for the number of cores, or one if passes are short.
            clock: seconds; times passes to find the best number of threads for few rows and for many.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self.config = c = checkpoint.config
        few, many = (threads or workers(c, CORES, rows) for rows in (1, TILE))
        self._clock = clock
        self.context = min(c.longest, context or c.context)
        self._crew = Crew(many)
        self._parameters = weights = Parameters(checkpoint, quant)
        whole = filled(c.recipe)
        self.cache = KVCache(whole, self.context)
        self._entries = [(k.numpy(), v.numpy()) for k, v in zip(self.cache.keys, self.cache.values, strict=True)]
        self._space = PassBuffers(c, weights.table, many, self.cache.capacity)
        mixtures = self._space.mixtures.use(weights.norms, weights.vectors)
        deltas = Deltas(c.recipe.layers, weights.table, weights.norms, weights.vectors, self.cache.logs)
        self._inputs = None
        if c.recipe.per_layer is not None and weights.layer_rows is not None:
            product, norm = weights.table[-2:].ctypes.data, weights.norms[c.recipe.per_layer.norm]
            self._inputs = LayerInputs(c.recipe.per_layer, whole.hidden, weights.layer_rows, product, norm)
        convs = ShortConvs(c.recipe.layers, weights.vectors)
        turns = turned(c.recipe, self.cache.capacity)
        described = weights.table, weights.norms, self._entries, turns, weights.vectors
        self._layers = Descriptors(c.recipe.layers, *described, mixtures, self._inputs, deltas, convs)
        self._arguments = PassArguments(c, weights, self._space, self._layers)
        self._layouts: dict[int, PassSpans] = {}
        self._chains: Chains | None = None
        self._skipped = NOTHING
        self._count = 0
        """Threads for the current pass; 0 for the best number so far."""
        self._threads = ByRows(few, many, self._timed)
        self._count = 0

    def _timed(self, rows: int, count: int) -> float:
        """Seconds of a pass of `count` threads over `rows` unlike tokens."""
        self._count = count
        times: list[float] = []
        for trial in range(1, LOAD_PASSES[1] + 1):
            started = self._clock()
            super().forward(range(rows), 0)
            times.append(self._clock() - started)
            if trial >= LOAD_PASSES[0] and sum(times) >= LOAD_SECONDS:
                break
        return min(times)

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        self._space.keep_tokens(tokens, start, layout)
        if len(tokens) > TILE or skip != NOTHING:
            return super().forward(tokens, start, skip, layout)
        with self._timing(len(tokens)):
            return super().forward(tokens, start, skip, layout)

    def logits_after(self, tokens: Sequence[int], start: int, layout: Layout | None = None) -> Tensor:
        rows = len(tokens)
        if rows > TILE:
            return super().logits_after(tokens, start, layout)
        self._space.keep_tokens(tokens, start, layout)
        with self._timing(rows):
            at, layers = PassRows(tokens, start, layout), range(self.config.layers)
            kept_states = self._arguments.kept_states(self.aux_states, layers)
            self._run(self.embed(tokens), layers, at, NOTHING, kept_states, scoring=True)
        return self._parameters.scatter(torch.from_numpy(self._space.logits[:rows]))

    @contextmanager
    def _timing(self, rows: int) -> Iterator[None]:
        """Time a pass, to learn the best number of threads for so many rows."""
        threads = self._threads.of(rows)
        started = self._clock()
        self._count = threads.next
        try:
            yield
        finally:
            self._count = 0
        threads.took(rows, self._clock() - started)

    def embed(self, tokens: Sequence[int] | Tensor, normed: bool = True) -> Tensor:
        return self._parameters.embed(tokens, normed)

    def run_layers(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        return self._run(x, layers, rows, skip, None)

    def _run(
        self,
        x: Tensor,
        layers: range,
        at: PassRows,
        skip: Skip,
        kept_states: KeptStates | None,
        scoring: bool = False,
    ) -> Tensor:
        """Run `run_layers`, keep states on the way, and compute the rows' logits with `scoring`."""
        (tokens, start, layout), rows = at, len(x)
        spans = self._chain_spans(rows) if layout is None else pass_spans(layout)
        if start + spans.reach > self.context:
            raise ValueError(f"{rows} tokens do not fit after {start} of {self.context}")
        if layout is not None and layout.scratch_row + rows > MAX_TREE_NODES:
            raise ValueError(f"a tree of {layout.scratch_row + rows} nodes has more than {MAX_TREE_NODES}")
        self._slide(start, start + spans.reach, layers)
        space = self._space
        space.x[:rows] = pad_rows(x).numpy()
        if self._inputs is not None:
            self._inputs.put(tokens, self.embed(tokens))
        self._crew.active = self._count or self._threads.of(rows).settled
        args = self._arguments
        given = args.layer_args(args.parts(layers, skip), layout, kept_states)
        space.counters[:] = space.head_counters[:] = 0
        head_args = args.head_args(args.head_norm, self.config.recipe.cap, space.logits_of(rows if scoring else 0))
        self._crew.run(
            space.x, rows, start, spans.spans, spans.ancestors, PASS_ADDRESSES, given, head_args, True, scoring
        )
        return torch.from_numpy(space.x[:rows, : self.config.hidden].copy())

    def _slide(self, start: int, end: int, layers: range) -> None:
        """Hold positions start, ..., end - 1 in `layers`, and what they go on from."""
        if self.cache.slide(start, end, layers.start, layers.stop):
            self._layers.begin_at(self.cache.bases)

    def run_and_record(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        # One pass keeps hidden states on its way.
        kept_states = self._arguments.kept_states(self.aux_states, layers) if skip == NOTHING else None
        return self._run(x, layers, rows, skip, kept_states)

    def record_states(self, layers: Sequence[int]) -> AuxHiddenStates:
        self._arguments.forget_states()
        return super().record_states(layers)

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        # Threads share long passes, and each pass is timed.
        shared = self._threads.of(1).most > 1 and not brief(self.config)
        embed, keeps_states = self.packed_embeddings, self.aux_states is not None and skip == NOTHING
        if shared or embed is None or keeps_states or len(tokens) > TILE or self._inputs is not None:
            return []
        if (end := start + len(tokens) + chain.limit - 1) > self.context:
            return []
        layers, args = range(self.config.layers), self._arguments
        self._slide(start, end, layers)
        if self._chains is None or skip is not self._skipped:
            parts, self._skipped = args.parts(layers, skip), skip
            space, logits = self._space, np.zeros((1 + LONG_PROPOSAL, self._space.logits.shape[1]), np.float32)
            head_args = args.head_args(args.head_norm, self.config.recipe.cap, logits)
            layer_args, token_ids, recipe = args.layer_args(parts), space.token_ids, self.config.recipe
            self._chains = Chains(
                PASS_ADDRESSES, embed, recipe.vocab, recipe.embed_scale, token_ids, space.x, layer_args, head_args
            )
        return self._chains.draft_chain(tokens, start, chain)

    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        if not rows:
            return
        of_layers = zip(self._space.tree_scratch, self._entries, self.cache.bases, self.cache.logs, strict=True)
        for scratch, cached, base, log in of_layers:
            if log is not None:
                log.put(torch.from_numpy(scratch[list(rows)]), start)
                continue
            for entries, into in zip(scratch, cached, strict=True):
                into[:, start - base : start - base + len(rows)] = entries[list(rows)].transpose(1, 0, 2)

    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: float32 [rows, hidden] -> float32 [rows, vocab], -inf outside a draft vocabulary.

        The next call overwrites them.
        """
        return self._headed(hidden, self._arguments.head_norm, self.config.recipe.cap)

    def kv_entries(self, layer: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        attention, (keys, values) = self.config.recipe.layers[layer].attention, super().kv_entries(layer, first, last)
        if keys.shape[-1] == attention.head_dim:
            return keys, values
        return keys[..., head_places(attention)], values[..., : attention.head_dim]

    def final_norm(self, hidden: Tensor) -> Tensor:
        return RMSNorm(torch.from_numpy(self._parameters.last_norm), self.config.recipe.norm.eps)(hidden)

    def project(self, hidden: Tensor) -> Tensor:
        # A norm of equal weights divides each row by its length; multiply by the length again.
        recipe = self.config.recipe
        lengths = hidden.square().mean(-1, keepdim=True).add(recipe.norm.eps).sqrt()
        scale = pad_norm(np.full(recipe.hidden, recipe.logit_scale, np.float32))
        return capped(self._headed(hidden, scale, 0.0) * lengths, recipe.cap)

    def _headed(self, hidden: Tensor, norm: Floats, cap: float) -> Tensor:
        rows = hidden.shape[0]
        if rows > PREFILL_ROWS:
            raise ValueError(f"{rows} rows of logits are more than {PREFILL_ROWS}")
        self._space.head_counters[:] = 0
        x, args, nothing = pad_rows(hidden).contiguous().numpy(), self._arguments, self._chain_spans(1)
        given, head_args = args.layer_args(args.all), args.head_args(norm, cap, self._space.logits_of(rows))
        self._crew.run(x, rows, 0, *nothing[:2], PASS_ADDRESSES, given, head_args, False, True)
        return self._parameters.scatter(torch.from_numpy(self._space.logits[:rows]))

    @property
    def packed_embeddings(self) -> NDArray[Any] | None:
        embed = self._parameters.embeddings
        return None if isinstance(embed, Tensor) or self.config.recipe.embed_eps is not None else embed

    @property
    def threads(self) -> int:
        """Most threads that work on a pass."""
        return self._threads.most

    @property
    def working(self) -> int:
        """Threads of the last pass."""
        return self._crew.active

    def use_threads(self, count: int) -> None:
        """Use `count` threads from here on, at most those that the decoder was made for."""
        self._threads.settle(min(max(count, 1), len(self._space.own)))

    @property
    def exactness(self) -> str:
        """Reason why a row's result does not depend on the other rows."""
        return "row-invariant by construction"

    def memory(self) -> int:
        states = 0 if self.aux_states is None else self.aux_states.memory()
        return self._parameters.memory() + self.cache.memory() + states

    def _chain_spans(self, rows: int) -> PassSpans:
        """Layout of consecutive rows, cached: every step needs it."""
        if rows not in self._layouts:
            self._layouts[rows] = pass_spans(chain(rows))
        return self._layouts[rows]
