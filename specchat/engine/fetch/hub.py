"""Locates a model's files: a local folder, the Hugging Face cache, or a download into it."""

import os
from collections.abc import Callable
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.fetch.cached import cached
from specchat.engine.fetch.download import Download, Progress
from specchat.engine.fetch.failures import failure
from specchat.engine.fetch.listing import look_up, needed
from specchat.engine.fetch.source import usual_hub
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import ModelSource


def locate(source: ModelSource, progress: Callable[[Loading], None]) -> Path:
    """The folder of a checkpoint, or a GGUF file, downloaded if needed.

    HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and HF_TOKEN apply as in huggingface_hub.

    Raises:
        ModelError: the folder does not exist, or the repository has no supported weights.
        EngineError: "download": no such repository, no access, no network, or the disk is full.
    """
    if source.is_gguf:
        return locate_file(source, progress)
    if source.path is not None:
        return model_folder(source.path)
    if source.server is not None:
        raise ModelError(f"{source.label} is a model on a server: it has no files here.")
    if source.repo is None:
        raise ModelError("A model needs a path or a repo.")
    return _folder(source, source.repo, progress)


def model_folder(path: str) -> Path:
    """The folder at `path`.

    Raises:
        ModelError: there is none.
    """
    folder = Path(path).expanduser()
    if not os.path.lexists(folder):
        raise ModelError(f"{folder} is not there: it was moved or deleted, or is named wrongly.")
    if not os.path.isdir(folder):
        raise ModelError(f"{folder} is not a folder. Give the folder that holds config.json and model.safetensors.")
    return folder


def locate_file(source: ModelSource, progress: Callable[[Loading], None]) -> Path:
    """A GGUF file, downloaded with all its parts if needed.

    Raises:
        ModelError: the repository has no such file.
        EngineError: "download", as `locate`.
    """
    if source.path is not None:
        return Path(source.path).expanduser()
    if source.repo is None or source.file is None:
        raise ModelError("A GGUF file needs a path, or a repo with file.")
    return _folder(source, source.repo, progress) / source.file


def _folder(source: ModelSource, repo: str, progress: Callable[[Loading], None]) -> Path:
    hub = usual_hub()
    try:
        there = cached(hub, repo, source.revision, source.file)
    except ValueError as error:  # the library refuses the name
        raise failure(hub, repo, error) from None
    if there is not None:
        return there
    progress(Loading(f"looking for {repo} at {hub.host}"))
    listing = look_up(hub, repo, source.revision)

    def notify(now: Progress) -> None:
        words = f"downloading {repo}: {now.done / 1e9:.2f} of {now.total / 1e9:.2f} GB"
        progress(Loading(words, min(1.0, now.fraction)))

    return Download(hub, listing, needed(listing, source.file), notify).run()
