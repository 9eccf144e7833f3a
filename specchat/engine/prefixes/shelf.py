"""The shelf: entries of other texts that the one live cache of a model has read, in main memory and on disk.

A cache that turns to another text copies what it would lose to the shelf, and takes back from there what it lacks. A
part has the entries of a text from some token on; those before it are in other parts, or in the live cache, so texts
with a common beginning have it once. Entries are copied bit for bit: no text depends on the shelf.
"""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.model.copies import CopiedCache
from specchat.engine.prefixes.files import PartFiles
from specchat.engine.prefixes.model_shelf import ModelShelf
from specchat.engine.prefixes.on_disk import UNKNOWN, remove_all
from specchat.engine.prefixes.parts import TextPart
from specchat.engine.protocol.pair_info import ReadTexts

FREE = 0.5
"""Most of the free main memory that a copy takes."""
LONG = 2048
"""Tokens of the texts that go to disk."""


class Shelf:
    """The parts of all models of a pair, in a bounded number of bytes: the least recently used ones go first."""

    def __init__(self, bounds: ReadTexts, identity: str = "") -> None:
        """`identity` stands for the pair's files, their form and the program that reads them."""
        self._bounds, self._identity = bounds, identity
        self._open, self.owner, self.deleted = False, UNKNOWN, set[str]()
        self.beginning = 0
        self._models: list[ModelShelf] = []
        self._clock = count(1)
        self._lent = 0
        """Bytes of main memory that other copies of the caches have."""

    def add(self, role: str, cached: CachedModel[Any]) -> None:
        """Let a model use the shelf, if its cache can be copied; others simply read again."""
        bounds = self._bounds
        if bounds.memory and isinstance(cached.model, CopiedCache):
            folder = Path(bounds.folder) if bounds.folder else None
            files = PartFiles(folder, f"{self._identity} {role}", bounds.disk) if folder else None
            cached.shelf = ModelShelf(self, cached.model, cached.tokens, files)
            self._models.append(cached.shelf)

    @property
    def open(self) -> bool:
        """False while nothing comes in or goes out, as for replies with empty caches."""
        return self._open

    @property
    def tails(self) -> bool:
        """True where texts go on from some tokens alone."""
        return any(one.tails for one in self._models)

    def hold(self, owner: str, beginning: int = 0, *, opened: bool = True) -> None:
        """From here on texts are those of `owner`; texts of others may have their first `beginning` tokens.

        Closing the shelf puts all texts in.
        """
        if self._open and not opened:
            self.put_all()
        self._open, self.owner, self.beginning = opened, owner, beginning

    def put_all(self) -> None:
        """Copy all that the caches hold now."""
        for one in self._models:
            one.put()

    def save(self, stop: Callable[[], bool]) -> None:
        """Put all texts in, and write long ones to disk, until `stop` says so."""
        if self._open and self._bounds.folder and not stop():
            self.put_all()
            for one in self._models:
                one.save(LONG, stop)

    @property
    def size(self) -> int:
        """Bytes of main memory."""
        return self._lent + sum(part.size for one in self._models for part in one.parts)

    @property
    def taken(self) -> ReadTexts:
        """Bytes taken."""
        disk = sum(part.form.size for one in self._models for part in one.parts if part.file is not None)
        return ReadTexts(self.size, disk, self._bounds.folder)

    @property
    def largest(self) -> int:
        """Most bytes of a part."""
        free = free_memory()
        most = self._bounds.memory - self._lent
        return most if free is None else min(most, int(FREE * free))

    def lend(self, size: int) -> bool:
        """Let a copy of a cache have `size` bytes more, if there is room for it, or as many less."""
        if size > self.largest:
            return False
        if size > 0:
            self.make_room(size)
        self._lent += size
        return True

    def touch(self, parts: Sequence[TextPart]) -> None:
        """Note that `parts` are used. Each goes on from those before it, which therefore stay longer."""
        for part in reversed(parts):
            part.used = next(self._clock)

    def make_room(self, size: int) -> None:
        """Let go of parts in main memory, for `size` bytes more."""
        while self.size + size > self._bounds.memory:
            held = [(part.used, i) for i, one in enumerate(self._models) for part in one.parts if part.size]
            used, model = min(held)
            self._models[model].let_go(next(part for part in self._models[model].parts if part.used == used))

    def clear(self) -> None:
        """Let go of all parts in main memory."""
        for one in self._models:
            for part in [part for part in one.parts if part.size]:
                one.let_go(part)

    def forget(self, chat: str) -> None:
        """Let go of what only texts of `chat` have, and take none of it in again; texts of others in caches stay."""
        self.deleted.add(chat)
        if self._open:
            self.put_all()
        for one in self._models:
            one.forget(chat)

    def remove(self) -> None:
        """Let go of everything, and remove all files, of other pairs too."""
        for one in self._models:
            one.parts.clear()
        if self._bounds.folder:
            remove_all(Path(self._bounds.folder))
