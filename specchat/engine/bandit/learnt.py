"""Stores acceptance statistics of `auto` per pair, from one load to the next, in a small file.

They only help to choose, so a file that is missing, damaged, too large or not writable is ignored.
"""

import json
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from specchat import private
from specchat.engine.bandit.averages import KINDS
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.decoding.draft import Drafter
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.strategies import STRATEGIES
from specchat.reading import read_whole

VARIABLE = "SPECCHAT_LEARNT_FILE"
"""Path of the file; without it nothing is stored."""
MAX_BYTES = 1 << 18
MAX_PAIRS = 64
"""The least recently used pair is dropped first."""
WRITE_INTERVAL_S = 10.0

Number = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Sums = Annotated[list[tuple[Number, Number]], Field(min_length=KINDS + 1, max_length=KINDS + 1)]
"""Sum and weight over all texts, then by kind of text."""


class _ExactModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Known(_ExactModel):
    """Statistics of a strategy: number of drafts, accepted and drafted tokens; of copies, first and later tokens."""

    drafts: Annotated[int, Field(ge=0, le=1 << 40)]
    kept: Sums
    had: Sums


class _Pair(_ExactModel):
    families: Annotated[dict[str, Known], Field(max_length=64)]


class _LearntFile(_ExactModel):
    version: Literal[1] = 1
    pairs: Annotated[dict[str, _Pair], Field(max_length=MAX_PAIRS)]


class Learnt:
    """The statistics of one pair on one device of this machine."""

    def __init__(self, path: Path | None, pair: PairSpec, device: str) -> None:
        self._path = path
        rounded = [form for form in (pair.activations, pair.head) if form]
        self._key = _digest(_source(pair.target), pair.backend, device, platform.node(), platform.machine(), *rounded)
        self._names = {name: _name(name, pair) for name in STRATEGIES}
        self._written = -WRITE_INTERVAL_S

    @classmethod
    def of(cls, pair: PairSpec, device: str, environ: Mapping[str, str] = os.environ) -> "Learnt":
        """Use the file of the environment."""
        named = environ.get(VARIABLE)
        return cls(Path(named) if named else None, pair, device)

    def restore(self, auto: Drafter | None) -> None:
        """Give `auto` the stored statistics of its strategies."""
        if self._path is None or not isinstance(auto, AutoDrafter):
            return
        pair = _read(self._path).pairs.get(self._key)
        if pair is not None:
            known = {name: pair.families[kept] for name, kept in self._names.items() if kept in pair.families}
            auto.restore({name: (one.drafts, one.kept, one.had) for name, one in known.items()})

    def keep(self, auto: Drafter | None) -> None:
        """Write the statistics of `auto`, at most once in WRITE_INTERVAL_S."""
        now = time.monotonic()
        if self._path is None or not isinstance(auto, AutoDrafter) or now - self._written < WRITE_INTERVAL_S:
            return
        self._written = now
        families = {
            self._names[name]: Known(drafts=drafts, kept=list(kept), had=list(had))
            for name, (drafts, kept, had) in auto.learnt().items()
        }
        pairs = dict(_read(self._path).pairs)
        before = pairs.pop(self._key, None)
        pairs[self._key] = _Pair(families=(before.families if before is not None else {}) | families)
        latest = list(pairs.items())[-MAX_PAIRS:]
        with suppress(OSError):
            _write(self._path, _LearntFile(pairs=dict(latest)).model_dump_json())


def _read(path: Path) -> _LearntFile:
    try:
        return _LearntFile.model_validate_json(read_whole(path, MAX_BYTES))
    except (OSError, ValueError):
        return _LearntFile(pairs={})


def _write(path: Path, text: str) -> None:
    """Replace the file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    if len(text) <= MAX_BYTES:
        path.parent.mkdir(mode=private.FOLDER, parents=True, exist_ok=True)
        private.replace(path, text)


def _name(strategy: str, pair: PairSpec) -> str:
    """Key of a strategy with its draft model: another model has other statistics."""
    info = STRATEGIES[strategy]
    if info.head is not None:
        frequent = [pair.draft_vocabulary] if info.head.in_target and pair.draft_vocabulary else []
        return f"{strategy} {_digest(_source(pair.heads.get(info.head.name)), *frequent)}"
    if info.needs_draft:
        return f"{strategy} {_digest(_source(pair.draft), pair.draft_vocabulary or '')}"
    return strategy


def _source(source: ModelSource | None) -> str:
    """Key of a model, with the times of its files: rewritten files are another model."""
    if source is None or source.path is None:
        return repr(source)
    path = Path(source.path).expanduser()
    with suppress(OSError):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return repr((source, [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]))
    return repr(source)


def _digest(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()[:16]
