"""The pair that was chosen last, and descriptions of used pairs that no models.toml declares."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat import private
from specchat.config.catalog import Pair, SamplingSource, pair_of, table_of
from specchat.config.errors import ConfigError
from specchat.config.paths import made_folder
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.ranges import SAMPLING
from specchat.reading import read_text

MAX_DESCRIPTIONS = 200
"""Descriptions that are kept."""
LOCK_S = 1.0
"""Seconds that a program waits for another that writes the file."""


class UsedPairs:
    """Kept in `file`, so that a chat finds its model again however that was named."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def last(self) -> str:
        """The id of the pair that was chosen last; empty before the first choice."""
        last = self._read().get("last")
        return last if isinstance(last, str) else ""

    def all(self) -> list[Pair]:
        """The used pairs that no models.toml declared, the latest last.

        They have their makers' sampling where the file that states it is as it was.
        """
        return [pair for table in self._tables(self._read()) if (pair := self._pair(table)) is not None]

    def find(self, id_: str) -> Pair | None:
        """The used pair with this id; None for none."""
        table = next((table for table in self._tables(self._read()) if table.get("id") == id_), None)
        return None if table is None else self._pair(table)

    def _pair(self, table: dict[str, Any]) -> Pair | None:
        try:
            file, source = str(table.get("sampling_file", "")), str(table.get("sampling_from", ""))
            pair = replace(
                pair_of(table, self._file.parent), declared=False, sampling_source=SamplingSource(source, file)
            )
            known = table.get("sampling_stamp") == _stamp(file)
            return pair if known else replace(pair, sampling=Sampling(), sampling_source=SamplingSource())
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def keep(self, pair: Pair, *, chosen: bool) -> None:
        """Keep the description of a loaded pair, and remember it for the next start where it was `chosen`.

        Without effect where the file cannot be written.
        """
        if pair.declared and not chosen:
            return
        from filelock import FileLock, Timeout  # the app starts sooner without

        with suppress(OSError, ConfigError, Timeout):
            made_folder(self._file.parent)
            with FileLock(f"{self._file}.lock", timeout=LOCK_S):
                self._keep(pair, chosen=chosen)

    def _keep(self, pair: Pair, *, chosen: bool) -> None:
        before = self._read()
        tables = self._tables(before)
        if not pair.declared:
            own = {
                **table_of(pair, pair.id),
                "sampling": {name: getattr(pair.sampling, name) for name in SAMPLING},
                "sampling_from": pair.sampling_source.name,
                "sampling_file": pair.sampling_source.file,
                "sampling_stamp": _stamp(pair.sampling_source.file),
            }
            tables = [*(table for table in tables if table.get("id") != pair.id), own][-MAX_DESCRIPTIONS:]
        after = {"last": pair.id if chosen else before.get("last", ""), "pairs": tables}
        if after != before:
            private.replace(self._file, json.dumps(after))

    def _read(self) -> dict[str, Any]:
        """The file's contents; nothing where there is none or it is damaged."""
        try:
            data = json.loads(read_text(self._file))
        except (OSError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def _tables(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        tables = data.get("pairs")
        return [table for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []


def gone(pair: Pair) -> str:
    """A sentence where a file or folder of `pair` is not there any more; else empty."""
    paths = [source.path for source in pair.spec.sources if source.path is not None]
    missing = next((path for path in paths if not os.path.exists(os.path.expanduser(path))), None)
    return "" if missing is None else f"{missing} is not there any more: {pair.name} cannot be loaded."


def _stamp(file: str) -> list[int]:
    """Time and size of a file; empty for none."""
    try:
        found = os.stat(file)
    except OSError:
        return []
    return [found.st_mtime_ns, found.st_size]
