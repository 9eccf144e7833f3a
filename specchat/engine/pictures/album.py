"""The pictures of a session: their token ids, and the rows that stand for these in place of embeddings.

A picture's ids are its own as long as the session lives, by the digest of its file. So caches of texts, trees and
rollback know nothing of pictures: equal ids have equal rows.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from torch import Tensor

from specchat.engine.errors import EngineError
from specchat.engine.pictures.blind import Blind
from specchat.engine.pictures.in_parts import in_parts
from specchat.engine.pictures.kinds import Grid
from specchat.engine.pictures.positions import positions
from specchat.engine.pictures.rows import TakesRows
from specchat.engine.pictures.tower import Processed, Tower
from specchat.engine.protocol.options import Message, Picture
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.protocol.stats import Stats
from specchat.engine.recipe import Rope

WAITING = 4
"""Pictures that were counted and not looked at whose pixels are held."""


class Album(Blind):
    """The pictures that a target has seen."""

    sees = True

    def __init__(
        self,
        open_tower: Callable[[], Tower],
        model: TakesRows,
        rope: Rope | None,
        vocabulary: Mapping[str, int],
        mutual: int = 0,
    ) -> None:
        """Initialise.

        Args:
            open_tower: called when the first picture comes.
            rope: turns by three positions; None: by one.
            vocabulary: has the ids of breaks between rows.
            mutual: most tokens of a picture where these attend to each other; 0: they do not.
        """
        self._mutual = mutual
        self._open, self._model, self._rope, self._vocabulary = open_tower, model, rope, vocabulary
        self._tower: Tower | None = None
        self._lock = Lock()
        self._firsts: dict[str, int] = {}
        """The first id of each picture, by its digest."""
        self._grids: dict[int, Grid] = {}
        """By first ids, which ascend."""
        self._end = FIRST
        self._processed: OrderedDict[str, Processed] = OrderedDict()
        self._rows: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._recent: OrderedDict[int, Tensor] = OrderedDict()
        self._turned = 0
        """Entry from which on the model's rotations are those of a text with pictures; 0 for none."""
        self.draft: Blind = Blind("")
        """The same pictures as a draft model sees them."""
        model.pictures = self

    def check(self, messages: Iterable[Message]) -> None:
        """Pass: this model reads them."""

    def placed(self, tokens: list[int], pictures: Sequence[Picture]) -> list[int]:
        """See `Blind`.

        Raises:
            EngineError: a picture cannot be read or is too large, or the template has no place for each.
        """
        if not pictures:
            return tokens
        with self._lock:
            left, mark = iter([self._first(picture) for picture in pictures]), self._tower_now().mark
            if tokens.count(mark) != len(pictures):
                raise EngineError(
                    "request",
                    f"The chat template has {tokens.count(mark)} places for {len(pictures)} pictures. Send the message "
                    "without them, or take a checkpoint with the template of its makers.",
                )
            return [one for token in tokens for one in (self._ids(next(left)) if token == mark else (token,))]

    def look(self, pictures: Sequence[Picture], seen: list[Any], strategy: str = "") -> Generator[None, None, None]:
        """See `Blind`; the latest rows stay for longer.

        Raises:
            EngineError: memory does not suffice, or the tower cannot be used.
        """
        for picture in pictures:
            with self._lock:
                first, tower = self._first(picture), self._tower_now()
                if (rows := self._rows.get(first)) is None:
                    processed = self._prepared(picture)
            if rows is None:
                rows = yield from in_parts(partial(tower.rows, processed))
            with self._lock:
                # Two replies may have looked at one picture in turns.
                seen.append(rows := self._rows.setdefault(first, rows))
                self._recent[first] = rows
                self._recent.move_to_end(first)
                while sum(map(len, self._recent.values())) > self._model.context:
                    self._recent.popitem(last=False)
        yield from self.draft.look(pictures, seen, strategy)

    def wrote(self, stats: Stats) -> None:
        self.draft.wrote(stats)

    def hold(self, tokens: Sequence[int]) -> None:
        self.draft.hold(tokens)
        if self._rope is None or not self._grids:
            return
        found = [(at, self._grids[token]) for at, token in enumerate(tokens) if token in self._grids]
        first = min((at for at, _ in found), default=0)
        if begin := min(filter(None, (self._turned, first)), default=0):
            places = positions(found, self._model.context)[:, begin:].float()
            self._model.turn(begin, places[self._tower_now().kind.axes(self._rope)].t())
        self._turned = first

    @property
    def deep(self) -> int:
        """See `PictureRows`."""
        return 0 if self._tower is None else self._tower.deep

    def put(self, embedded: Tensor, tokens: Sequence[int] | Tensor) -> Tensor:
        """See `PictureRows`."""
        for at, row in self._found(tokens, embedded.shape[1]):
            embedded[at] = row[0]
        return embedded

    def add(self, x: Tensor, tokens: Sequence[int], layer: int) -> Tensor:
        """See `PictureRows`."""
        x = x.clone()
        for at, row in self._found(tokens, x.shape[1]):
            x[at] += row[layer]
        return x

    def mutual(self, token: int) -> int:
        """See `PictureRows`."""
        return self._grids[token].cells if self._mutual and token in self._grids else 0

    def torn(self, tokens: Sequence[int], at: int) -> range:
        """See `Blind`."""
        if not self._mutual or not 0 < at < len(tokens) or min(tokens[at - 1 : at + 1]) < FIRST:
            return range(at, at)
        first = self._first_of(tokens[at])
        before = 0 if first is None else tokens[at] - first
        return range(at - before, at - before + self._grids[first].cells) if first and before else range(at, at)

    def _first_of(self, token: int) -> int | None:
        """The first id of a token's picture; None for one that the model does not see."""
        firsts = list(self._grids)
        first = firsts[at - 1] if (at := bisect_right(firsts, token)) else None
        return first if first is not None and token < first + self._grids[first].cells else None

    def _found(self, tokens: Sequence[int] | Tensor, hidden: int) -> Iterator[tuple[int, Tensor]]:
        """The pictures' tokens among `tokens`, with their rows [1 + deep, hidden]."""
        listed: Sequence[int] = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        for at, token in enumerate(listed if max(listed, default=0) >= FIRST else ()):
            if token >= FIRST and (first := self._first_of(token)) is not None:
                yield at, self._rows[first][token - first].view(-1, hidden)

    def shown(self, tokens: Iterable[int]) -> list[int]:
        return [self._tower_now().mark if token >= FIRST else token for token in tokens]

    def forget(self) -> None:
        with self._lock:
            self._recent.clear()
            self._processed.clear()
        self.draft.forget()

    def memory(self) -> int:
        tower = 0 if self._tower is None else self._tower.memory()
        return tower + sum(rows.nbytes for rows in self._recent.values()) + self.draft.memory()

    def _prepared(self, picture: Picture) -> Processed:
        return self._processed.pop(picture.digest, None) or self._tower_now().processed(picture.data)

    def _tower_now(self) -> Tower:
        if self._tower is None:
            self._tower = self._open()
        return self._tower

    def _first(self, picture: Picture) -> int:
        if (known := self._firsts.get(picture.digest)) is not None:
            return known
        processed = self._tower_now().processed(picture.data)
        if 0 < self._mutual < (cells := processed.grid.cells):
            raise EngineError(
                "request",
                f"A picture takes {cells} tokens, and {self._mutual} at most are read at once here. Set a smaller size "
                "in preprocessor_config.json, or send the message without pictures.",
            )
        self._processed[picture.digest] = processed
        if len(self._processed) > WAITING:
            self._processed.popitem(last=False)
        first, self._end = self._end, self._end + processed.grid.cells
        self._firsts[picture.digest], self._grids[first] = first, processed.grid
        return first

    def _ids(self, first: int) -> Iterator[int]:
        (between, last), grid = self._tower_now().kind.breaks, self._grids[first]
        for row in range(grid.rows):
            begin = first + row * grid.columns
            yield from range(begin, begin + grid.columns)
            if between:
                yield self._vocabulary[between if row + 1 < grid.rows else last]
