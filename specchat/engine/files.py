"""Files of a model folder. Only regular ones are opened: a pipe or a device could block the load for ever."""

import re
import stat
import struct
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, Schema, checked, parsed

LONGEST_TEXT = 32 << 20
"""Limit of a file of settings, in bytes; the largest published are indices of weights, with 10 MB."""
LONGEST_TOKENIZER = 128 << 20
LONGEST_NAME = 255
"""Limit of a file's name, in bytes."""
LONGEST_HEADER = 32 << 20
"""Limit of a safetensors header, in bytes; the largest published have 10 MB."""
LAYER = re.compile(r"layers\.([0-9]{1,6})\.")
"""Number of a layer in the name of a tensor."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def found(path: Path) -> bool:
    """True where a regular file exists, links followed.

    Raises:
        ModelError: the path is something else, or the system denies access.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # a name that is too long, or contains a zero
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{path} cannot be read ({reason}). Check that it is a file you may read.") from None
    if not stat.S_ISREG(mode):
        raise ModelError(f"{path} is not a regular file, and no other is read. Download the checkpoint again.")
    return True


def missing(path: Path) -> ModelError:
    """The error where a folder lacks a file; without config.json it names checkpoints that lie in the folder."""
    inner: list[str] = []
    if path.name == "config.json":
        configs = (one for pattern in ("*/config.json", "snapshots/*/config.json") for one in path.parent.glob(pattern))
        inner = [one_line(str(config.parent), 400) for config in sorted(configs)[:3]]
    perhaps = f" Perhaps you mean {' or '.join(inner)}." if inner else ""
    return ModelError(f"{path} is missing: the folder is not a complete checkpoint.{perhaps}")


def read_bytes(path: Path, most: int = LONGEST_TEXT) -> bytes:
    """Read a file.

    Raises:
        ModelError: the file is missing, not a regular one, unreadable or of more than `most` bytes.
    """
    if not found(path):
        raise missing(path)
    try:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Check that it is a file you may read.") from None
    if len(data) > most:
        raise ModelError(f"{path} has more than {most >> 20} MB, and no such file is read. Download it again.")
    return data


def read_text(path: Path, most: int = LONGEST_TEXT) -> str:
    """Read a text file in UTF-8.

    Raises:
        ModelError: see `read_bytes`; or the file has another encoding.
    """
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text (byte {error.start}). Download the checkpoint again.") from None


def read_json(path: Path, most: int = LONGEST_TEXT) -> dict[str, Any]:
    """Read a JSON object from a file. Its values may be of any kind; check them with `foreign.checked`.

    Raises:
        ModelError: the file is missing, unreadable or not a JSON object.
    """
    data = parsed(read_text(path, most), str(path))
    if not isinstance(data, dict):
        raise ModelError(f"{path} does not hold a JSON object. Download the checkpoint again.")
    return data


def read(path: Path, schema: type[Schema], most: int = LONGEST_TEXT) -> Schema:
    """Read a JSON object from a file, checked by `schema`.

    Raises:
        ModelError: the file is missing or unreadable, or a value in it is missing or of another kind.
    """
    return checked(schema, read_json(path, most), str(path))


class _Index(Foreign):
    weight_map: dict[str, str] = Field(description="an object of texts")


def indexed(path: Path) -> list[Path]:
    """Files of weights that an index names, in its own folder.

    Raises:
        ModelError: the index cannot be read, or names a file elsewhere.
    """
    names = sorted(set(read(path, _Index).weight_map.values()))
    for name in names:
        if Path(name).name != name or not name.isprintable() or len(name.encode()) > LONGEST_NAME:
            raise ModelError(f"{path} names {one_line(name, 60)!a}, which is no file beside it. Download it again.")
    return [path.with_name(name) for name in names]


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a checkpoint; like transformers, prefer a single file to an index.

    Raises:
        ModelError: some are missing, or its weights are pickled.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if found(single):
        return (single,)
    if found(index):
        shards = indexed(index)
        for shard in shards:
            if not found(shard):
                raise ModelError(f"{shard} is named in {index.name} but missing. Download the checkpoint again.")
        return tuple(shards)
    pickled = next((p for pattern in PICKLES for p in sorted(folder.glob(pattern))), None)
    if pickled is not None:
        raise ModelError(
            f"{pickled} holds pickled weights, which can run code when loaded. Use a checkpoint with "
            f'model.safetensors, or write one: specchat convert "{folder}" --to safetensors.'
        )
    if any(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder} holds neither model.safetensors nor {index.name}, which says what its parts hold. Download it."
        )
    raise ModelError(f"{folder} holds no model.safetensors. Give the folder of a complete checkpoint.")


class StoredTensors(NamedTuple):
    """Values in the tensors of a safetensors file, and layers that their names count; 0 if they count none.

    `matrices` are the names of the layers' matrices that are stored as such, without ".weight". `packed`: there are
    matrices in blocks, as MXFP4 has them.
    """

    values: int
    layers: int
    matrices: frozenset[str] = frozenset()
    packed: bool = False


def stored_tensors(path: Path) -> StoredTensors:
    """Read the header of a safetensors file.

    Raises:
        ModelError: the file is missing, damaged or cut short.
    """
    if not found(path):
        raise missing(path)
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 0 < size <= min(LONGEST_HEADER, path.stat().st_size - 8):
            raise ModelError(f"{path} is damaged or cut short. Download it again.")
        header = parsed(file.read(size), str(path))
    there = path.stat().st_size - 8 - size
    tensors = {key: value for key, value in header.items() if key != "__metadata__"} if isinstance(header, dict) else {}
    known = checked(_Header, {"tensors": tensors}, str(path)).tensors
    if max((tensor.data_offsets[1] for tensor in known.values()), default=0) > there:
        raise ModelError(f"{path} is cut short: not all of its weights are there. Download it again.")
    layers = max((1 + int(number) for name in known for number in LAYER.findall(name)), default=0)
    matrices = (
        # Of a checkpoint that reads images too, as the text part calls them.
        name.replace("language_model.", "").removesuffix(".weight")
        for name, tensor in known.items()
        if name.endswith(".weight") and len(tensor.shape) == 2 and LAYER.search(name)
    )
    packed = any(name.endswith("_blocks") for name in known)
    return StoredTensors(sum(prod(tensor.shape) for tensor in known.values()), layers, frozenset(matrices), packed)


class _Tensor(Foreign):
    shape: list[Annotated[int, Field(ge=0, lt=1 << 40)]] = Field(max_length=16)
    data_offsets: list[int] = Field([0, 0], min_length=2, max_length=2)


class _Header(Foreign):
    tensors: dict[str, _Tensor] = Field(description="an object of tensors with their shapes")
