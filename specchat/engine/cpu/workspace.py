"""What compiled passes write besides the cache: rows, partial sums, scores, counters, and a tree's entries."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.products import PANELS
from specchat.engine.cpu.together import LINE
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout
from specchat.engine.model.vectors import FEW, LANES, attention_room, panels_for

Floats = NDArray[np.float32]


class Workspace:
    """The buffers of one decoder, whose passes write them over.

    Attributes:
        x: float32 [PREFILL_ROWS, hidden], the hidden states of a pass's rows.
        wide: float32 [PREFILL_ROWS, width of the widest product].
        own, scores: float32 [threads, ...], what each thread has for itself.
        said: int64 [slots + 1], the tokens that went through last, by their slots, and one more.
        logits: float32 [rows, width of the head], of the most rows so far.
        stashes: for each layer float32 [2, MAX_TREE_NODES, kv_heads, head_dim], keys and values of a tree; none before
            `stash` was called.
        counters, head_counters: int64, by which threads take turns; zero before a pass.
    """

    def __init__(self, config: ModelConfig, table: NDArray[np.int64], threads: int, slots: int) -> None:
        """For products of `table`, so many threads, and a cache of so many slots."""
        self._recipe = recipe = config.recipe
        after = any(layer.post_mixer or layer.post_feed for layer in recipe.layers)
        widest = panels_for(recipe.hidden) * after + int(table[:-1, PANELS].max())
        self.x: Floats = np.zeros((PREFILL_ROWS, recipe.hidden), np.float32)
        self.wide: Floats = np.zeros((PREFILL_ROWS, LANES * widest), np.float32)
        self.own: Floats = np.zeros((threads, 2, PREFILL_ROWS, max(recipe.hidden, FEW * LANES)), np.float32)
        self.scores: Floats = np.zeros((threads, attention_room(slots, recipe.deepest)), np.float32)
        self.said = np.zeros(slots + 1, np.int64)
        self.logits: Floats = np.zeros((0, LANES * int(table[-1, PANELS])), np.float32)
        self.stashes: list[Floats] = []
        self.counters = np.zeros(LINE * (1 + 5 * config.layers), np.int64)
        self.head_counters = np.zeros(2 * LINE, np.int64)

    def say(self, tokens: Sequence[int], start: int, runs: Layout | None) -> None:
        """Keep a chain that goes through from slot `start` on, a token without an embedding as the last one."""
        if runs is None and start + len(tokens) < len(self.said):
            self.said[start : start + len(tokens)] = np.minimum(tokens, self._recipe.vocab - 1)

    def room(self, rows: int) -> Floats:
        """`logits`, with so many rows at least."""
        if rows > len(self.logits):
            self.logits = np.zeros((rows, self.logits.shape[1]), np.float32)
        return self.logits

    def stash(self) -> list[Floats]:
        """`stashes`, made when first needed."""
        if not self.stashes:
            mixers = [layer.mixer for layer in self._recipe.layers]
            self.stashes = [np.zeros((2, MAX_TREE_NODES, m.kv_heads, m.head_dim), np.float32) for m in mixers]
        return self.stashes
