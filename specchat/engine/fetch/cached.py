"""What the cache holds of a repository."""

import re
from contextlib import suppress
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.fetch.listing import DIGEST, WHOLE, first_files, parts_of
from specchat.engine.fetch.source import Hub
from specchat.engine.model.files import found, indexed
from specchat.reading import read_text

INDEX = "model.safetensors.index.json"


def cached(hub: Hub, repo: str, revision: str | None = None, file: str | None = None) -> Path | None:
    """The folder of a commit with all that a model needs, without asking the hub; None where some of it is missing.

    With `file`, a GGUF file of the repository with all its parts is what is needed.
    """
    kept = _kept(hub, repo, file or "config.json", revision)
    if kept is None:
        return None
    if file is None:
        return kept.parent if whole(kept.parent) else None
    root = kept.parents[file.count("/")]
    names = [path.relative_to(root).as_posix() for path in kept.parent.iterdir() if path.exists()]
    return root if parts_of(file, names) else None


def ggufs_kept(hub: Hub, repo: str, revision: str | None = None) -> list[str]:
    """The GGUF models that are here of a repository, with all their parts, by their names at its top."""
    folder = _commit(hub, repo, revision)
    names = sorted(path.name for path in folder.glob("*.gguf") if path.exists())
    return [name for name in first_files(names) if parts_of(name, names)]


def whole(folder: Path) -> bool:
    """Whether a folder has config.json and all weights that it names."""
    try:
        return found(folder / "config.json") and bool(weights(folder))
    except ModelError:
        return True  # it is there, and reading it tells what is wrong


def weights(folder: Path) -> list[Path]:
    """The files that a model's weights are read from; none where some are missing.

    Raises:
        ModelError: the index of its parts cannot be read.
    """
    if single := [folder / name for name in WHOLE if found(folder / name)]:
        return single[:1]
    parts = indexed(folder / INDEX) if found(folder / INDEX) else []
    return parts if all(map(found, parts)) else []


def _kept(hub: Hub, repo: str, name: str, revision: str | None) -> Path | None:
    """A file of the commit that `revision` meant last, or is; read here, as importing the library takes its time."""
    path = _commit(hub, repo, revision) / name
    return path if path.exists() else None


def _commit(hub: Hub, repo: str, revision: str | None) -> Path:
    folder, commit = hub.folder(repo), revision or "main"
    with suppress(OSError, UnicodeDecodeError):
        commit = read_text(folder / "refs" / commit, 1000).strip()
    return hub.snapshot(repo, commit if re.fullmatch(DIGEST, commit) else "unknown")
