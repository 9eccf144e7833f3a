"""Files of a model folder. Only regular ones are opened: a pipe or a device could hold the load up for ever."""

import json
import stat
import struct
from math import prod
from pathlib import Path
from typing import Any

from specchat.engine.errors import ModelError

LONGEST_HEADER = 100 << 20
"""Bytes of a safetensors header; the library's own limit."""


def found(path: Path) -> bool:
    """Whether a file is there, by itself or through links.

    Raises:
        ModelError: something else is there, or the system does not let it be looked at.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # a name that is too long, or holds a zero
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{path} cannot be read ({reason}). Check that it is a file you may read.") from None
    if not stat.S_ISREG(mode):
        raise ModelError(f"{path} is not a regular file, and no other is read. Download the checkpoint again.")
    return True


def read_text(path: Path) -> str:
    """A text file of UTF-8.

    Raises:
        ModelError: the file is missing, not a regular one, unreadable or of another encoding.
    """
    if not found(path):
        raise ModelError(f"{path} is missing: the folder is not a complete checkpoint.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text (byte {error.start}). Download the checkpoint again.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Check that it is a file you may read.") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelError: the file is missing, unreadable or not a JSON object.
    """
    data = parsed(read_text(path), str(path))
    if not isinstance(data, dict):
        raise ModelError(f"{path} does not hold a JSON object. Download the checkpoint again.")
    return data


def parsed(text: str | bytes, where: str) -> object:
    """The value of a JSON text.

    Raises:
        ModelError: it is no JSON, or beyond what Python reads; the message begins with `where`.
    """
    try:
        return json.loads(text)
    except RecursionError:
        reason = "it is nested too deeply"
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    except ValueError:  # Python's, for integers of thousands of digits
        reason = "it holds a number that is too long"
    raise ModelError(f"{where} cannot be read as JSON ({reason}). Download the checkpoint again.")


def stored_values(path: Path) -> int:
    """How many values the tensors of a safetensors file have, counted from its header.

    Raises:
        ModelError: the file is damaged.
    """
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 0 < size <= min(LONGEST_HEADER, path.stat().st_size - 8):
            raise ModelError(f"{path} is damaged or cut short. Download it again.")
        header = parsed(file.read(size), str(path))
    entries = header.values() if isinstance(header, dict) else ()
    shapes = [entry.get("shape") for entry in entries if isinstance(entry, dict)]
    return sum(prod(shape) for shape in shapes if isinstance(shape, list) and all(isinstance(n, int) for n in shape))
