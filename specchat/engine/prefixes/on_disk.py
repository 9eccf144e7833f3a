"""Files of read texts, as far as their beginnings tell: whose texts they have. Free of torch, for commands too."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from specchat.engine.prefixes.bounds import FOLDER

MAGIC, SUFFIX = b"specchat read 2\n", ".read"
MOST_HEADER = 1 << 20
NOBODY, UNKNOWN = "", "?"
"""Owners of texts that belong to no chat, such as those of `specchat serve`, and of those that may be any chat's."""


class UnusableFile(Exception):
    """A file that is damaged, or not of this model."""


def header_of(file: BufferedReader) -> tuple[bytes, bytes]:
    """The bytes before a file's header, and the header in JSON: model, tokens, first token, owners, and its form.

    Raises:
        UnusableFile: it is of another version.
    """
    begin = file.read(len(MAGIC) + 8)
    length = int.from_bytes(begin[len(MAGIC) :], "little")
    if not begin.startswith(MAGIC) or length > MOST_HEADER:
        raise UnusableFile("it is of another version")
    return begin, file.read(length)


def remove_all(folder: Path) -> tuple[int, int]:
    """Remove all files of parts; return their number and bytes."""
    count = size = 0
    for path in part_files(folder):
        with suppress(OSError):
            taken = path.stat().st_size
            path.unlink()
            count, size = count + 1, size + taken
    return count, size


def remove_chat(chat: str) -> None:
    """Remove the files that may have text of `chat`, in the folder of the environment."""
    folder = os.environ.get(FOLDER)
    for path in part_files(Path(folder)) if folder else ():
        with suppress(OSError):
            if {chat, UNKNOWN} & _owners(path):
                path.unlink()


def _owners(path: Path) -> set[str]:
    """The owners of a file's text; one that is not whole may have any."""
    try:
        with open(path, "rb") as file:
            return set(map(str, json.loads(header_of(file)[1])[3])) or {UNKNOWN}
    except (ValueError, TypeError, LookupError, UnusableFile):
        return {UNKNOWN}


def part_files(folder: Path) -> Iterator[Path]:
    """The files of parts in a folder, also those that are being written."""
    with suppress(OSError):
        yield from [path for path in folder.iterdir() if path.name.endswith(SUFFIX) and not path.is_symlink()]


def used_at(path: Path) -> float:
    """The time of a file's last use, in seconds since 1970."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0
