"""The state of a pair's files: a loaded pair is that of the disk as long as it stays the same."""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from specchat.engine.fetch.source import usual_hub
from specchat.engine.protocol.pair import ModelSource, PairSpec

PART = re.compile(r"(.*-)\d{5}-of-\d{5}\.gguf")
READ = (".safetensors", ".json", ".jinja", ".gguf", ".bin", ".pt", ".model", ".txt", ".py")
"""Ends of names of the files that loading reads from a model's folder."""


def file_state(pair: PairSpec) -> str:
    """A digest of places, sizes and times of the files that loading `pair` reads, as far as they are here."""
    places = [*map(_place, pair.sources), pair.exit, pair.draft_vocabulary]
    known = "\n".join(line for place in places if place for line in _files(Path(place).expanduser()))
    return hashlib.sha256(known.encode("utf-8", "surrogateescape")).hexdigest()


def state_once_loaded(pair: PairSpec, before: str) -> str:
    """The same after loading, which downloads what was not here; other files may have changed meanwhile."""
    return file_state(pair) if any(source.repo for source in pair.sources) else before


def _place(source: ModelSource) -> str | None:
    """The folder or file of a model."""
    if source.repo is None:
        return source.path
    return str(usual_hub().commit_folder(source.repo, source.revision) / (source.file or ""))


def _files(place: Path) -> Iterator[str]:
    """A line for each file at a place, and one for the place."""
    yield str(place)
    try:
        if place.is_dir():
            folder, names = place, sorted(name for name in os.listdir(place) if name.endswith(READ))
        else:
            folder = place.parent
            part = PART.fullmatch(place.name)
            names = sorted(name for name in os.listdir(folder) if name.startswith(part[1])) if part else [place.name]
        for name in names:
            found = (folder / name).stat()
            yield f"{name} {found.st_size} {found.st_mtime_ns} {found.st_ino}"
    except OSError:
        yield "not there"
