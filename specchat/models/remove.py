"""Models taken off the disk. Only what came from the hub is: other programs' files are theirs, the user's are his."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specchat.config.catalog import Catalog
from specchat.engine.errors import EngineError
from specchat.engine.fetch.source import Hub


@dataclass(frozen=True)
class Removal:
    """What would go, and the bytes that would free; `kept` are sentences about what stays."""

    repos: tuple[str, ...]
    size: int
    kept: tuple[str, ...]


def removal(hub: Hub, repos: Sequence[str], catalog: Catalog, but: str = "") -> Removal:
    """What removing `repos` would free; one that a pair other than `but` drafts with, and has its target for, stays.

    Raises:
        EngineError: "download": the cache cannot be read.
    """
    held = _repos(hub)
    going, kept = [], []
    for repo in dict.fromkeys(repos):
        if repo not in held:
            kept.append(f"{repo} is not here.")
            continue
        users = [
            pair.name
            for pair in catalog.pairs
            if pair.id != but
            and repo in [source.repo for source in pair.spec.sources]
            and (pair.spec.target.repo in held or pair.spec.target.path is not None)
        ]
        if but and users:
            kept.append(f"{repo} stays: {users[0]} uses it.")
        else:
            going.append(repo)
    return Removal(tuple(going), sum(held[repo].size_on_disk for repo in going), tuple(kept))


def remove(hub: Hub, removal: Removal) -> int:
    """Delete the repositories with all their revisions, and parts of downloads; gives the bytes that were freed.

    Raises:
        EngineError: "download": a file cannot be deleted.
    """
    from huggingface_hub import scan_cache_dir

    held = _repos(hub)
    size: int = sum(held[repo].size_on_disk for repo in removal.repos if repo in held)
    commits = [revision.commit_hash for repo in removal.repos if repo in held for revision in held[repo].revisions]
    try:
        scan_cache_dir(hub.cache).delete_revisions(*commits).execute()
        for repo in removal.repos:
            for part in (hub.folder(repo) / "blobs").glob("*.incomplete"):
                size += part.stat().st_size
                part.unlink()
    except OSError as error:
        raise EngineError("download", f"{error.filename} cannot be deleted ({error.strerror}).") from None
    if left := [repo for repo in removal.repos if repo in _repos(hub)]:
        raise EngineError(
            "download", f"{left[0]} could not be deleted from {hub.cache}. Check that you may write there."
        )
    return size


def _repos(hub: Hub) -> dict[str, Any]:
    from huggingface_hub import scan_cache_dir

    if not os.path.isdir(hub.cache):
        return {}
    try:
        cache = scan_cache_dir(hub.cache)
    except OSError as error:
        raise EngineError("download", f"{hub.cache} cannot be read ({error.strerror}).") from None
    return {repo.repo_id: repo for repo in cache.repos if repo.repo_type == "model"}
