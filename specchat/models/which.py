"""Choice of a GGUF file of a repository or a folder."""

import os
from dataclasses import replace
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.fetch.cached import cached, cached_ggufs
from specchat.engine.fetch.listing import PART, first_files, look_up, needed, parts_of, preferred_file
from specchat.engine.fetch.source import Hub
from specchat.engine.protocol.pair import ModelSource, is_gguf

NAMED = 4
"""Files that are named where one has to be chosen."""


def chosen(hub: Hub, source: ModelSource, file: str | None = None) -> ModelSource:
    """`source` with its GGUF file, where it is a repository or a folder of such; `file` says which of several.

    What is not here is looked up on the hub.

    Raises:
        ModelError: it has no such file, or several and none is named.
        EngineError: "download": the repository cannot be reached.
    """
    file = file or source.file
    if file is not None and not is_gguf(file):
        raise ModelError(f"{file} is no GGUF file, and of other models all files are taken: leave --file out.")
    if source.repo is not None:
        return _of_repo(hub, source, source.repo, file)
    path = Path(source.path or "").expanduser()
    if os.path.isdir(path):
        return _of_folder(source, path, file)
    if file is not None:
        raise ModelError(f"{path} is a file already: leave --file out.")
    return replace(source, path=str(path.parent / _first(path.name))) if is_gguf(path.name) else source


def _of_repo(hub: Hub, source: ModelSource, repo: str, file: str | None) -> ModelSource:
    if file is None and cached(hub, repo, source.revision) is not None:
        return source
    if file is None and (cached_files := cached_ggufs(hub, repo, source.revision)):
        file = preferred_file(repo, cached_files)
    elif file is None or cached(hub, repo, source.revision, file) is None:
        names = [each.name for each in needed(look_up(hub, repo, source.revision), file)]
        file = file or (*first_files(names), *names)[0]
    if not is_gguf(file):
        return source
    if "/" in file:
        raise ModelError(
            f"{file} is in a folder of {repo}, and only files at its top can be declared. Pull it "
            f"(specchat models pull {repo} --file {file}) and add the path that is printed."
        )
    return replace(source, file=_first(file))


def _of_folder(source: ModelSource, folder: Path, file: str | None) -> ModelSource:
    names = sorted(path.name for path in folder.iterdir() if is_gguf(path.name))
    if file is not None:
        if not parts_of(file, names):
            raise ModelError(f"{folder} has no {file}, or not all parts of it.")
        return replace(source, path=str(folder / _first(file)))
    files = first_files(names)
    if not files or os.path.exists(folder / "config.json"):
        return source
    if folders := sorted(path.name for path in folder.iterdir() if os.path.exists(path / "config.json")):
        several = ", ".join([*files, *folders][:NAMED])
        raise ModelError(f"{folder} has GGUF files and checkpoints: {several}. Give the path of one.")
    if len(files) > 1:
        some = ", ".join(files[:NAMED]) + (", ..." if len(files) > NAMED else "")
        raise ModelError(f"{folder} has {len(files)} GGUF files: {some}. Say which with --file, or give its path.")
    return replace(source, path=str(folder / files[0]))


def _first(name: str) -> str:
    """The first part of a split file, which stands for all; any other file as it is."""
    part = PART.fullmatch(name)
    return f"{part[1]}-00001-of-{part[3]}.gguf" if part else name
