"""How the checks of a GPU ended on this machine, kept from one load to the next in a small file.

A card is known by its name, driver, torch, Triton and specchat: anything newer is checked anew. A file that is missing,
damaged or too large is as good as none, and one that cannot be written is left: then each load checks.
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
"""Names the file; without it nothing is kept."""
MAX_BYTES = 1 << 16
MAX_CARDS = 32
"""The one that was checked last stays longest."""
WORDS = 200
UNENDED = "the check did not end"
"""Kept of a check that took its process with it."""
PATIENCE_S = 60.0
"""A check that takes longer hangs."""
Way = Literal["kernels", "transformers"]
"""Who runs a model on a card."""


class _Card(BaseModel):
    """By way, what is wrong with it in words; "" where nothing is."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    ways: dict[Way, Annotated[str, Field(max_length=WORDS)]]


class _GpuFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    version: Literal[1] = 1
    cards: Annotated[dict[str, _Card], Field(max_length=MAX_CARDS)]


class GpuRecord:
    """Of one card; `card` says all that it is known by."""

    _in_use: "ClassVar[tuple[GpuRecord, Way] | None]" = None
    _begun: "ClassVar[tuple[GpuRecord, Way, float] | None]" = None

    def __init__(self, path: Path | None, card: str) -> None:
        self._path = path
        self._key = sha256(card.encode()).hexdigest()[:32]

    @classmethod
    def of(cls, card: str, environ: Mapping[str, str] = os.environ) -> "GpuRecord":
        """In the file that the environment names."""
        named = environ.get(VARIABLE)
        return cls(Path(named) if named else None, card)

    def wrong(self, way: Way) -> str | None:
        """What is wrong with a way, "" where it was found right; None where that is not known."""
        card = self._read().cards.get(self._key)
        return None if card is None else card.ways.get(way)

    def keep(self, way: Way, wrong: str) -> None:
        """Remember how a way was found: `wrong` as `GpuRecord.wrong` gives it."""
        self._put(way, wrong)

    def forget(self, way: Way) -> None:
        """Not know any more how a way was found."""
        self._put(way, None)

    def begin(self, way: Way) -> None:
        """Remember that a check has not ended, until it is kept how it did or that is forgotten."""
        self.keep(way, UNENDED)
        GpuRecord._begun = self, way, monotonic()

    @classmethod
    def leave(cls) -> None:
        """This process is to end: a check that it has just begun is not to blame."""
        if cls._begun is not None:
            record, way, then = cls._begun
            if monotonic() - then < PATIENCE_S:
                record.forget(way)

    def _put(self, way: Way, wrong: str | None) -> None:
        GpuRecord._begun = None
        if self._path is None:
            return
        cards = dict(self._read().cards)
        before = cards.pop(self._key, _Card(ways={}))
        ways = {**before.ways, way: wrong and one_line(wrong, WORDS)}
        cards[self._key] = _Card(ways={name: words for name, words in ways.items() if words is not None})
        latest = dict(list(cards.items())[-MAX_CARDS:])
        with suppress(OSError):
            self._path.parent.mkdir(mode=private.FOLDER, parents=True, exist_ok=True)
            private.replace(self._path, _GpuFile(cards=latest).model_dump_json())

    @classmethod
    def use(cls, record: "GpuRecord | None", way: Way = "kernels") -> None:
        """This process runs its pair on `record`'s card in this way from now on; None: on no card."""
        cls._in_use = None if record is None else (record, way)

    @classmethod
    def failed(cls, words: str) -> bool:
        """The GPU failed the way in use; whether the next process will know."""
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
