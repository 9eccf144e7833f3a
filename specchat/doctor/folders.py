"""Folders: whether they can be written, and what is free on their disks."""

import os
import shutil
from pathlib import Path

from specchat.config.paths import Paths
from specchat.doctor.finding import Finding, note, ok

GIB = 1 << 30
LOST = {
    "config": "choices such as the theme are not kept",
    "data": "chats are not kept",
    "cache": "nothing is cached",
    "state": "prompts and the engine's log are not kept",
}
"""The loss where a folder cannot be written."""


def folders(paths: Paths) -> list[Finding]:
    places = {"config": paths.config, "data": paths.data, "cache": paths.cache, "state": paths.state}
    return [folder(f"{name} folder", path, LOST[name]) for name, path in places.items()]


def folder(name: str, path: Path, lost: str) -> Finding:
    """State of `path`, or of the folder in which it would be made; `lost` says what cannot be done without it."""
    there = nearest_existing(path)
    if not os.path.isdir(there):
        return note(name, f"{path}: {there} is not a folder, so {lost}.")
    if not os.access(there, os.W_OK | os.X_OK):
        return note(name, f"{path} cannot be written, so {lost}. Check its owner, or set SPECCHAT_HOME.")
    state = "writable" if there == path else "made when it is needed"
    free = free_bytes(there)
    if free < GIB:
        return note(name, f"{path}: {state}, but only {gib(free)} free on its disk.")
    return ok(name, f"{path}: {state}, {gib(free)} free")


def model_cache() -> Finding:
    """The folder of downloaded models, shared with other programs that use the Hugging Face hub."""
    from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE

    path = Path(HF_HUB_CACHE)
    there = nearest_existing(path)
    try:
        models = list(path.glob("models--*"))
        size = sum(file.stat().st_size for model in models for file in (model / "blobs").glob("*"))
    except OSError as error:
        return note("model cache", f"{path} cannot be read ({error.strerror}). Check its owner, or set HF_HOME.")
    held = f"{len(models)} models, {gib(size)}" if models else "no models yet"
    offline = "; HF_HUB_OFFLINE is set: nothing is downloaded" if HF_HUB_OFFLINE else ""
    return ok("model cache", f"{path}: {held}, {gib(free_bytes(there))} free{offline}")


def nearest_existing(path: Path) -> Path:
    """`path`, or the lowest folder or file above it that there is."""
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
