"""Llama-family decoder as one compiled pass: computes the same as `model/decoder.py`, in a fraction of the time."""

from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.description.arguments import AuxFields, PassArguments
from specchat.engine.cpu.description.buffers import PassBuffers
from specchat.engine.cpu.description.inputs import LayerInputs
from specchat.engine.cpu.description.layers import Layers, PassSpans, pass_spans, spans_apart
from specchat.engine.cpu.description.steps import Arrays, product_addresses
from specchat.engine.cpu.padding import pad_rows
from specchat.engine.cpu.parameters import Parameters
from specchat.engine.cpu.products import bfloat16, dots
from specchat.engine.cpu.threads.timed_crew import TimedCrew
from specchat.engine.hardware.threads import CORES
from specchat.engine.memory.vectors import brief, filled, head_places, workers
from specchat.engine.model.aux_states import AuxHiddenStates
from specchat.engine.model.cache import KVCache
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.model.copies import Tail
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.norm import RMSNorm, capped
from specchat.engine.model.passes import NOTHING, ChainParameters, PassRows, Skip
from specchat.engine.model.rope import turned
from specchat.engine.model.rows import PREFILL_ROWS, TILE
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout, chain
from specchat.engine.program.lower import lower
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import Checkpoint

TIMED_BYTES = 256 << 20
"""Weights of the layers that stand for all of a large model when numbers of threads are timed: no cache holds them."""


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
        self.context = min(c.longest, context or c.context)
        self._crew = TimedCrew(few, many, clock)
        self._parameters = weights = Parameters(checkpoint, quant)
        self._multiplied = {"int8": f"whole numbers by {dots.way()}", "bfloat16": f"bfloat16 by {bfloat16.way()}"}.get(
            checkpoint.activations, ""
        )
        whole = filled(c.recipe)
        self.cache = KVCache(whole, self.context)
        entries = [(k.numpy(), v.numpy()) for k, v in zip(self.cache.keys, self.cache.values, strict=True)]
        self._space = PassBuffers(c, weights.table, many, self.cache.capacity)
        inputs = None
        if c.recipe.per_layer is not None and weights.layer_rows is not None:
            product, norm = weights.table[-2:].ctypes.data, weights.norms[c.recipe.per_layer.norm]
            inputs = LayerInputs(c.recipe.per_layer, whole.hidden, weights.layer_rows, product, norm)
        self._arrays = Arrays(
            product_addresses(c.recipe.layers, weights.table),
            weights.norms,
            entries,
            turned(c.recipe, self.cache.capacity),
            self._space.wide.shape[1],
            weights.vectors,
            self.cache.logs,
            self._space.mixtures,
            inputs,
        )
        program = lower(c.recipe)
        self._layers = Layers(program.layers, self._arrays, program.inputs)
        self._arguments = PassArguments(c, weights, self._space, self._layers)
        self._layouts: dict[int, PassSpans] = {}
        timed = range(min(c.layers, -(-c.layers * TIMED_BYTES // weights.memory())))
        self._crew.tune(lambda rows: self.run_layers(self.embed(range(rows)), timed, PassRows(range(rows), 0)))

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        self._space.keep_tokens(tokens, start, layout)
        if len(tokens) > TILE or skip != NOTHING:
            return super().forward(tokens, start, skip, layout)
        with self._crew.timing(len(tokens)):
            return super().forward(tokens, start, skip, layout)

    def logits_after(self, tokens: Sequence[int], start: int, layout: Layout | None = None) -> Tensor:
        rows = len(tokens)
        if rows > TILE or self._deep(tokens):
            return super().logits_after(tokens, start, layout)
        self._space.keep_tokens(tokens, start, layout)
        with self._crew.timing(rows):
            at, layers = PassRows(tokens, start, layout), range(self.config.layers)
            kept_states = self._arguments.kept_states(self.aux_states, layers)
            self._run(self.embed(tokens), layers, at, NOTHING, kept_states, scoring=True)
        return self._parameters.scatter(torch.from_numpy(self._space.logits[:rows]))

    def copied(self, used: Collection[CacheCopy]) -> CacheCopy | None:
        del used  # there are as many as are asked for
        simple = self.cache.tail(0) is None and self.aux_states is None and self.pictures is None
        return CacheCopy.of(self.cache) if simple else None

    def finish(self) -> None:
        return

    def logits_apart(self, tokens: Sequence[int], positions: Sequence[int], copies: Sequence[CacheCopy]) -> Tensor:
        spans, layers = spans_apart(positions, [copy.away for copy in copies]), range(self.config.layers)
        with self._crew.timing(spans.rows):
            kept_states = self._arguments.kept_states(None, layers)
            self._run(self.embed(tokens), layers, PassRows(tokens, 0), NOTHING, kept_states, scoring=True, spans=spans)
        return self._parameters.scatter(torch.from_numpy(self._space.logits[: spans.rows]))

    def _embed(self, tokens: Sequence[int] | Tensor, normed: bool) -> Tensor:
        return self._parameters.embed(tokens, normed)

    def turn(self, first: int, places: Tensor) -> None:
        new = turned(self.config.recipe, len(places), self.cache.capacity, places)
        for held, tables in zip(self._arrays.rotations, new, strict=True):
            for into, table in zip(held, tables, strict=True):
                into[first : first + len(places)] = table

    def run_layers(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        return self._run(x, layers, rows, skip, self._arguments.kept_states(None, layers))

    def _run(
        self,
        x: Tensor,
        layers: range,
        at: PassRows,
        skip: Skip,
        kept_states: AuxFields,
        scoring: bool = False,
        spans: PassSpans | None = None,
    ) -> Tensor:
        """Run `run_layers`, keep states on the way, and compute the rows' logits with `scoring`.

        Without `spans` rows are those of one text.
        """
        (tokens, start, layout, until), rows = at, len(x)
        spans = spans or (self._chain_spans(rows) if layout is None else pass_spans(layout))
        if start + spans.reach > self.context:
            raise ValueError(f"{rows} tokens do not fit after {start} of {self.context}")
        if layout is not None and layout.scratch_row + rows > MAX_TREE_NODES:
            raise ValueError(f"a tree of {layout.scratch_row + rows} nodes has more than {MAX_TREE_NODES}")
        self._slide(start, max(start + spans.reach, until), layers)
        space = self._space
        space.x[:rows] = pad_rows(x).numpy()
        if self._arrays.inputs is not None:
            self._arrays.inputs.put(tokens, self.embed(tokens))
        args = self._arguments
        args.begin(start, spans, args.parts(layers, skip), layout, kept_states, scoring, until)
        self._crew.run_rows(args.record, rows)
        return torch.from_numpy(space.x[:rows, : self.config.hidden].copy())

    def _slide(self, start: int, end: int, layers: range) -> None:
        """Hold positions start, ..., end - 1 in `layers`, and what they go on from."""
        if self.cache.slide(start, end, layers.start, layers.stop):
            self._layers.begin_at(self.cache.bases)

    def resume(self, token_ids: Sequence[int], held: int, tail: Tail | None) -> None:
        super().resume(token_ids, held, tail)
        self._space.keep_tokens(token_ids, 0, None)
        self._layers.begin_at(self.cache.bases)

    def run_and_record(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        if self._deep(rows.tokens):
            return super().run_and_record(x, layers, rows, skip)
        # One pass keeps hidden states on its way.
        recorded = self.aux_states if skip == NOTHING else None
        kept_states = self._arguments.kept_states(recorded, layers)
        return self._run(x, layers, rows, skip, kept_states)

    def record_states(self, layers: Sequence[int]) -> AuxHiddenStates:
        self._arguments.forget_states()
        return super().record_states(layers)

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        # Threads share long passes, and each pass is timed.
        shared = self._crew.most_of(1) > 1 and not brief(self.config)
        embed, keeps_states = self.embedding_product, self.aux_states is not None and skip == NOTHING
        uncommon = self._parameters.tokens is not None or self._arrays.inputs is not None
        if shared or embed is None or uncommon or keeps_states or len(tokens) > TILE:
            return []
        if (end := start + len(tokens) + chain.limit - 1) > self.context:
            return []
        self._slide(start, end, range(self.config.layers))
        return self._arguments.chains(embed, skip).draft_chain(tokens, start, chain)

    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        if not rows:
            return
        of_layers = zip(self._space.tree_scratch, self._arrays.cache, self.cache.bases, self.cache.logs, strict=True)
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
        return self._headed(hidden)

    def kv_entries(self, layer: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        attention, (keys, values) = self.config.recipe.layers[layer].attention, super().kv_entries(layer, first, last)
        if keys.shape[-1] == attention.head_dim:
            return keys, values
        return keys[..., head_places(attention)], values[..., : attention.head_dim]

    def final_norm(self, hidden: Tensor) -> Tensor:
        return RMSNorm.of(self.config.recipe.norm, torch.from_numpy(self._parameters.last_norm))(hidden)

    def project(self, hidden: Tensor) -> Tensor:
        recipe = self.config.recipe
        lengths = hidden.square().mean(-1, keepdim=True).add(recipe.norm.eps).sqrt()
        return capped(self._headed(hidden, bare=True) * lengths, recipe.cap)

    def _headed(self, hidden: Tensor, bare: bool = False) -> Tensor:
        rows = hidden.shape[0]
        if rows > PREFILL_ROWS:
            raise ValueError(f"{rows} rows of logits are more than {PREFILL_ROWS}")
        self._arguments.begin_head(hidden, bare)
        self._crew.run(self._arguments.record)
        return self._parameters.scatter(torch.from_numpy(self._space.logits[:rows]))

    @property
    def embedding_product(self) -> NDArray[Any] | None:
        return self._parameters.embeddings if self.config.recipe.embed_eps is None else None

    @property
    def threads(self) -> int:
        """Most threads that work on a pass."""
        return self._crew.most

    @property
    def working(self) -> int:
        """Threads of the last pass."""
        return self._crew.active

    def use_threads(self, count: int) -> None:
        """Use `count` threads from here on, at most those that the decoder was made for."""
        self._crew.settle(count)

    @property
    def instructions(self) -> str:
        """Instructions of the processor for products, by its best for whole numbers."""
        return dots.way()

    @property
    def exactness(self) -> str:
        """Reason why a row's result does not depend on the other rows."""
        return "row-invariant by construction" + (f", {self._multiplied}" if self._multiplied else "")

    def memory(self) -> int:
        states = 0 if self.aux_states is None else self.aux_states.memory()
        return self._parameters.memory() + self.cache.memory() + states

    def _chain_spans(self, rows: int) -> PassSpans:
        """Layout of consecutive rows, cached: every step needs it."""
        if rows not in self._layouts:
            self._layouts[rows] = pass_spans(chain(rows))
        return self._layouts[rows]
