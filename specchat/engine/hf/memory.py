"""Caches of a network, and how they roll back to an earlier position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache

from specchat.engine.hf.entries import copied, recurrent_layers, replace_attention_layers

MAX_ROLLBACK_TOKENS = 24
"""Tokens that one step rolls back at most: the longest draft and a reserve."""


@dataclass(frozen=True)
class SavedStates:
    """Recurrent states after `length` tokens."""

    length: int
    states: list[dict[str, Any]]


class RollbackCache:
    """A cache that rolls back: KV entries are truncated, recurrent states are restored to the start of a pass.

    For a position between two starts the model rereads the tokens up to it.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        self._config = config
        self.clear()

    def clear(self) -> None:
        self.cache = DynamicCache(config=self._config)
        self._attending = replace_attention_layers(self.cache)
        self._recurrent = recurrent_layers(self.cache)
        self._saved = [self._save(0)]
        self.turn = 0
        """Position whose states are kept: the end of the last write."""

    def roll_back(self, held: int, start: int, rows: int) -> int:
        if start == held:
            return held
        if self._recurrent:
            while self._saved[-1].length > start:
                self._saved.pop()
            saved = self._saved[-1]
            for layer, state in zip(self._recurrent, saved.states, strict=True):
                layer.__dict__.clear()
                layer.__dict__.update(copied(state))
            start = saved.length
        for entries in self._attending:
            entries.truncate(start)
        return start

    def begin(self, held: int) -> None:
        if not self._recurrent or self._saved[-1].length == held:
            return
        near = [saved for saved in self._saved if saved.length > held - MAX_ROLLBACK_TOKENS]
        far = [saved for saved in self._saved if saved.length <= held - MAX_ROLLBACK_TOKENS]
        kept = [saved for saved in far if saved.length in (0, self.turn) or saved is far[-1]]
        self._saved = [*kept, *near, self._save(held)]

    def _save(self, length: int) -> SavedStates:
        return SavedStates(length, [copied(layer.__dict__) for layer in self._recurrent])

    def size(self, context: int) -> int:
        stores = [store for layer in self._attending for store in (layer.keys, layer.values) if store is not None]
        entries = sum(store.shape[1] * store.shape[3] * store.element_size() for store in stores)
        return entries * context


class OpaqueCache:
    """A network's own cache: it rolls back only to the beginning, and grows by one token a pass."""

    turn = 0

    def __init__(self, fresh: Callable[[], Any]) -> None:
        """`fresh` makes the input of the first pass."""
        self._fresh = fresh
        self.cache = fresh()

    def roll_back(self, held: int, start: int, rows: int) -> int:
        if start == held and rows == 1:
            return held
        self.cache = self._fresh()
        return 0

    def begin(self, held: int) -> None:
        pass

    def clear(self) -> None:
        self.cache = self._fresh()

    def size(self, context: int) -> int:
        return 0
