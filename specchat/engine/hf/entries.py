"""Layers of transformers' cache that give back any number of tokens exactly, and those that keep a running state."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

LEAST_ROOM = 256
"""Tokens that a layer has room for at first; it doubles."""


class Entries:
    """Keys and values [1, heads, length, head size], in tensors that have room for more."""

    def __init__(self) -> None:
        self.length = 0
        self._stores: list[Tensor] = []

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Append [1, heads, count, head size] each."""
        count = keys.shape[-2]
        needed = self.length + count
        if not self._stores or needed > self._stores[0].shape[-2]:
            self._grow((keys, values), max(LEAST_ROOM, needed, 2 * self.length))
        for store, new in zip(self._stores, (keys, values), strict=True):
            store[..., self.length : needed, :] = new
        self.length = needed

    def since(self, start: int) -> tuple[Tensor, Tensor]:
        """Views of what is kept from entry `start` on."""
        keys, values = (store[..., start : self.length, :] for store in self._stores)
        return keys, values

    def _grow(self, like: tuple[Tensor, Tensor], room: int) -> None:
        held, self._stores = self._stores, [new.new_empty(*new.shape[:-2], room, new.shape[-1]) for new in like]
        for store, old in zip(self._stores, held, strict=False):
            store[..., : self.length, :] = old[..., : self.length, :]


class WholeLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Attends everything."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries = Entries()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.entries.add(key_states, value_states)
        self.keys, self.values = self.entries.since(0)
        return self.keys, self.values

    def cut(self, length: int) -> None:
        """Hold the first `length` tokens."""
        self.entries.length = min(length, self.entries.length)
        if self.is_initialized:
            self.keys, self.values = self.entries.since(0)


class WindowLayer(DynamicSlidingWindowLayer):  # type: ignore[no-untyped-call]
    """Attends a window, and keeps what is before it: of less nothing could be taken back once the window is full."""

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

    def cut(self, length: int) -> None:
        """Hold the first `length` tokens."""
        self.entries.length = self.cumulative_length = min(length, self.entries.length)


def roomy(cache: DynamicCache) -> list[WholeLayer | WindowLayer]:
    """Put layers that give back tokens in the place of transformers' own that only attend; gives those."""
    made: list[WholeLayer | WindowLayer] = []
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            made.append(WholeLayer())
        elif type(layer) is DynamicSlidingWindowLayer:
            made.append(WindowLayer(layer.sliding_window))
        else:
            continue
        cache.layers[index] = made[-1]
    return made


def running(cache: DynamicCache) -> list[Any]:
    """The layers whose state no tokens can be taken out of."""
    return [layer for layer in cache.layers if not isinstance(layer, (WholeLayer, WindowLayer, DummyLayer))]


def copied(state: Any) -> Any:
    """A state with tensors of its own: layers change theirs in place."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list):
        return [copied(value) for value in state]
    return state
