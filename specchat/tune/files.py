"""Files that are whole or not there, whenever writing them ends."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from specchat.clean import one_line

FULL = "No space left on device"


def put_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file in place of `path`, with `about` as its metadata.

    Raises:
        OSError: it cannot be written, as to a full disk; `path` is as it was.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        whole = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        save_file(whole, new, metadata=dict(about or {}))
        new.replace(path)
    except SafetensorError as error:
        code, reason = (errno.ENOSPC, FULL) if FULL in str(error) else (errno.EIO, one_line(str(error)))
        raise OSError(code, reason, str(path)) from None
    finally:
        new.unlink(missing_ok=True)


def get_tensors(path: Path, *only: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file that `put_tensors` wrote, all unless some are named, and its metadata.

    Raises:
        OSError: it is damaged or cannot be read.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = only or tuple(file.keys())
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except SafetensorError as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> OSError:
    """The error to raise for a file with unexpected contents; it has no errno."""
    return OSError(0, f"it is damaged: {one_line(str(error))}", str(path))


def put_json(path: Path, data: Mapping[str, object]) -> None:
    """Write a JSON object in place of `path`.

    Raises:
        OSError: it cannot be written; `path` is as it was.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(encoded(data))
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def encoded(data: Mapping[str, object]) -> bytes:
    """The bytes that `put_json` writes."""
    return (json.dumps(data, indent=1) + "\n").encode()
