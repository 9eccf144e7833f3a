"""What `auto` learnt of a pair on this machine, kept from one load to the next in a small file.

It only helps to choose: a file that is missing, damaged or too large is as good as none, and one that cannot be
written is left.
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
from specchat.engine.decoding.draft import Drafter
from specchat.engine.drafters.auto import AutoDrafter
from specchat.engine.drafters.text_kind import KINDS
from specchat.engine.pair import ModelSource, PairSpec
from specchat.engine.strategies import STRATEGIES
from specchat.reading import read_whole

VARIABLE = "SPECCHAT_LEARNT_FILE"
"""Names the file; without it nothing is kept."""
MAX_BYTES = 1 << 18
MAX_PAIRS = 64
"""The one that was used last stays longest."""
SELDOM_S = 10.0
"""Between two times that it is written."""

Number = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Sums = Annotated[list[tuple[Number, Number]], Field(min_length=KINDS + 1, max_length=KINDS + 1)]
"""Sum and weight, of all texts and then by kind of text."""


class _ExactModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Known(_ExactModel):
    """Of a family: of how many drafts, and what its drafts kept and had; of copies, their first and later tokens."""

    drafts: Annotated[int, Field(ge=0, le=1 << 40)]
    kept: Sums
    had: Sums


class _Pair(_ExactModel):
    families: Annotated[dict[str, Known], Field(max_length=64)]


class _LearntFile(_ExactModel):
    version: Literal[1] = 1
    pairs: Annotated[dict[str, _Pair], Field(max_length=MAX_PAIRS)]


class Learnt:
    """Of one pair on one device of this machine."""

    def __init__(self, path: Path | None, pair: PairSpec, device: str) -> None:
        self._path = path
        self._key = _digest(_source(pair.target), pair.backend, device, platform.node(), platform.machine())
        self._names = {name: _name(name, pair) for name in STRATEGIES}
        self._written = -SELDOM_S

    @classmethod
    def of(cls, pair: PairSpec, device: str, environ: Mapping[str, str] = os.environ) -> "Learnt":
        """In the file that the environment names."""
        named = environ.get(VARIABLE)
        return cls(Path(named) if named else None, pair, device)

    def restore(self, auto: Drafter | None) -> None:
        """Let `auto` begin with what is known of its families."""
        if self._path is None or not isinstance(auto, AutoDrafter):
            return
        pair = _read(self._path).pairs.get(self._key)
        if pair is not None:
            known = {name: pair.families[kept] for name, kept in self._names.items() if kept in pair.families}
            auto.take({name: (one.drafts, one.kept, one.had) for name, one in known.items()})

    def keep(self, auto: Drafter | None) -> None:
        """Write what `auto` knows, unless that was done a moment ago."""
        now = time.monotonic()
        if self._path is None or not isinstance(auto, AutoDrafter) or now - self._written < SELDOM_S:
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
    """What the file holds; nothing where it is no such file."""
    try:
        return _LearntFile.model_validate_json(read_whole(path, MAX_BYTES))
    except (OSError, ValueError):
        return _LearntFile(pairs={})


def _write(path: Path, text: str) -> None:
    """In the place of what is there, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    if len(text) <= MAX_BYTES:
        path.parent.mkdir(mode=private.FOLDER, parents=True, exist_ok=True)
        private.replace(path, text)


def _name(strategy: str, pair: PairSpec) -> str:
    """A family with the model that drafts for it: another model is another family."""
    info = STRATEGIES[strategy]
    if info.head is not None:
        return f"{strategy} {_digest(_source(pair.heads.get(info.head.name)))}"
    if info.needs_draft:
        return f"{strategy} {_digest(_source(pair.draft), pair.draft_vocabulary or '')}"
    return strategy


def _source(source: ModelSource | None) -> str:
    """A model as it is now: files that were written anew are another one."""
    if source is None or source.path is None:
        return repr(source)
    path = Path(source.path).expanduser()
    with suppress(OSError):
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return repr((source, [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]))
    return repr(source)


def _digest(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()[:16]
