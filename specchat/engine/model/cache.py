"""Caches of all layers: static buffers; the writer tracks which entries are valid."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from specchat.engine.memory import host_need
from specchat.engine.memory.host_need import CACHE_BLOCK
from specchat.engine.memory.state_need import CHECKPOINTS
from specchat.engine.memory.vectors import LANES
from specchat.engine.model import kv_entries
from specchat.engine.model.copies import Tail
from specchat.engine.model.state_log import BASE, NOWHERE, StateCheckpoint, StateLog
from specchat.engine.model.zeros import zeros
from specchat.engine.recipe import Attention, Delta, Recipe, ShortConv


class CacheMarks(NamedTuple):
    """First positions of what windows hold, by layer, and of recurrent states, and positions of their checkpoints."""

    bases: tuple[int, ...]
    states: tuple[int, ...]
    checkpoints: tuple[int, ...]


def _part(mixer: Attention | ShortConv | Delta, capacity: int) -> tuple[tuple[int, int, int], torch.dtype]:
    """Shape and type of a layer's keys, and of its values."""
    if isinstance(mixer, Delta):
        return (0, capacity, 0), torch.float32
    row = kv_entries.row_size(mixer.head_dim, mixer.block)
    return (mixer.kv_heads, host_need.positions(mixer, capacity), row), torch.int8 if mixer.block else torch.float32


class CacheLayout:
    """Places of the keys and values of all layers in one tensor, in an order of the recipe alone.

    Attributes:
        owners: the layer whose entries each has.
        size: bytes of all.
        back: positions that a window keeps before its own when it slides.
    """

    def __init__(self, recipe: Recipe, capacity: int) -> None:
        self.owners = [index if layer.share is None else layer.share for index, layer in enumerate(recipe.layers)]
        self._parts = [_part(layer.mixer, capacity) for layer in recipe.layers]
        owned = (part for index, part in enumerate(self._parts) if self.owns(index))
        self.size = 2 * sum(math.prod(shape) * kind.itemsize for shape, kind in owned)
        self.back = host_need.BACK

    def owns(self, index: int) -> bool:
        """True if a layer has entries of its own."""
        return self.owners[index] == index

    def split(self, space: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of all layers in uint8 [size], views."""
        at = 0

        def views() -> list[torch.Tensor]:
            nonlocal at
            of: list[torch.Tensor] = []
            for owner, (shape, kind) in zip(self.owners, self._parts, strict=True):
                if owner < len(of):
                    of.append(of[owner])
                    continue
                size = math.prod(shape) * kind.itemsize
                of.append(space[at : at + size].view(kind).view(shape))
                at += size
            return of

        return views(), views()


class KVCache:
    """`keys` and `values` of each layer, float32 [kv_heads, positions, head_dim], or rows of `kv_entries.stored`.

    A layer with a window holds the last positions alone, from that of `bases` on. One that shares the entries of
    another has that layer's tensors. One with recurrent states has no KV entries, but one of `logs`.
    """

    def __init__(self, recipe: Recipe, context: int) -> None:
        self.capacity = -(-context // CACHE_BLOCK) * CACHE_BLOCK
        mixers = [layer.mixer for layer in recipe.layers]
        self.layout = CacheLayout(recipe, self.capacity)
        self.space = zeros(self.layout.size)
        """Bytes that all keys and values lie in."""
        self.keys, self.values = self.layout.split(self.space)
        self._sizes = [0 if isinstance(mixer, Delta) else mixer.head_dim for mixer in mixers]
        self.bases = [0] * len(mixers)
        self._windows = {
            index: mixer.window
            for index, (mixer, keys) in enumerate(zip(mixers, self.keys, strict=True))
            if not isinstance(mixer, Delta) and keys.shape[1] < self.capacity
        }
        """Windows of the layers that hold the last positions alone."""
        self.logs = [StateLog(mixer) if isinstance(mixer, Delta) else None for mixer in mixers]
        self._recurrent = {index: log for index, log in enumerate(self.logs) if log is not None}
        self._checkpoints: dict[int, dict[int, StateCheckpoint]] = {}
        """States of each layer by their position, in the order in which they were taken."""

    def read(self, index: int, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a layer at positions first, ..., last - 1: float32 [kv_heads, last - first, head_dim]."""
        places, size = slice(first - self.bases[index], last - self.bases[index]), self._sizes[index]
        keys, values = (kv_entries.loaded(part[index][:, places], size) for part in (self.keys, self.values))
        return keys, values

    def slide(self, start: int, end: int, first: int, last: int) -> bool:
        """Let layers first, ..., last - 1 write positions start, ..., end - 1; return True where `bases` changed.

        Raises:
            ValueError: entries that position `start` attends to are gone, or states that it goes on from.
        """
        moved = False
        self._checkpoints = {at: states for at, states in self._checkpoints.items() if at <= start}
        there = self._checkpoints.get(start, {})
        for index, log in self._recurrent.items():
            if first <= index < last:
                log.make_room(start, end, there.get(index))
        for index, window in self._windows.items():
            if not self.layout.owns(index):
                self.bases[index] = self.bases[self.layout.owners[index]]
                continue
            base, keys = self.bases[index], self.keys[index]
            size = keys.shape[1]
            if start == 0 and base:
                self.bases[index], moved = 0, True
            elif end - base > size:
                # In whole vectors: an entry's place in a vector never changes.
                self.bases[index], moved = (start - window - self.layout.back) // LANES * LANES, True
                shift = self.bases[index] - base
                for part in (keys, self.values[index]):
                    part[:, : size - shift] = part[:, shift:].clone()
            if start and self.bases[index] > max(0, start - window + 1):
                raise ValueError(f"entries before position {self.bases[index]} are gone, and {start} attends to them")
        return moved

    def checkpoint(self) -> None:
        """Hold the states before the last pass, which ran over all layers, and let go of the oldest."""
        positions = {log.at for log in self._recurrent.values()}
        if len(positions) == 1 and 0 < (at := positions.pop()) < NOWHERE and at not in self._checkpoints:
            self._checkpoints[at] = {index: log.checkpoint() for index, log in self._recurrent.items()}
            for old in list(self._checkpoints)[:-CHECKPOINTS]:
                del self._checkpoints[old]

    def saved(self, first: int, last: int) -> Callable[[], None]:
        """A function that puts back what a pass over positions first, ..., last - 1 changes."""
        parts = (pair for kind in (self.keys, self.values) for pair in zip(kind, self.bases, strict=True))
        held = [part.narrow(1, first - base, last - first) for part, base in parts]
        copies = [part.clone() for part in held]
        logs = [log.saved(first, last) for log in self._recurrent.values()]

        def put_back() -> None:
            for part, before in zip(held, copies, strict=True):
                part.copy_(before)
            for log in logs:
                log()

        return put_back

    def reusable(self, length: int, marks: CacheMarks | None = None) -> int:
        """The most tokens, up to `length`, after which a text may go on from what the cache holds, or a tail."""
        bases, states, checkpoints = marks or self._marks()
        if any(length < base for base in states):
            length = max((at for at in checkpoints if at <= length), default=0)
        gone = any(bases[index] > max(0, length - window + 1) for index, window in self._windows.items())
        return 0 if gone else length

    def _marks(self) -> CacheMarks:
        return CacheMarks(
            tuple(self.bases), tuple(log.base for log in self._recurrent.values()), tuple(self._checkpoints)
        )

    @property
    def entries(self) -> list[torch.Tensor]:
        """Keys and values of the layers that have those of all positions, [kv_heads, positions, row]."""
        return self.entries_of(self.keys, self.values)

    def entries_of(self, *parts: list[torch.Tensor]) -> list[torch.Tensor]:
        """`entries` among `parts`, keys and values of all layers."""
        of_layers = [
            i for i in range(len(self.keys)) if self.layout.owns(i) and i not in {*self._windows, *self._recurrent}
        ]
        return [part[index] for index in of_layers for part in parts]

    def tail(self, held: int) -> Tail | None:
        """Windows, states and the newest checkpoint, for a text of `held` tokens; None for a model without."""
        if not self._windows and not self._recurrent:
            return None
        bases, states, checkpoints = self._marks()
        at = checkpoints[-1:]
        taken = [self._checkpoints[one][index] for one in at for index in self._recurrent]
        logs = [part for log in self._recurrent.values() for part in (log.states[BASE], log.entries)]
        tensors = *self._sliding(held), *logs, *(part for one in taken for part in one)
        return Tail(tensors, (*bases, *states, *at))

    def marks(self, tail: Tail) -> CacheMarks:
        """The marks of a tail."""
        layers, states = len(self.bases), len(self._recurrent)
        numbers = tail.numbers
        return CacheMarks(numbers[:layers], numbers[layers : layers + states], numbers[layers + states :])

    def resume(self, held: int, tail: Tail) -> None:
        """Take over the tail of a text of `held` tokens."""
        bases, states, checkpoints = self.marks(tail)
        self.bases[:], tensors = bases, iter(tail.tensors)
        for part in self._sliding(held):
            part.copy_(next(tensors))
        for log, base in zip(self._recurrent.values(), states, strict=True):
            log.resume(base, next(tensors), next(tensors))
        self._checkpoints = {
            at: {index: StateCheckpoint(next(tensors).clone(), next(tensors).clone()) for index in self._recurrent}
            for at in checkpoints
        }

    def _sliding(self, held: int) -> list[torch.Tensor]:
        """Keys and values that layers with windows hold of a text of `held` tokens, views."""
        own = [(index, max(0, held - self.bases[index])) for index in self._windows if self.layout.owns(index)]
        return [part[index][:, :last] for index, last in own for part in (self.keys, self.values)]

    def memory(self) -> int:
        """Bytes held."""
        taken = [part for one in self._checkpoints.values() for of_layer in one.values() for part in of_layer]
        pairs = zip(self.keys, self.values, strict=True)
        owned = [part for index, pair in enumerate(pairs) if self.layout.owns(index) for part in pair]
        held = *owned, *taken, *(part for log in self._recurrent.values() for part in (log.states, log.entries))
        return sum(part.nbytes for part in held)
