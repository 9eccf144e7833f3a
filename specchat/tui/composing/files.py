"""The files that can be mentioned: below the working directory, or in a folder that was named."""

import os
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from time import monotonic

from specchat.tui.composing.completion import Choice, Completion
from specchat.tui.composing.fuzzy import ranked
from specchat.tui.composing.mentions import Typed, can_be_mentioned, mention

MOST_FILES = 20_000
_LONGEST_WALK = 3.0
"""Seconds."""
_KEPT = 10.0
"""Seconds a list is good for."""
_OFFERED = 50
_SKIPPED = ("node_modules", "__pycache__", "venv", "site-packages")
_BY_FOLDER = re.compile(r"/|~|\.\.?/|[A-Za-z]:[\\/]")


@dataclass(frozen=True)
class Listing:
    """Paths below a folder, the nearest first; `capped` when there are more."""

    paths: tuple[str, ...]
    capped: bool = False


class Files:
    """Lists files for completion. All methods wait for the disk: call them in a thread."""

    def __init__(self) -> None:
        self._listing: Listing | None = None
        self._root = ""
        self._until = 0.0

    def complete(self, typed: Typed, column: int) -> Completion | None:
        """Files for the mention `typed`, which ends at `column`; None where none fit."""
        if _BY_FOLDER.match(typed.path):
            choices, note = _in_folder(typed.path), ""
        else:
            listing = self._below(os.getcwd())
            choices = [
                Choice(mention(path) + " ", path, places=places)
                for path, places in ranked(typed.path, listing.paths, str, _OFFERED)
            ]
            note = f"the first {len(listing.paths):,} files only" if listing.capped else ""
        return Completion(typed.start, column, tuple(choices), note) if choices else None

    def _below(self, root: str) -> Listing:
        if self._listing is None or root != self._root or monotonic() > self._until:
            self._listing, self._root = list_files(root), root
            self._until = monotonic() + _KEPT
        return self._listing


def list_files(root: str, most: int = MOST_FILES) -> Listing:
    """Files below `root`, relative to it, by folder from the top.

    Left out are hidden ones, what the .gitignore at the top names without a slash, environments and caches, names that
    cannot be written in a prompt, and what is behind links to folders.
    """
    ignored = _ignored(root)
    end = monotonic() + _LONGEST_WALK
    paths: list[str] = []
    folders = deque([""])
    while folders:
        below = folders.popleft()
        for entry in _entries(os.path.join(root, below)):
            if entry.name.startswith(".") or ignored.fullmatch(entry.name) or not can_be_mentioned(entry.name):
                continue
            path = below + entry.name
            if _is_folder(entry, follow=False):
                folders.append(path + "/")
            elif len(paths) == most or monotonic() > end:
                return Listing(tuple(paths), capped=True)
            elif _is_file(entry):
                paths.append(path)
        if monotonic() > end:
            return Listing(tuple(paths), capped=bool(folders))
    return Listing(tuple(paths))


def _in_folder(typed: str) -> list[Choice]:
    """Files and folders in the folder that `typed` names, and fit what follows its last slash."""
    folder, _, name = typed.rpartition("/")
    folder = folder + "/" if "/" in typed else ""
    if not folder:  # a lone ~
        return [Choice("@~/", "~/")]
    entries = [
        entry
        for entry in _entries(os.path.expanduser(folder))[:MOST_FILES]
        if can_be_mentioned(entry.name) and entry.name.startswith(".") <= name.startswith(".")
    ]
    choices = []
    for entry, places in ranked(name, entries, lambda entry: entry.name, _OFFERED):
        inside = _is_folder(entry, follow=True)
        path = folder + entry.name + "/" * inside
        text = mention(path).removesuffix('"') if inside else mention(path) + " "
        choices.append(Choice(text, path, places=[len(folder) + at for at in places]))
    return choices


def _entries(folder: str) -> Sequence[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (OSError, ValueError):
        return ()


def _is_folder(entry: os.DirEntry[str], *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _ignored(root: str) -> re.Pattern[str]:
    """Names to leave out: the usual ones, and patterns for names in .gitignore."""
    try:
        lines = (Path(root) / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()[:1000]
    except OSError:
        lines = []
    names = [line.strip().rstrip("/") for line in lines if not line.lstrip().startswith(("#", "!"))]
    return re.compile("|".join(translate(name) for name in (*_SKIPPED, *names) if name and "/" not in name))
