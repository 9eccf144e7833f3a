"""Files and streams that are read whole, within bounds: a device has no end, and a pipe may have no beginning."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 16 << 20
"""Bound of a file that the program itself writes, such as the history of prompts."""
TYPED_BYTES = 4_000_000
"""Bound of one prompt: more than any context holds."""

TOO_LONG = f"Standard input holds over {TYPED_BYTES // 1_000_000} MB. Give the part of it that matters."


def read_whole(path: Path, most: int = MOST_BYTES, *, pipes: bool = False) -> bytes:
    """All of a regular file, or of a pipe or device too where `pipes`; a pipe that nobody writes to is not waited for.

    Raises:
        OSError: it cannot be read, is not regular, or has more than `most` bytes.
    """
    with _regular(path, pipes=pipes) as file:
        mode, data = os.fstat(file.fileno()).st_mode, file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 10} KiB", str(path))
    if not data and stat.S_ISFIFO(mode):
        raise OSError(errno.EPIPE, "nobody writes to this pipe", str(path))
    return data


def read_head(path: Path, size: int) -> bytes:
    """The first bytes of a regular file.

    Raises:
        OSError: it cannot be read, or is not regular.
    """
    with _regular(path) as file:
        return file.read(size)


def read_text(path: Path, most: int = MOST_BYTES, *, pipes: bool = False) -> str:
    """The same as text of UTF-8, a byte order mark taken off and line ends made "\\n".

    Raises:
        OSError: as `read_whole`.
        UnicodeDecodeError: it is of another encoding.
    """
    text = read_whole(path, most, pipes=pipes).decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_typed(stream: BinaryIO) -> bytes:
    """All that is piped in, TYPED_BYTES at most.

    Raises:
        OverflowError: it is more.
    """
    data = stream.read(TYPED_BYTES + 1)
    if len(data) > TYPED_BYTES:
        raise OverflowError
    return data


def _regular(path: Path, *, pipes: bool = False) -> BinaryIO:
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115 (for the caller to close)
    mode = os.fstat(file.fileno()).st_mode
    if not (pipes or stat.S_ISREG(mode)) or stat.S_ISDIR(mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if hasattr(os, "set_blocking"):
        os.set_blocking(file.fileno(), True)
    return file


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
