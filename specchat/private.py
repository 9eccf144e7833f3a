"""Files and folders that only this user may read, also those that were made otherwise."""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

FOLDER, FILE = 0o700, 0o600


def opener(path: str, flags: int) -> int:
    """For `open`. A file that is made is private, and one that is there becomes so. A pipe is not waited for.

    Raises:
        OSError: it cannot be opened, or is a pipe.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), FILE)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe", path)
    tighten(descriptor)
    return descriptor


def tighten(path: Path | int) -> None:
    """Take the rights of others from a file or folder, by its path or descriptor, where that can be done."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        if os.name == "posix" and mode & 0o077 and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            os.chmod(path, stat.S_IMODE(mode) & ~0o077)


def is_private(folder: Path) -> bool:
    """True for a folder of this user that nobody else may enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return folder.is_dir() and not folder.is_symlink() and found.st_uid == os.getuid() and not found.st_mode & 0o077


def replace(path: Path, text: str) -> None:
    """Write a private file in the place of what is there, whole or not at all; its folder must be there.

    Raises:
        OSError: it cannot be written.
    """
    name = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            name = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except OSError:
        if name:
            Path(name).unlink(missing_ok=True)
        raise
