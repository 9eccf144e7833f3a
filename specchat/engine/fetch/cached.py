"""A repository's files in the cache, and the state of a pair's files."""

from collections.abc import Iterable
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.fetch.listing import SINGLE_FILES, first_files, parts_of
from specchat.engine.fetch.source import Hub
from specchat.engine.files import found, indexed
from specchat.engine.protocol.pair import ModelSource

INDEX = "model.safetensors.index.json"


def cached(hub: Hub, repo: str, revision: str | None = None, file: str | None = None) -> Path | None:
    """The folder of a commit with all files of a model, without network; None if some are missing.

    With `file` the model is this GGUF file with all its parts.
    """
    path = _cached_file(hub, repo, file or "config.json", revision)
    if path is None:
        return None
    if file is None:
        return path.parent if is_complete(path.parent) else None
    root = path.parents[file.count("/")]
    names = [part.relative_to(root).as_posix() for part in path.parent.iterdir() if part.exists()]
    return root if parts_of(file, names) else None


def absent(hub: Hub, sources: Iterable[ModelSource]) -> list[ModelSource]:
    """The repositories among `sources` that have to be fetched first, as the disk shows: nothing is sent to the hub."""
    return [s for s in sources if s.repo and cached(hub, s.repo, s.revision, s.file) is None]


def cached_ggufs(hub: Hub, repo: str, revision: str | None = None) -> list[str]:
    """Names of the complete GGUF models of a repository in the cache, from its top folder."""
    folder = hub.commit_folder(repo, revision)
    names = sorted(path.name for path in folder.glob("*.gguf") if path.exists())
    return [name for name in first_files(names) if parts_of(name, names)]


def is_complete(folder: Path) -> bool:
    """True if a folder has config.json and all weights that it names."""
    try:
        return found(folder / "config.json") and bool(weights(folder))
    except ModelError:
        return True  # complete but damaged: loading explains the fault


def weights(folder: Path) -> list[Path]:
    """The weight files of a model; none if some are missing.

    Raises:
        ModelError: the index of its shards cannot be read.
    """
    if single := [folder / name for name in SINGLE_FILES if found(folder / name)]:
        return single[:1]
    parts = indexed(folder / INDEX) if found(folder / INDEX) else []
    return parts if all(map(found, parts)) else []


def _cached_file(hub: Hub, repo: str, name: str, revision: str | None) -> Path | None:
    """A file of the commit that `revision` last meant; found without the library, whose import is slow."""
    path = hub.commit_folder(repo, revision) / name
    return path if path.exists() else None
