"""The shelf of one model: copies between its live cache and parts."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.model.copies import CacheEntries, CopiedCache, copy_parts
from specchat.engine.model.tree_layout import shared_prefix
from specchat.engine.prefixes.entries import ALIGNMENT, PackedCopies, shape_of
from specchat.engine.prefixes.files import PartFiles
from specchat.engine.prefixes.on_disk import NOBODY, UNKNOWN
from specchat.engine.prefixes.parts import Contents, PartForm, PartSource, TextPart, alike, runs_from
from specchat.engine.protocol.picture_ids import FIRST

LEAST, LEAST_WITH_TAIL = 32, 256
"""Tokens from which a copy is made: fewer are soon read again. Tails may take as long as hundreds of them."""


class Room(Protocol):
    """The main memory that the shelves of a pair's models share.

    Attributes:
        owner: of the texts that are read.
        beginning: tokens of them that texts of others may begin with.
        deleted: chats whose texts are not taken in.
    """

    owner: str
    beginning: int
    deleted: set[str]

    @property
    def open(self) -> bool:
        """False while nothing comes in or goes out."""
        ...

    @property
    def largest(self) -> int:
        """Most bytes of a part."""
        ...

    def touch(self, parts: Sequence[TextPart]) -> None:
        """Note that `parts` are used."""
        ...

    def make_room(self, size: int) -> None:
        """Let go of parts, for `size` bytes more."""
        ...

    def clear(self) -> None:
        """Let go of all parts."""
        ...


class ModelShelf:
    """The parts of one model."""

    def __init__(self, room: Room, model: CopiedCache, token_ids: list[int], files: PartFiles | None) -> None:
        """`token_ids`: those that the cache holds, the same list at all times."""
        self._room, self._model, self._token_ids, self._files = room, model, token_ids, files
        self._shapes = _shapes(model.entries().tensors)
        self._owner = UNKNOWN
        """The owner of what the cache holds."""
        self.parts = [] if files is None else [part for part in files.found() if self._fits(part)]

    def _fits(self, part: TextPart) -> bool:
        return part.form.rows == _shapes(self._model.entries().of(part.first, len(part.token_ids)))

    def _look(self) -> None:
        """Drop the parts that have other entries than the cache: training records states of more layers."""
        if (shapes := _shapes(self._model.entries().tensors)) != self._shapes:
            self._shapes = shapes
            self.parts[:] = [part for part in self.parts if self._fits(part)]

    @torch.inference_mode()
    def turn(self, wanted: Sequence[int]) -> int:
        """Turn the cache to as much of the text `wanted` as it and the parts have.

        Return the token at which to `put_common`: up to there texts of others are the same, or may be, and windows or
        states would not let them go on from there (Marconi, Pan et al. 2024, section 4.1); 0 for none.
        """
        if not self._room.open:
            self._owner = self._room.owner
            return 0
        self._look()
        shared = shared_prefix(self._token_ids, wanted)
        wanted_parts = self._source(wanted, shared).parts
        self._room.touch(wanted_parts)
        self.put(shared, wanted_parts)
        self._owner = self._room.owner
        while (source := self._source(wanted, shared)).reach > self._held(shared):
            if self._loaded(source.parts):
                self._take(source, wanted)
                break
        return self._parting(wanted)

    def _parting(self, wanted: Sequence[int]) -> int:
        """The last token at which other texts part from `wanted`, if it is long after what the cache has; else 0."""
        if not self.tails:
            return 0
        begun = self._held(shared_prefix(self._token_ids, wanted))
        furthest = max([min(self._room.beginning, len(wanted)), *alike(self.parts, wanted).values()])
        return furthest if furthest - begun >= LEAST_WITH_TAIL else 0

    @torch.inference_mode()
    def put(self, since: int = 0, wanted: Collection[TextPart] = ()) -> None:
        """Copy what the cache holds from token `since` on, unless it is little or parts have it; `wanted` ones stay."""
        if self._owner not in self._room.deleted:
            self._look()
            self._keep(self._token_ids.copy(), self._live(), self._owner, since, wanted)

    @torch.inference_mode()
    def put_common(self) -> None:
        """Copy what the cache holds, for several texts to go on from."""
        if self._owner not in self._room.deleted:
            self._keep(self._token_ids.copy(), self._live()._replace(common=True), self._owner)

    @torch.inference_mode()
    def take(self, text: Sequence[int], copy: CacheCopy, chat: str | None) -> None:
        """Copy what a copy of the cache holds of a text of `chat`, as `put` does."""
        if self._room.open and chat not in self._room.deleted:
            self._keep(list(text), Contents(copy.entries, copy.tail(len(text))), chat or NOBODY)

    def _live(self) -> Contents:
        """The contents of the cache."""
        return Contents(self._model.entries(), self._model.tail(len(self._token_ids)))

    def _keep(
        self, text: list[int], held: Contents, owner: str, since: int = 0, wanted: Collection[TextPart] = ()
    ) -> None:
        """Copy what is `held` of an owner's `text`, as `put` does."""
        known = self._source(text, since)
        least = LEAST if held.tail is None else LEAST_WITH_TAIL
        before = [run.part for run in runs_from(0, alike(self.parts, text))]
        if len(text) - max(since, known.reach) >= least:
            self._room.touch(before)
            first = known.runs[-1].last if known.runs else since
            if (new := self._copied(text, first, held, {*wanted, *before})) is not None:
                self._replace_tails(new)
                self.parts.append(new)
                before.append(new)
        self._share(text, owner)
        self._room.touch(before)

    def _share(self, text: Sequence[int], owner: str) -> None:
        """Note what an owner's `text` shares with the parts."""
        for part, shared in alike(self.parts, text).items():
            if shared >= LEAST:
                part.shares[owner] = max(shared, part.shares.get(owner, 0))

    @torch.inference_mode()
    def forget(self, chat: str) -> None:
        """Let go of what is known of `chat` alone, or of an unknown owner; a beginning that others share stays."""
        for part in self.parts.copy():
            lost = [owner for owner in (chat, UNKNOWN) if owner in part.shares]
            if any(owner in part.owners for owner in lost):
                part.forget_file()
            for owner in lost:
                del part.shares[owner]
            if lost:
                self._cut(part, max(part.shares.values(), default=0))
        if self._owner in (chat, UNKNOWN) and (shared := alike(self.parts, self._token_ids)):
            part, length = max(shared.items(), key=lambda found: found[1])
            self._keep(self._token_ids[:length], Contents(self._model.entries()), part.owners[0])

    def _cut(self, part: TextPart, length: int) -> None:
        """Let go of a part's text after `length` tokens."""
        if length == len(part.token_ids):
            if part.rows is None and part.file is None:
                self.parts.remove(part)
            return
        if part.rows is None or not part.form.rows or length - part.first < LEAST:
            self.parts.remove(part)
            return
        rows = self._stored(part).of(part.first, length)
        try:
            part.rows, part.ends = PackedCopies.of(rows), None
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            self.parts.remove(part)
            return
        part.token_ids, part.form = part.token_ids[:length], PartForm(_shapes(rows))

    def save(self, least: int, stop: Callable[[], bool]) -> None:
        """Write the parts of texts of `least` tokens to files, until `stop` says so or one cannot be written."""
        if (files := self._files) is not None:
            long = [part for part in self.parts if part.file is None and len(part.token_ids) >= least]
            long = [part for part in long if max(part.token_ids) < FIRST]  # ids of pictures end with the session
            all(files.save(part, stop) for part in long if part.size < files.limit)

    def let_go(self, part: TextPart) -> None:
        """Let go of what main memory has of a part."""
        part.rows = part.ends = None
        if part.file is None:
            self.parts.remove(part)

    @property
    def tails(self) -> bool:
        """True where texts go on from some tokens alone."""
        return self._model.tail(0) is not None

    def _held(self, shared: int) -> int:
        """Tokens, of the first `shared` ones, that the live cache lets a text go on from."""
        return self._model.reach(shared, len(self._token_ids), None)

    def _source(self, text: Sequence[int], first: int) -> PartSource:
        """The best way to as much of `text` as parts have, after the `first` tokens that the live cache has."""
        shared = alike(self.parts, text)
        runs = runs_from(first, shared)
        last = runs[-1].last if runs else first
        if not self.tails:
            return PartSource(runs, last, last, None)
        best = PartSource(runs, first, 0, None)
        for part, same in shared.items():
            length, tail = min(same, last), part.tail
            if tail and (reach := self._model.reach(length, len(part.token_ids), tail)) > best.reach:
                best = PartSource(runs, length, reach, part)
        return best

    def _copied(self, text: list[int], first: int, held: Contents, others: Collection[TextPart]) -> TextPart | None:
        """A part with what is `held` of `text` from `first` on, with `others` staying; None without room."""
        entries, tail, common = held

        def form() -> PartForm:
            rows = _shapes(entries.of(first, len(text)))
            return PartForm(rows) if tail is None else PartForm(rows, _shapes(tail.tensors), tail.numbers, common)

        most = self._room.largest - sum(part.size for part in others)
        if (size := form().size) > most and tail is None:  # as much of its beginning as there is room for
            most = max(0, most - ALIGNMENT * len(entries.tensors))
            del text[first + (len(text) - first) * most // size :]
        new = TextPart(text, first, form())
        if new.form.size > most or (tail is None and len(text) - first < LEAST):
            return None
        self._room.make_room(new.form.size)
        try:
            new.rows = PackedCopies.of(entries.of(first, len(text)))
            new.ends = None if tail is None else PackedCopies.of(tail.tensors)
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            logging.getLogger(__name__).warning("no memory for what was read: it is read again", exc_info=True)
            self._room.clear()
            return None
        return new

    def _replace_tails(self, new: TextPart) -> None:
        """Drop tails of texts that `new` alone goes on from: they take more memory, and its own reaches back some."""
        if new.form.numbers is None:
            return
        for part, shared in alike(self.parts, new.token_ids).items():
            if shared == len(part.token_ids) and not part.form.common:
                part.drop_tail()
        self.parts[:] = [part for part in self.parts if part.tail or part.first < len(part.token_ids)]

    def _loaded(self, parts: Sequence[TextPart]) -> bool:
        """True once main memory has all of `parts`; else one that cannot be had is gone."""
        self._room.touch(parts)
        for part in [part for part in parts if part.rows is None]:
            fits = part.form.size <= self._room.largest - sum(other.size for other in parts)
            if fits:
                self._room.make_room(part.form.size)
            if not fits or self._files is None or not self._files.load(part):
                self.parts.remove(part)
                return False
        return True

    def _take(self, source: PartSource, wanted: Sequence[int]) -> None:
        """Copy entries and a tail to the live cache, which holds nothing until all are there."""
        entries, text = self._model.entries(), list(wanted[: source.length])
        self._token_ids.clear()
        for part, first, last in source.runs:
            if first < source.length:
                upto = min(last, source.length)
                copy_parts(entries.of(first, upto), self._stored(part).of(first, upto))
        held, tail = (source.length, None) if source.end is None else (len(source.end.token_ids), source.end.tail)
        self._model.resume(text, held, tail)
        self._token_ids[:] = text

    def _stored(self, part: TextPart) -> CacheEntries:
        """A part's entries."""
        assert part.rows is not None
        shift = self._model.entries().shift
        return CacheEntries(part.rows.tensors, shift + max(0, part.first - shift))


def _shapes(tensors: Sequence[Tensor]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(shape_of(tensor) for tensor in tensors)
