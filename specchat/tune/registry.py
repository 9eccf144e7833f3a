"""Results of tunes in the user's models.toml: registered, used, and taken back with what was there before."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specchat.config.paths import private_folder
from specchat.models.declare import own_ids, set_setting, setting_of
from specchat.tune.shelf import Tuned, free_folder, install, remove, shelved


def register(entry: Tuned, finished: Path | None, shelf: Path, toml: Path) -> Tuned:
    """Put `made` on the shelf, with the files of a folder, and into the models.toml at `toml`; returns what lies there.

    `entry.id` is the name that its folder has unless there is one already; `replaced` and `folder` are filled in.
    Whatever fails, nothing is left on the shelf, and `toml` is as it was.

    Raises:
        ConfigError: `toml` is wrong or cannot be written, or has no such pair.
        OSError: a file cannot be written.
    """
    destination = free_folder(private_folder(shelf), entry.id)
    begun = shelf / f".{entry.id}.new"
    shutil.rmtree(begun, ignore_errors=True)  # of a killed process
    try:
        private_folder(begun)
        if finished is not None:
            install(finished, begun)
        laid = replace(entry, id=destination.name, folder=begun, replaced=setting_of(toml, entry.pair, entry.key))
        laid.note()
        begun.rename(destination)
        laid = replace(laid, folder=destination)
        set_setting(toml, laid.pair, laid.key, _setting(laid))
    except BaseException:
        for half in (begun, destination):
            shutil.rmtree(half, ignore_errors=True)
        raise
    return laid


def used_by(tuned: Tuned, toml: Path) -> list[str]:
    """Ids of the pairs of the models.toml at `toml` that have it."""
    return [id_ for id_ in sorted(own_ids(toml)) if _is(tuned, setting_of(toml, id_, tuned.key), toml)]


def use(tuned: Tuned, toml: Path) -> None:
    """Let its pair have it from now on.

    Raises:
        ConfigError: `toml` is wrong or cannot be written, or has no such pair.
    """
    set_setting(toml, tuned.pair, tuned.key, _setting(tuned))


def give_back(tuned: Tuned, toml: Path) -> list[str]:
    """Let pairs that have it have what was there before; returns their ids.

    Raises:
        ConfigError: `toml` is wrong or cannot be written.
    """
    pairs = used_by(tuned, toml)
    for id_ in pairs:
        set_setting(toml, id_, tuned.key, tuned.replaced)
    return pairs


def take_away(tuned: Tuned, shelf: Path, toml: Path) -> tuple[int, list[str]]:
    """Delete it; returns the bytes that are free now, and the ids of pairs that have what was there before.

    Raises:
        ConfigError: `toml` is wrong or cannot be written; nothing is deleted.
        OSError: a file cannot be deleted.
    """
    pairs = give_back(tuned, toml)
    for other in shelved(shelf):
        if other.id != tuned.id and other.key == tuned.key and _is(tuned, other.replaced, toml):
            replace(other, replaced=tuned.replaced).note()
    return remove(tuned), pairs


def _setting(tuned: Tuned) -> Path | Mapping[str, Any]:
    return tuned.folder if tuned.value is None else tuned.value


def _is(tuned: Tuned, table: Mapping[str, Any] | None, toml: Path) -> bool:
    """True for the table of models.toml that names it."""
    if table is None:
        return False
    if tuned.value is not None:
        return dict(table) == dict(tuned.value)
    path = table.get("path")
    return isinstance(path, str) and toml.absolute().parent / os.path.expanduser(path) == tuned.folder.absolute()
