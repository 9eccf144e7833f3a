"""Models on this machine: in the Hugging Face cache, in LM Studio's and Ollama's folders, and where the user says."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.fetch.listing import PART, first_files
from specchat.engine.fetch.source import Hub
from specchat.models.about import About, about_folder, about_gguf
from specchat.models.ollama import ollama_models

DEEPEST = 4
"""Folders in folders that are looked into."""
MOST_FILES = 20_000
OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")
"""The folder of the service that Ollama's installer sets up on Linux."""


@dataclass(frozen=True)
class ModelPlaces:
    """Places to look in. `hub.cache` is the Hugging Face cache."""

    hub: Hub
    lm_studio: tuple[Path, ...] = ()
    ollama: tuple[Path, ...] = ()
    own: tuple[Path, ...] = ()


@dataclass(frozen=True)
class FoundModel:
    """A model with the program whose folder it is in; `repo` where it came from the hub."""

    about: About
    origin: str
    repo: str = ""
    revision: str = ""


@dataclass(frozen=True)
class Library:
    """All that was found, and in sentences what could not be read.

    `unread` are sentences about models, by their names; `problems` has these, too.
    """

    models: tuple[FoundModel, ...]
    problems: tuple[str, ...]
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Unread:
    """A model that cannot be read, with the reason."""

    name: str
    problem: str


def usual_places(hub: Hub, own: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> ModelPlaces:
    """The folders of this user; OLLAMA_MODELS means what it means to Ollama."""
    home = Path.home()
    lm_studio = (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models")
    named = environ.get("OLLAMA_MODELS")
    ollama = (Path(named).expanduser(),) if named else (home / ".ollama" / "models", OLLAMA_SERVICE)
    return ModelPlaces(hub, lm_studio, ollama, tuple(Path(os.path.expanduser(folder)) for folder in own))


def look(places: ModelPlaces) -> Library:
    """Read the headers of all models there are. Nothing is raised: files that cannot be read become problems."""
    models: list[FoundModel] = []
    problems: list[str] = []
    unread: dict[str, str] = {}
    for outcome in _all(places):
        if isinstance(outcome, FoundModel):
            models.append(outcome)
        elif isinstance(outcome, _Unread):
            problems.append(outcome.problem)
            unread[outcome.name] = outcome.problem
        else:
            problems.append(outcome)
    unique = {found.about.place.resolve(): found for found in reversed(models)}
    return Library(tuple(sorted(unique.values(), key=lambda found: found.about.name.lower())), tuple(problems), unread)


def _all(places: ModelPlaces) -> Iterator[FoundModel | _Unread | str]:
    yield from _hub_models(places.hub)
    for folder in places.lm_studio:
        if os.path.isdir(folder):
            yield from _in_folder(folder, "LM Studio")
    for folder in places.ollama:
        for about in ollama_models(folder):
            yield about if isinstance(about, str) else FoundModel(about, "Ollama")
    for folder in places.own:
        if os.path.isdir(folder):
            yield from _in_folder(folder, "your folder")
        else:
            yield f"{folder}, of model_folders, is not a folder."


def _hub_models(hub: Hub) -> Iterator[FoundModel | _Unread | str]:
    from huggingface_hub import scan_cache_dir

    if not os.path.isdir(hub.cache):
        return
    try:
        cache = scan_cache_dir(hub.cache)
    except OSError as error:
        yield f"{hub.cache} cannot be read ({error.strerror})."
        return
    yield from _stopped(hub)
    for warning in cache.warnings:
        if "Snapshots dir doesn't exist" not in str(warning):  # of a download that was stopped
            yield f"In the Hugging Face cache: {one_line(str(warning), 200)}"
    for repo in sorted(cache.repos, key=lambda repo: repo.repo_id):
        if repo.repo_type != "model":
            continue
        for revision in sorted(repo.revisions, key=lambda r: ("main" not in r.refs, -r.last_modified))[:1]:
            names = {file.file_name for file in revision.files}
            if "config.json" in names and any(name.endswith(".safetensors") for name in names):
                yield _found(revision.snapshot_path, repo.repo_id, "Hugging Face", repo.repo_id, revision.commit_hash)
            for name, file in _gguf_models(names):
                shown = f"{repo.repo_id} {name}"
                yield _found(revision.snapshot_path / file, shown, "Hugging Face", repo.repo_id, revision.commit_hash)


def _stopped(hub: Hub) -> Iterator[str]:
    for folder in sorted(hub.cache.glob("models--*")):
        if not os.path.isdir(folder / "snapshots"):
            repo = one_line(folder.name.removeprefix("models--").replace("--", "/"), 100)
            yield f"{repo} is here in part: models pull {repo} goes on with it, models rm {repo} deletes it."


def _in_folder(root: Path, origin: str) -> Iterator[FoundModel | _Unread | str]:
    seen = 0

    def unreadable(error: OSError) -> None:
        problems.append(f"{error.filename} cannot be read ({error.strerror}).")

    problems: list[str] = []
    for here, folders, files in os.walk(root, onerror=unreadable):
        folder = Path(here)
        if len(folder.relative_to(root).parts) >= DEEPEST:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        seen += len(files)
        if seen > MOST_FILES:
            yield f"{root} has more than {MOST_FILES:,} files: not all of it was looked at."
            break
        name = "/".join(folder.relative_to(root).parts[-2:]) or root.name
        if "config.json" in files and any(file.endswith(".safetensors") for file in files):
            yield _found(folder, name, origin)
        for model, file in _gguf_models(files):
            yield _found(folder / file, f"{name}/{model}", origin)
    yield from problems


def _gguf_models(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """The names of GGUF models, those of their first files, each with the first file of it among `names`."""
    models: dict[str, str] = {}
    for name in sorted(names):
        part = PART.fullmatch(name)
        models.setdefault(name if part is None else f"{part[1]}-{1:05}-of-{part[3]}.gguf", name)
    return ((first, models[first]) for first in first_files([*models]))


def _found(path: Path, name: str, origin: str, repo: str = "", revision: str = "") -> FoundModel | _Unread:
    name = one_line(name, 80)
    try:
        about = about_gguf(path, name) if path.suffix == ".gguf" else about_folder(path, name)
    except ModelError as error:
        return _Unread(name, error.message)
    except OSError as error:
        return _Unread(name, f"{path} cannot be read ({error.strerror}).")
    except Exception as error:  # whatever it is, it does not hide the other models
        return _Unread(name, f"{path} cannot be read: {one_line(f'{type(error).__name__}: {error}')}.")
    return FoundModel(about, origin, repo, revision)
