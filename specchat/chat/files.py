"""Files that chats are written to and read from."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from specchat.clean import one_line
from specchat.reading import read_whole

MAX_BYTES = 1 << 30
"""The largest file that is read, also unpacked."""


class ChatFileError(Exception):
    """A file of chats that cannot be read or written; the message is a sentence that names it."""


def write_new(path: Path, pieces: Iterable[str]) -> None:
    """Write a file that only this user may read, never over another one.

    Raises:
        ChatFileError: it exists already, or cannot be written; then nothing of it stays.
    """
    name = one_line(str(path))
    try:
        opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise ChatFileError(f"{name} exists already and is kept. Choose another name.") from None
    except (OSError, ValueError) as error:
        raise ChatFileError(f"{name} cannot be written ({_reason(error)}).") from None
    try:
        with open(opened, "w", encoding="utf-8", newline="", errors="replace") as file:
            file.writelines(pieces)
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise ChatFileError(f"{name} cannot be written ({_reason(error)}).") from None
        raise


def read(path: Path) -> bytes:
    """All of a regular file.

    Raises:
        ChatFileError: it cannot be read, or is over MAX_BYTES.
    """
    name = one_line(str(path))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before opening, which would wait at a pipe
            raise ChatFileError(f"{name} is not a regular file.")
        if os.stat(path).st_size > MAX_BYTES:
            raise ChatFileError(f"{name} is over {MAX_BYTES >> 30} GiB. Split it.")
        return read_whole(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ChatFileError(f"{name} cannot be read ({_reason(error)}). Check the path.") from None


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or "no such name"
