"""Stores the results of GPU checks on this machine, from one load to the next, in a small file.

A card is identified by its name, driver, torch, Triton and specchat; a change of any is checked anew. A file that is
missing, damaged, too large or not writable is ignored, and each load checks.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from specchat import private
from specchat.clean import one_line
from specchat.reading import read_whole

VARIABLE = "SPECCHAT_GPU_FILE"
"""Path of the file; without it nothing is stored."""
MAX_BYTES = 1 << 16
MAX_CARDS = 32
"""The card that was checked longest ago is dropped first."""
MAX_REASON = 200
UNENDED = "the check did not end"
"""Result of a check that ended its process."""
HANG_S = 60.0
"""A longer check counts as hanging."""
Way = Literal["kernels", "transformers"]
"""Runner of a model on a card."""


class _Card(BaseModel):
    """The fault of each way, or ""."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    ways: dict[Way, Annotated[str, Field(max_length=MAX_REASON)]]


class _GpuFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    version: Literal[1] = 1
    cards: Annotated[dict[str, _Card], Field(max_length=MAX_CARDS)]


class GpuRecord:
    """The results of one card, identified by `card`."""

    _in_use: "ClassVar[tuple[GpuRecord, Way] | None]" = None
    _begun: "ClassVar[tuple[GpuRecord, Way, float] | None]" = None

    def __init__(self, path: Path | None, card: str) -> None:
        self._path = path
        self._key = sha256(card.encode()).hexdigest()[:32]

    @classmethod
    def of(cls, card: str, environ: Mapping[str, str] = os.environ) -> "GpuRecord":
        """Use the file of the environment."""
        named = environ.get(VARIABLE)
        return cls(Path(named) if named else None, card)

    def wrong(self, way: Way) -> str | None:
        """The fault of a way, "" if it passed, None if it was not checked."""
        card = self._read().cards.get(self._key)
        return None if card is None else card.ways.get(way)

    def keep(self, way: Way, wrong: str) -> None:
        """Store the result of a way; `wrong` is its fault or ""."""
        self._put(way, wrong)

    def forget(self, way: Way) -> None:
        """Drop the result of a way."""
        self._put(way, None)

    def begin(self, way: Way) -> None:
        """Store that a check has begun, until its result is stored or dropped."""
        self.keep(way, UNENDED)
        GpuRecord._begun = self, way, monotonic()

    @classmethod
    def leave(cls) -> None:
        """Drop a check that has just begun, since this process ends on request."""
        if cls._begun is not None:
            record, way, then = cls._begun
            if monotonic() - then < HANG_S:
                record.forget(way)

    def _put(self, way: Way, wrong: str | None) -> None:
        GpuRecord._begun = None
        if self._path is None:
            return
        cards = dict(self._read().cards)
        before = cards.pop(self._key, _Card(ways={}))
        ways = {**before.ways, way: wrong and one_line(wrong, MAX_REASON)}
        cards[self._key] = _Card(ways={name: words for name, words in ways.items() if words is not None})
        latest = dict(list(cards.items())[-MAX_CARDS:])
        with suppress(OSError):
            self._path.parent.mkdir(mode=private.FOLDER, parents=True, exist_ok=True)
            private.replace(self._path, _GpuFile(cards=latest).model_dump_json())

    @classmethod
    def use(cls, record: "GpuRecord | None", way: Way = "kernels") -> None:
        """Note that this process runs its pair on `record`'s card in this way; None means on no card."""
        cls._in_use = None if record is None else (record, way)

    @classmethod
    def failed(cls, words: str) -> bool:
        """Store a failure of the way in use; True if the next process will know."""
        if cls._in_use is None:
            return False
        record, way = cls._in_use
        record.keep(way, words)
        return bool(record.wrong(way))

    def _read(self) -> _GpuFile:
        if self._path is not None:
            with suppress(OSError, ValueError):
                return _GpuFile.model_validate_json(read_whole(self._path, MAX_BYTES))
        return _GpuFile(cards={})
