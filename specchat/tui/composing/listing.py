"""The files below a folder: what git knows and does not ignore, elsewhere whatever is there."""

import os
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from specchat.attachments.mentions import can_be_mentioned

MOST_FILES = 20_000
LONGEST_S = 3.0
_SKIPPED = ("node_modules", "__pycache__", "venv", "site-packages")


@dataclass(frozen=True)
class PathListing:
    """Paths below a folder, the nearest first; `capped` when there are more."""

    paths: tuple[str, ...]
    capped: bool = False


def list_files(root: str, most: int = MOST_FILES) -> PathListing:
    """Files below `root`, relative to it, by folder from the top.

    Left out are hidden ones, what git ignores where it is there, environments and caches, names that cannot be written
    in a prompt, and what is behind links to folders.
    """
    end = monotonic() + LONGEST_S
    paths: list[str] = []
    for path in _of_git(root) or _below(root):
        if len(paths) == most or monotonic() > end:
            return PathListing(tuple(paths), capped=True)
        if path is not None:
            paths.append(path)
    return PathListing(tuple(paths))


def _of_git(root: str) -> list[str]:
    """The files of a git repository below `root`; empty where there is none, or no git."""
    # A repository's own settings may name programs to run; this is the one that listing would start.
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, timeout=LONGEST_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    paths = {os.fsdecode(path) for path in listed.split(b"\0") if path}
    offered = [path for path in paths if all(_offered(part) for part in path.split("/"))]
    found = sorted(offered, key=lambda path: (path.count("/"), path))
    return [path for path in found if os.path.isfile(os.path.join(root, path))]


def _below(root: str) -> Iterator[str | None]:
    """The files there, folder by folder; None for each that has been looked through, for the clock to be looked at."""
    folders = deque([""])
    while folders:
        below = folders.popleft()
        for entry in entries(os.path.join(root, below)):
            if not _offered(entry.name):
                continue
            if is_folder(entry, follow=False):
                folders.append(below + entry.name + "/")
            elif _is_file(entry):
                yield below + entry.name
        yield None


def _offered(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED and can_be_mentioned(name)


def entries(folder: str) -> Sequence[os.DirEntry[str]]:
    """The contents of a folder by name; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (OSError, ValueError):
        return ()


def is_folder(entry: os.DirEntry[str], *, follow: bool) -> bool:
    """True if it is one, or, to `follow`, a link to one."""
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False
