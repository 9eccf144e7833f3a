"""Caches of a network, and how they roll back to an earlier position exactly: KV entries, and recurrent states."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PretrainedConfig, cache_utils
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

INITIAL_CAPACITY = 256
"""Tokens; it doubles."""
MAX_ROLLBACK_TOKENS = 24
"""Tokens that one step rolls back at most: the longest draft and a reserve."""


class Entries:
    """Keys and values [1, heads, length, head_dim], in tensors with spare capacity."""

    def __init__(self) -> None:
        self.length = 0
        self._stores: list[Tensor] = []

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Append [1, heads, count, head size] each."""
        count = keys.shape[-2]
        needed = self.length + count
        if not self._stores or needed > self._stores[0].shape[-2]:
            self._grow((keys, values), max(INITIAL_CAPACITY, needed, 2 * self.length))
        for store, new in zip(self._stores, (keys, values), strict=True):
            store[..., self.length : needed, :] = new
        self.length = needed

    def since(self, start: int) -> tuple[Tensor, Tensor]:
        """Views [1, heads, length - start, head_dim] of the KV entries from position `start` on."""
        keys, values = (store[..., start : self.length, :] for store in self._stores)
        return keys, values

    def _grow(self, like: tuple[Tensor, Tensor], room: int) -> None:
        old_stores, self._stores = self._stores, [new.new_empty(*new.shape[:-2], room, new.shape[-1]) for new in like]
        for store, old in zip(self._stores, old_stores, strict=False):
            store[..., : self.length, :] = old[..., : self.length, :]


class FullAttentionLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Attends to all positions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries = Entries()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.entries.add(key_states, value_states)
        self.keys, self.values = self.entries.since(0)
        return self.keys, self.values

    def truncate(self, length: int) -> None:
        """Keep the first `length` positions."""
        self.entries.length = min(length, self.entries.length)
        if self.is_initialized:
            self.keys, self.values = self.entries.since(0)


class SlidingWindowLayer(DynamicSlidingWindowLayer):  # type: ignore[no-untyped-call]
    """Attends to a window, and keeps the KV entries before it, which a rollback needs once the window is full."""

    def __init__(self, sliding_window: int) -> None:
        super().__init__(sliding_window)
        self.entries = Entries()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.entries.length
        self.entries.add(key_states, value_states)
        self.cumulative_length = self.entries.length
        self.keys, self.values = self.entries.since(max(0, before - self.sliding_window + 1))
        return self.keys, self.values

    def truncate(self, length: int) -> None:
        """Keep the first `length` positions."""
        self.entries.length = self.cumulative_length = min(length, self.entries.length)


def replace_attention_layers(cache: DynamicCache) -> list[FullAttentionLayer | SlidingWindowLayer]:
    """Replace transformers' attention layers by ones that roll back, and return the new ones."""
    made: list[FullAttentionLayer | SlidingWindowLayer] = []
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            made.append(FullAttentionLayer())
        elif type(layer) is DynamicSlidingWindowLayer:
            made.append(SlidingWindowLayer(layer.sliding_window))
        else:
            continue
        cache.layers[index] = made[-1]
    return made


def recurrent_layers(cache: DynamicCache) -> list[Any]:
    """Layers with a recurrent state, which cannot be rolled back."""
    # Only newer versions of transformers have layers without a state.
    reversible = (FullAttentionLayer, SlidingWindowLayer, getattr(cache_utils, "DummyLayer", FullAttentionLayer))
    return [layer for layer in cache.layers if not isinstance(layer, reversible)]


def copied(state: Any) -> Any:
    """A deep copy of a state, because layers change theirs in place."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list):
        return [copied(value) for value in state]
    return state


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
