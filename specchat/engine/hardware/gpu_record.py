"""Stores the results of GPU checks on this machine, from one load to the next, in a small file.

A card is identified by its name and UUID, driver, torch, Triton and specchat; a change of any is checked anew. A wrong
result lasts. A failure may pass: the way is tried once more, and after a second one with the same pair it rests until
the computer was started again or has slept. A file that is missing, damaged, too large or not writable is ignored, and
each load checks.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from specchat import private
from specchat.clean import one_line
from specchat.reading import read_whole

VARIABLE = "SPECCHAT_GPU_FILE"
"""Path of the file; without it nothing is stored."""
MAX_BYTES = 1 << 18
MAX_CARDS = 16
"""The card that was checked longest ago is dropped first."""
MAX_PAIRS = 8
"""The pair that failed longest ago is dropped first."""
MAX_REASON = 200
FAILURES = 2
"""Failures with one pair after which a way rests."""
SLEPT_S = 5.0
"""Least sleep that counts: the clocks of a running computer differ less."""
UNENDED = "the check did not end"
"""Result of a check that ended its process."""
HANG_S = 60.0
"""A longer check counts as hanging."""
CHECKS = ""
"""Stands for a pair where checks failed, which all pairs need."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
Way = Literal["kernels", "transformers"]
"""Runner of a model on a card."""


class Boot(BaseModel):
    """A time in which the computer was neither started nor asleep.

    Attributes:
        id: of the start, by Linux; "" of other systems.
        offset: seconds of the clock of days less those of the clock that rests while a computer sleeps. A sleep makes
            it grow, under WSL too, and so does a start where the other clock begins anew.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str = ""
    offset: float

    @classmethod
    def now(cls) -> "Boot":
        """The present one."""
        found = ""
        with suppress(OSError, ValueError):
            found = BOOT_ID.read_text(encoding="ascii").strip()[:MAX_REASON]
        return cls(id=found, offset=time.time() - time.monotonic())

    def same(self, other: "Boot") -> bool:
        return self.id == other.id and abs(self.offset - other.offset) < SLEPT_S


class _Result(BaseModel):
    """The result of a way with a pair: `fault` is "" where it passed, `boot` the one of a failure, which may pass."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    fault: Annotated[str, Field(max_length=MAX_REASON)]
    boot: Boot | None = None
    failures: Annotated[int, Field(ge=0, le=1 << 20)] = 0

    def counts(self, now: Boot) -> bool:
        return self.boot is None or self.boot.same(now)

    @property
    def lasts(self) -> bool:
        return bool(self.fault) and self.boot is None

    @property
    def rests(self) -> bool:
        return self.lasts or self.failures >= FAILURES


_Results = dict[Annotated[str, Field(max_length=MAX_REASON)], _Result]
"""Results by pair."""


class _Card(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(max_length=MAX_REASON)]
    ways: dict[Way, _Results]


class _GpuFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    version: Literal[2] = 2
    cards: Annotated[dict[str, _Card], Field(max_length=MAX_CARDS)]


class GpuRecord:
    """The results of one card, identified by the lines of `card`, the first of them its name.

    `ask` asks the card anything, and raises an error once a failure has left it unusable.
    """

    _in_use: "ClassVar[tuple[tuple[GpuRecord, ...], Way, str]]" = (), "kernels", CHECKS
    _begun: "ClassVar[tuple[GpuRecord, Way, float] | None]" = None

    def __init__(self, path: Path | None, card: str, ask: Callable[[], object] = object) -> None:
        self._path, self._ask = path, ask
        self._name = one_line(card.partition("\n")[0], MAX_REASON)
        self._key = sha256(card.encode()).hexdigest()[:32]

    @classmethod
    def of(cls, card: str, ask: Callable[[], object] = object) -> "GpuRecord":
        """Use the file of the environment."""
        named = os.environ.get(VARIABLE)
        return cls(Path(named) if named else None, card, ask)

    def wrong(self, way: Way, pair: str = CHECKS) -> str | None:
        """The fault for which a way rests for a pair, "" if its checks passed, None if they are to be made."""
        results = self._results(way)
        for result in map(results.get, (CHECKS, _key(pair))):
            if result is not None and result.rests:
                return result.fault
        checked = results.get(CHECKS)
        return None if checked is None or checked.fault else ""

    def passes(self, way: Way, pair: str = CHECKS) -> bool:
        """True if the way rests for failures, until the computer was started again or has slept."""
        checked = self._results(way).get(CHECKS)
        return bool(self.wrong(way, pair)) and (checked is None or not checked.lasts)

    def keep(self, way: Way, wrong: str) -> None:
        """Store the result of a way's checks; `wrong` is its fault or ""."""
        self._put(way, CHECKS, _Result(fault=one_line(wrong, MAX_REASON)))

    def fail(self, way: Way, words: str, pair: str = CHECKS) -> int:
        """Store a failure of a way, and return how many the next process knows of; 0: it cannot be stored.

        The checks are made again before the way is.
        """
        before = self._results(way).get(_key(pair))
        failures = 1 + (before.failures if before is not None else 0)
        if pair:
            self._put(way, CHECKS, None)
        self._put(way, pair, _Result(fault=one_line(words, MAX_REASON), boot=Boot.now(), failures=failures))
        after = self._results(way).get(_key(pair))
        return 0 if after is None else after.failures

    def forget(self, way: Way) -> None:
        """Drop all results of a way."""
        for pair in self._results(way):
            self._put(way, pair, None)

    def begin(self, way: Way) -> None:
        """Store that a check has begun, as a failure until its result is stored or dropped."""
        self.fail(way, UNENDED)
        GpuRecord._begun = self, way, time.monotonic()

    def drop(self, way: Way) -> None:
        """Drop a check that was broken off, which says nothing of the card. Failures before it count."""
        last = self._results(way).get(CHECKS)
        fewer = last.failures - 1 if last is not None else 0
        self._put(way, CHECKS, last.model_copy(update={"failures": fewer}) if last is not None and fewer else None)

    @classmethod
    def leave(cls) -> None:
        """Drop a check that has just begun, since this process ends on request."""
        if cls._begun is not None:
            record, way, then = cls._begun
            if time.monotonic() - then < HANG_S:
                record.drop(way)

    def _put(self, way: Way, pair: str, result: _Result | None) -> None:
        GpuRecord._begun = None
        if self._path is None:
            return
        cards = dict(self._read().cards)
        before = cards.pop(self._key, _Card(name=self._name, ways={}))
        results, now = dict(before.ways.get(way, {})), Boot.now()
        results.pop(_key(pair), None)
        if result is not None:
            results[_key(pair)] = result
        latest = [(key, one) for key, one in results.items() if one.counts(now)][-MAX_PAIRS:]
        cards[self._key] = _Card(name=self._name, ways={**before.ways, way: dict(latest)})
        with suppress(OSError):
            self._path.parent.mkdir(mode=private.FOLDER, parents=True, exist_ok=True)
            private.replace(self._path, _GpuFile(cards=dict(list(cards.items())[-MAX_CARDS:])).model_dump_json())

    @classmethod
    def use(cls, *records: "GpuRecord", way: Way = "kernels", pair: str = CHECKS) -> None:
        """Note that this process runs `pair` in this way on the cards of `records`, the target's first."""
        cls._in_use = records, way, pair

    @classmethod
    def culprit(cls) -> str:
        """The name of the card that failed, "" if all answer; a later `failed` counts for it, not for the first."""
        records, way, pair = cls._in_use
        lost = [one for one in records if not one._answers()]
        cls.use(*lost or records, way=way, pair=pair)
        return lost[0]._name if lost else ""

    def _answers(self) -> bool:
        try:
            self._ask()
        except Exception:
            return False
        return True

    @classmethod
    def failed(cls, words: str) -> int:
        """Store a failure of the way in use; see `fail`."""
        records, way, pair = cls._in_use
        if not records:
            return 0
        record = records[0]
        if cls._begun is not None:
            record.drop(way)
            pair = CHECKS
        return record.fail(way, words, pair)

    @classmethod
    def resting(cls) -> Iterator[tuple[str, Way, str, str, bool]]:
        """Card, way, pair and fault of each way that rests, and whether it lasts; a card by its newest driver."""
        newest = {card.name: card for card in cls.of("")._read().cards.values()}
        now = Boot.now()
        for card in newest.values():
            for way, results in card.ways.items():
                for pair, result in results.items():
                    if result.counts(now) and result.rests:
                        yield card.name, way, pair, result.fault, result.lasts

    def _results(self, way: Way) -> _Results:
        """The results that count now."""
        card, now = self._read().cards.get(self._key), Boot.now()
        results = card.ways.get(way, {}) if card is not None else {}
        return {pair: result for pair, result in results.items() if result.counts(now)}

    def _read(self) -> _GpuFile:
        if self._path is not None:
            with suppress(OSError, ValueError):
                return _GpuFile.model_validate_json(read_whole(self._path, MAX_BYTES))
        return _GpuFile(cards={})


def _key(pair: str) -> str:
    return one_line(pair, MAX_REASON)
