"""Buffers that compiled passes write besides the KV cache: rows, partial sums, scores, counters, tree scratch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.primitives.records import PASS, Structure
from specchat.engine.cpu.products.shared import LINE
from specchat.engine.memory.host_need import mixture_need, pass_shape
from specchat.engine.memory.state_need import pieces, width
from specchat.engine.memory.vectors import LANES, filled
from specchat.engine.model.kv_entries import row_size
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout
from specchat.engine.program.lower import lower
from specchat.engine.recipe import Attention, Delta, Layer, Recipe
from specchat.engine.weights.config import ModelConfig

Floats = NDArray[np.float32]
TURNS = 2
"""Most products that threads share in an operation, with their barrier."""


class PassBuffers:
    """Buffers of one decoder, which each pass overwrites.

    Attributes:
        x: float32 [PREFILL_ROWS, hidden], hidden states of a pass's rows.
        wide: float32 [PREFILL_ROWS, width of the widest product].
        own, scores: float32 [threads, ...], each thread's own.
        token_ids: int64 [capacity + 1], by position: the last token of a pass at it, and one more.
        logits: float32 [rows, width of the head], for the most rows so far.
        tree_scratch: for each layer [2, MAX_TREE_NODES, kv_heads, row], keys and values of a tree as in the cache, its
            own or those that it shares, or float32 [MAX_TREE_NODES, pieces, values], entries of recurrent states; empty
            until `make_tree_scratch`.
        mixtures: of `mixture_buffers`.
        counters: int64, of `together.py`; zero before a pass.
        all_parts: int64 [layers + 1, 3], the parts of a whole pass.
    """

    def __init__(self, config: ModelConfig, table: NDArray[Any], threads: int, capacity: int) -> None:
        """Make buffers for products of `table`, for `threads` threads and a cache of `capacity` positions."""
        self._recipe = recipe = filled(config.recipe)
        shape = pass_shape(recipe, capacity, bool(table["order"].any()))
        self.x: Floats = np.zeros((PREFILL_ROWS, recipe.hidden), np.float32)
        self.wide: Floats = np.zeros((PREFILL_ROWS, shape.wide), np.float32)
        self.own: Floats = np.zeros((threads, 2, PREFILL_ROWS, shape.own), np.float32)
        self.scores: Floats = np.zeros((threads, shape.scores), np.float32)
        self.token_ids = np.zeros(capacity + 1, np.int64)
        self.logits: Floats = np.zeros((0, LANES * int(table[-1]["panels"])), np.float32)
        self.tree_scratch: list[NDArray[Any]] = []
        self.mixtures = mixture_buffers(recipe, threads)
        self.counters = np.zeros(LINE * TURNS * len(lower(recipe).kinds), np.int64)
        self.all_parts = np.ones((config.layers + 1, 3), np.int64)

    def pass_record(self) -> Structure:
        """Describe a pass in these buffers, over all layers."""
        return Structure(
            PASS,
            **pass_buffers(self.wide, self.own, self.scores),
            x=self.x,
            hidden=self.x.shape[1],
            counters=self.counters,
            parts=self.all_parts,
            scratch_row=-1,
        )

    def keep_tokens(self, tokens: Sequence[int], start: int, layout: Layout | None) -> None:
        """Keep the token ids of a chain from position `start` on; ids without an embedding become the last id."""
        if layout is None and start + len(tokens) < len(self.token_ids):
            self.token_ids[start : start + len(tokens)] = np.minimum(tokens, self._recipe.vocab - 1)

    def logits_of(self, rows: int) -> Floats:
        """Return `logits` with at least `rows` rows."""
        if rows > len(self.logits):
            self.logits = np.zeros((rows, self.logits.shape[1]), np.float32)
        return self.logits

    def make_tree_scratch(self) -> list[NDArray[Any]]:
        """Return `tree_scratch`, made on first use."""
        if not self.tree_scratch:
            for layer in self._recipe.layers:
                share = layer.mixer.share if isinstance(layer.mixer, Attention) else None
                self.tree_scratch.append(_of_tree(layer) if share is None else self.tree_scratch[share])
        return self.tree_scratch


def pass_buffers(wide: Floats, own: Floats, scores: Floats) -> dict[str, Any]:
    """Fields of a pass's record for buffers, as in `PassBuffers`."""
    sizes = {"wide_row": wide.shape[1], "own_row": own.shape[3], "own_size": own[0].size, "scores_row": scores.shape[1]}
    return {"wide": wide, "own": own, "scores": scores, **sizes}


def mixture_buffers(recipe: Recipe, threads: int) -> dict[str, NDArray[Any]]:
    """Buffers of mixtures for passes of up to `threads` threads: fields of MIXTURE, and `wide` for the others.

    Empty for a model without experts.
    """
    if not recipe.mixtures:
        return {}
    need = mixture_need(recipe, PREFILL_ROWS)
    return {
        "between": np.zeros(need.between, np.float32),
        "beside": np.zeros(need.beside, np.float32),
        "gates": np.zeros(need.gates, np.float32),
        "shares": np.zeros(need.pairs, np.float32),
        "chosen": np.zeros(need.pairs, np.int64),
        "order": np.zeros((threads, need.order), np.int64),
        "wide": np.zeros(need.rows, np.float32).reshape(-1, PREFILL_ROWS * recipe.hidden),
    }


def _of_tree(layer: Layer) -> NDArray[Any]:
    mixer = layer.mixer
    if isinstance(mixer, Delta):
        return np.zeros((MAX_TREE_NODES, pieces(mixer), width(mixer)), np.float32)
    shape = 2, MAX_TREE_NODES, mixer.kv_heads, row_size(mixer.head_dim, mixer.block)
    return np.zeros(shape, np.int8 if mixer.block else np.float32)
