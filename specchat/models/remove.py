"""Models taken off the disk. Only what came from the hub is: other programs' files are theirs, the user's are his."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specchat.config.catalog import Catalog
from specchat.engine.errors import EngineError
from specchat.engine.fetch.source import Hub


@dataclass(frozen=True)
class Removal:
    """Files to remove, and the bytes that frees; `kept` are sentences about what stays."""

    repos: tuple[str, ...]
    size: int
    kept: tuple[str, ...]


def removal(hub: Hub, repos: Sequence[str], catalog: Catalog, but: str = "") -> Removal:
    """The removal of `repos`; one that a pair other than `but` drafts with, and has its target for, stays.

    A download that was stopped counts as the rest does.
    """
    going, kept = [], []
    for repo in dict.fromkeys(repos):
        if not _is_here(hub, repo):
            kept.append(f"{repo} is not here.")
            continue
        users = [
            pair.name
            for pair in catalog.pairs
            if pair.id != but
            and repo in [source.repo for source in pair.spec.sources]
            and (pair.spec.target.path is not None or _is_here(hub, pair.spec.target.repo or ""))
        ]
        if but and users:
            kept.append(f"{repo} stays: {users[0]} uses it.")
        else:
            going.append(repo)
    return Removal(tuple(going), sum(_size(hub.folder(repo)) for repo in going), tuple(kept))


def remove(hub: Hub, removal: Removal) -> int:
    """Delete the repositories with all their revisions, and parts of downloads; gives the bytes that were freed.

    Raises:
        EngineError: "download": a file cannot be deleted.
    """
    freed = 0
    for repo in removal.repos:
        folder = hub.folder(repo)
        size = _size(folder)
        try:
            shutil.rmtree(folder)
            shutil.rmtree(hub.lock(repo, "").parent, ignore_errors=True)
        except OSError as error:
            raise EngineError(
                "download", f"{error.filename or folder} cannot be deleted ({error.strerror or error})."
            ) from None
        freed += size
    return freed


def _is_here(hub: Hub, repo: str) -> bool:
    return bool(repo) and os.path.isdir(hub.folder(repo))


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; links take none."""
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for here, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield 0 if os.path.islink(path := os.path.join(here, name)) else os.stat(path).st_size
