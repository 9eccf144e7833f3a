"""Buffers that compiled passes write besides the KV cache: rows, partial sums, scores, counters, tree scratch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.mixtures import Mixtures
from specchat.engine.cpu.products import INPUTS, ORDER, PANELS
from specchat.engine.cpu.together import LINE
from specchat.engine.memory.state_need import room as state_room
from specchat.engine.memory.state_need import width
from specchat.engine.memory.vectors import FEW, LANES, attention_room, filled, panels_for
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout
from specchat.engine.recipe import Attention, Delta, Layer
from specchat.engine.weights.config import ModelConfig

Floats = NDArray[np.float32]


class PassBuffers:
    """Buffers of one decoder, which each pass overwrites.

    Attributes:
        x: float32 [PREFILL_ROWS, hidden], hidden states of a pass's rows.
        wide: float32 [PREFILL_ROWS, width of the widest product].
        own, scores: float32 [threads, ...], each thread's own.
        token_ids: int64 [capacity + 1], by position: the last token of a pass at it, and one more.
        logits: float32 [rows, width of the head], for the most rows so far.
        tree_scratch: for each layer float32 [2, MAX_TREE_NODES, kv_heads, head_dim], keys and values of a tree, its own
            or those that it shares, or [MAX_TREE_NODES, key_heads, values], entries of recurrent states; empty until
            `make_tree_scratch`.
        mixtures: buffers of experts.
        counters, head_counters: int64, counters of `together.py`; zero before a pass.
    """

    def __init__(self, config: ModelConfig, table: NDArray[np.int64], threads: int, capacity: int) -> None:
        """Make buffers for products of `table`, for `threads` threads and a cache of `capacity` positions."""
        self._recipe = recipe = filled(config.recipe)
        after = any(layer.post_mixer or layer.post_feed or layer.input for layer in recipe.layers)
        gates = max((sum(map(panels_for, mixer.gates.outputs)) for mixer in recipe.recurrent), default=0)
        widest = panels_for(recipe.hidden) * after + gates + int(table[:-1, PANELS].max())
        self.x: Floats = np.zeros((PREFILL_ROWS, recipe.hidden), np.float32)
        self.wide: Floats = np.zeros((PREFILL_ROWS, LANES * widest), np.float32)
        ordered = int(table[table[:, ORDER] != 0, INPUTS].max(initial=0))
        self.own: Floats = np.zeros((threads, 2, PREFILL_ROWS, max(recipe.hidden, FEW * LANES, ordered)), np.float32)
        most = max([attention_room(capacity, recipe.deepest), *map(state_room, recipe.recurrent)])
        self.scores: Floats = np.zeros((threads, most), np.float32)
        self.token_ids = np.zeros(capacity + 1, np.int64)
        self.logits: Floats = np.zeros((0, LANES * int(table[-1, PANELS])), np.float32)
        self.tree_scratch: list[Floats] = []
        self.mixtures = Mixtures(recipe, threads)
        of_inputs = 1 + 2 * config.layers if recipe.per_layer else 0
        self.counters = np.zeros(LINE * (1 + 5 * config.layers + of_inputs), np.int64)
        self.head_counters = np.zeros(2 * LINE, np.int64)

    def keep_tokens(self, tokens: Sequence[int], start: int, layout: Layout | None) -> None:
        """Keep the token ids of a chain from position `start` on; ids without an embedding become the last id."""
        if layout is None and start + len(tokens) < len(self.token_ids):
            self.token_ids[start : start + len(tokens)] = np.minimum(tokens, self._recipe.vocab - 1)

    def logits_of(self, rows: int) -> Floats:
        """Return `logits` with at least `rows` rows."""
        if rows > len(self.logits):
            self.logits = np.zeros((rows, self.logits.shape[1]), np.float32)
        return self.logits

    def make_tree_scratch(self) -> list[Floats]:
        """Return `tree_scratch`, made on first use."""
        if not self.tree_scratch:
            for layer in self._recipe.layers:
                share = layer.mixer.share if isinstance(layer.mixer, Attention) else None
                own = np.zeros(_of_tree(layer), np.float32) if share is None else self.tree_scratch[share]
                self.tree_scratch.append(own)
        return self.tree_scratch


def _of_tree(layer: Layer) -> tuple[int, ...]:
    mixer = layer.mixer
    if isinstance(mixer, Delta):
        return MAX_TREE_NODES, mixer.key_heads, width(mixer)
    return 2, MAX_TREE_NODES, mixer.kv_heads, mixer.head_dim
