"""The shelf: what the one live cache of a model held of other texts, in main memory.

A cache that turns to another text copies what it would lose to the shelf, and takes back from there what it lacks. A
part has the entries of a text from some token on; those before it are in other parts, or in the live cache, so texts
with a common beginning have it once. Entries are copied bit for bit: no text depends on the shelf.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.model.tree_layout import shared_prefix
from specchat.engine.prefixes.entries import ALIGNMENT, Copies, Entries, Packed, Tail, bytes_of, shape_of

LEAST, LEAST_WITH_TAIL = 32, 256
"""Tokens from which a copy is made: fewer are soon read again. Tails may take as long as hundreds of them."""
FREE = 0.5
"""Most of the free main memory that a copy takes."""


@dataclass(eq=False)
class Part:
    """Entries of the tokens from `first` on of a text that ends with the last of them, and its tail, if it has one.

    `used` is the time of the last use.
    """

    token_ids: list[int]
    first: int
    rows: Packed
    tail: Packed | None = None
    numbers: tuple[int, ...] = ()
    used: int = 0

    @property
    def size(self) -> int:
        """Bytes of main memory."""
        return self.rows.whole.nbytes + (0 if self.tail is None else self.tail.whole.nbytes)


class Run(NamedTuple):
    """A part with the entries of tokens first, ..., last - 1 of another text."""

    part: Part
    first: int
    last: int


class Shelf:
    """The parts of all models of a pair, in a bounded number of bytes: the least recently used ones go first."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes of main memory; 0: nothing is held."""
        self.limit = limit
        self._open = False
        self._models: list[ModelShelf] = []
        self._clock = count(1)

    def add(self, cached: CachedModel[Any]) -> None:
        """Let a model use the shelf, if its cache can be copied; others simply read again."""
        if self.limit and isinstance(cached.model, Copies):
            cached.shelf = ModelShelf(self, cached.model, cached.tokens)
            self._models.append(cached.shelf)

    @property
    def open(self) -> bool:
        """False while nothing comes in or goes out, as for replies with empty caches. Closing it puts all texts in."""
        return self._open

    @open.setter
    def open(self, opened: bool) -> None:
        if self._open and not opened:
            self.put_all()
        self._open = opened

    def put_all(self) -> None:
        """Copy all that the caches hold now."""
        for one in self._models:
            one.put()

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(part.size for one in self._models for part in one.parts)

    @property
    def largest(self) -> int:
        """Most bytes of a part."""
        free = free_memory()
        return self.limit if free is None else min(self.limit, int(FREE * free))

    def touch(self, parts: Sequence[Part]) -> None:
        """Note that `parts` are used. Each goes on from those before it, which therefore stay longer."""
        for part in reversed(parts):
            part.used = next(self._clock)

    def make_room(self, size: int) -> None:
        """Let go of parts, for `size` bytes more."""
        while self.size + size > self.limit:
            parts = min((one.parts for one in self._models if one.parts), key=lambda parts: _oldest(parts).used)
            parts.remove(_oldest(parts))

    def clear(self) -> None:
        """Let go of all parts."""
        for one in self._models:
            one.parts.clear()


def _oldest(parts: Sequence[Part]) -> Part:
    return min(parts, key=lambda part: part.used)


class ModelShelf:
    """The parts of one model."""

    def __init__(self, shelf: Shelf, model: Copies, token_ids: list[int]) -> None:
        """`token_ids`: those that the cache holds, the same list at all times."""
        self._shelf, self._model, self._token_ids = shelf, model, token_ids
        self.parts: list[Part] = []

    @torch.inference_mode()
    def turn(self, wanted: Sequence[int]) -> None:
        """Turn the cache to as much of the text `wanted` as it and the parts have."""
        if not self._shelf.open:
            return
        token_ids = self._token_ids
        shared = shared_prefix(token_ids, wanted)
        self.put(shared, [part for part, alike in self._alike(wanted).items() if alike > shared])
        alike = self._alike(wanted)
        runs = _runs(alike, shared)
        length, end = runs[-1].last if runs else shared, None
        if self._model.tail(0) is not None:
            reaches = {part: self._reach(part, min(alike[part], length)) for part in self.parts if part.tail}
            end = max(reaches, key=lambda part: reaches[part], default=None)
            if end is None or reaches[end] <= self._model.reach(shared, len(token_ids), None):
                return
            length = min(alike[end], length)
        if end is not None or length > shared:
            self._take(runs, length, end)
            token_ids[:] = wanted[:length]
            held, tail = (length, None) if end is None else (len(end.token_ids), _tail(end))
            self._model.resume(token_ids, held, tail)

    @torch.inference_mode()
    def put(self, since: int = 0, wanted: Sequence[Part] = ()) -> None:
        """Copy what the cache holds from token `since` on, unless it is little or parts have it; `wanted` ones stay."""
        text, tail = self._token_ids.copy(), self._model.tail(len(self._token_ids))
        if len(text) - since < (LEAST if tail is None else LEAST_WITH_TAIL):
            return
        alike = self._alike(text)
        runs, before = _runs(alike, since), [run.part for run in _runs(alike, 0)]
        first = runs[-1].last if runs else since
        known = tail is None or any(part.tail and alike[part] == len(part.token_ids) == len(text) for part in alike)
        if first < len(text) or not known:
            self._shelf.touch([*wanted, *before])
            if (new := self._copied(text, first, tail, {*wanted, *before})) is not None:
                self._replace_tails(alike, new)
                self.parts.append(new)
                before.append(new)
        self._shelf.touch(before)

    def _copied(self, text: list[int], first: int, tail: Tail | None, others: Collection[Part]) -> Part | None:
        """A part with the entries of `text` from `first` on, with `others` staying; None without room."""
        entries, ends = self._model.entries(), () if tail is None else tail.tensors
        size = _size(entries.of(first, len(text))) + _size(ends)
        most = self._shelf.largest - sum(part.size for part in others)
        if size > most and tail is None:  # as much of its beginning as there is room for
            most = max(0, most - ALIGNMENT * len(entries.tensors))
            del text[first + (len(text) - first) * most // size :]
            size = _size(entries.of(first, len(text)))
        if size > most or (tail is None and len(text) - first < LEAST):
            return None
        self._shelf.make_room(size)
        try:
            rows = Packed.of(entries.of(first, len(text)))
            return Part(text, first, rows, Packed.of(ends) if tail else None, tail.numbers if tail else ())
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            logging.getLogger(__name__).warning("no memory for what was read: it is read again", exc_info=True)
            self._shelf.clear()
            return None

    def _replace_tails(self, alike: Mapping[Part, int], new: Part) -> None:
        """Drop tails of texts that `new` goes on from: tails take the more memory, and its own reaches back some."""
        for part in self.parts if new.tail is not None else ():
            if alike[part] == len(part.token_ids):
                part.tail = None
        self.parts[:] = [part for part in self.parts if part.tail or part.first < len(part.token_ids)]

    def _take(self, runs: Sequence[Run], length: int, end: Part | None) -> None:
        """Copy entries back, up to token `length`."""
        entries, used = self._model.entries(), list[Part]()
        for part, first, last in runs:
            if first < length:
                stored = Entries(part.rows.tensors, entries.shift + max(0, part.first - entries.shift))
                views = zip(entries.of(first, min(last, length)), stored.of(first, min(last, length)), strict=True)
                for into, copied in views:
                    into.copy_(copied)
                used.append(part)
        self._shelf.touch([*used, *([end] if end is not None and end not in used else [])])

    def _alike(self, text: Sequence[int]) -> dict[Part, int]:
        """Tokens that each part's text shares with `text`."""
        return {part: shared_prefix(part.token_ids, text) for part in self.parts}

    def _reach(self, part: Part, length: int) -> int:
        return self._model.reach(length, len(part.token_ids), _tail(part))


def _size(tensors: Sequence[Tensor]) -> int:
    return bytes_of([shape_of(tensor) for tensor in tensors])


def _tail(part: Part) -> Tail:
    assert part.tail is not None
    return Tail(part.tail.tensors, part.numbers)


def _runs(alike: Mapping[Part, int], first: int) -> list[Run]:
    """Parts with the entries of a text from `first` on, without a gap, by the tokens that they share with it."""
    runs = list[Run]()
    while True:
        here = [part for part, shared in alike.items() if part.first <= first < shared]
        if not here:
            return runs
        longest = max(here, key=lambda part: alike[part])
        runs.append(Run(longest, first, alike[longest]))
        first = alike[longest]
