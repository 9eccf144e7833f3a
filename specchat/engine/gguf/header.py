"""Reads the header of a GGUF file within bounds: metadata, and where its tensors are; no weights.

Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite, prod
from pathlib import Path
from typing import NamedTuple, TypeVar

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found
from specchat.engine.gguf.cursor import ARRAY, MAX_LIST_ENTRIES, SCALARS, TEXT, HeaderCursor, Value

Result = TypeVar("Result")

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_DIMENSIONS = 4
MAX_SIZE = 1 << 40
"""Rows or columns of a tensor."""
DEFAULT_ALIGNMENT, MAX_ALIGNMENT = 32, 1 << 20
"""Bytes to whose multiples weights begin, unless the file says otherwise."""
TOKENS_KEY = "tokenizer.ggml.tokens"
LIST_HEAD_BYTES = 12
"""Kind and length of a list."""


class TensorType(NamedTuple):
    """A type of tensors; rows are whole blocks of `values` in `bytes`."""

    name: str
    values: int
    bytes: int


TENSOR_TYPES = {
    number: TensorType(*one)
    for number, one in {
        0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 28: ("F64", 1, 8),
        24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
        2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
        8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 20: ("IQ4_NL", 32, 18), 39: ("MXFP4", 32, 17),
        10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
        14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 23: ("IQ4_XS", 256, 136),
        16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 22: ("IQ2_S", 256, 82),
        18: ("IQ3_XXS", 256, 98), 21: ("IQ3_S", 256, 110), 19: ("IQ1_S", 256, 50), 29: ("IQ1_M", 256, 56),
        34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 40: ("NVFP4", 64, 36),
        41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
    }.items()
}  # fmt: skip
"""Tensor types by number."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        shape: as in torch: columns last.
        type: its name, such as Q4_K; "type 99" for a number that is not known.
        offset: of its first byte in the file.
        bytes: 0 where the type is not known.
    """

    shape: tuple[int, ...]
    type: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Header:
    """Metadata of a GGUF file.

    Attributes:
        values: by key, without lists.
        lengths: of the lists, by key.
        tokens: SHA-256 of all tokens but padding.
        tensors: by name, in the order of the file's table.
    """

    path: Path
    values: Mapping[str, Value]
    lengths: Mapping[str, int]
    tokens: str
    tensors: Mapping[str, StoredTensor] = field(repr=False)
    _lists: Mapping[str, int] = field(repr=False, compare=False)
    """Offsets of the lists."""

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def types(self) -> dict[str, int]:
        """Number of weights by the name of their tensor type."""
        counted: dict[str, int] = {}
        for one in self.tensors.values():
            counted[one.type] = counted.get(one.type, 0) + prod(one.shape)
        return counted

    def integer(self, key: str) -> int | None:
        """An integer of the architecture's own keys, such as `block_count`; None if there is none."""
        value = self.values.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) else None

    def entries(self, key: str) -> list[Value]:
        """Read a list of the metadata; empty where there is none.

        Raises:
            ModelError: it has more than MAX_LIST_ENTRIES, or the file changed since its header was read.
        """
        if key not in self._lists:
            return []

        def listed(cursor: HeaderCursor) -> list[Value]:
            cursor.at = self._lists[key]
            return cursor.entries(key)

        return _opened(self.path, listed)

    def floats(self, name: str) -> list[float]:
        """Read a vector of float32, such as factors of rotary embeddings; empty where there is none.

        Raises:
            ModelError: it is of another type, has more than MAX_LIST_ENTRIES, or the file changed.
        """
        stored = self.tensors.get(name)
        if stored is None:
            return []

        def values(cursor: HeaderCursor) -> list[float]:
            if stored.type != "F32" or stored.bytes > 4 * MAX_LIST_ENTRIES:
                raise ValueError(f"its {one_line(name, 60)} is no short vector of F32")
            return [*struct.unpack(f"<{stored.bytes // 4}f", cursor.bytes_at(stored.offset, stored.bytes))]

        return _opened(self.path, values)


def no_gguf(path: Path) -> ModelError:
    """The error for a file that does not begin as GGUF files do."""
    if found(path.with_name("config.json")):
        return ModelError(f"{path} is a file of a checkpoint. Give the folder, {path.parent}.")
    return ModelError(f"{path} is no GGUF file, or it was cut short. Download it again.")


def read_header(path: Path) -> Header:
    """The header of the file at `path`.

    Raises:
        ModelError: it is missing, no GGUF, of another version, damaged or cut off, or its tensors overlap.
    """
    return _opened(path, lambda cursor: _read(path, cursor))


def _opened(path: Path, read: Callable[[HeaderCursor], Result]) -> Result:
    """Open a file for `read`, whose ValueErrors become sentences."""
    if not found(path):
        raise ModelError(f"{path} is missing, or a link that leads nowhere.")
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise no_gguf(path)
            return read(HeaderCursor(file))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Check that it is a file you may read.") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}. Download it again.") from None


def _read(path: Path, cursor: HeaderCursor) -> Header:
    cursor.take(4)
    version = cursor.number("<I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of the format is none that is read (2 and 3)")
    tensors = cursor.count(MAX_TENSORS, "tensors")
    keys = cursor.count(MAX_KEYS, "keys")
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    lists: dict[str, int] = {}
    tokens = ""
    for _ in range(keys):
        key = cursor.text()
        kind = cursor.count(12, "as a kind", "<I")
        if key in values or key in lengths:
            raise ValueError(f"it has {one_line(key, 60)} twice")
        if kind == TEXT:
            values[key] = cursor.text()
        elif kind == ARRAY:
            lists[key] = start = cursor.at
            lengths[key] = cursor.skip_list()
            if key == TOKENS_KEY:
                tokens = cursor.digest(start + LIST_HEAD_BYTES, cursor.unpadded)
        else:
            values[key] = value = cursor.number(SCALARS[kind])
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"its {one_line(key, 60)} is {value}")
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or not 0 < alignment <= MAX_ALIGNMENT:
        raise ValueError("its general.alignment is no whole number")
    return Header(path, values, lengths, tokens, _tensors(cursor, tensors, alignment), lists)


def _tensors(cursor: HeaderCursor, count: int, alignment: int) -> dict[str, StoredTensor]:
    """Read the table of tensors, and check that they lie within the file beside each other."""
    listed: dict[str, StoredTensor] = {}
    for _ in range(count):
        name = cursor.text()
        if name in listed:
            raise ValueError(f"it has tensor {one_line(name, 60)} twice")
        sizes = [cursor.count(MAX_SIZE, "rows") for _ in range(cursor.count(MAX_DIMENSIONS, "dimensions", "<I"))]
        number = cursor.count(1 << 16, "as a type", "<I")
        offset = cursor.count(1 << 62, "bytes")
        kind = TENSOR_TYPES.get(number, TensorType(f"type {number}", 1, 0))
        columns = sizes[0] if sizes else 1
        if columns % kind.values:
            raise ValueError(
                f"its tensor {one_line(name, 60)} has rows of {columns}, no whole blocks of {kind.values} ({kind.name})"
            )
        if offset % alignment:
            raise ValueError(f"its tensor {one_line(name, 60)} does not begin at a multiple of {alignment} bytes")
        listed[name] = StoredTensor(
            (*reversed(sizes),), kind.name, offset, columns // kind.values * kind.bytes * prod(sizes[1:])
        )
    first = -(-cursor.at // alignment) * alignment
    placed = sorted((one.offset, one.offset + one.bytes, name) for name, one in listed.items())
    for (_, end, _), (start, _, name) in pairwise(placed):
        if start < end:
            raise ValueError(f"its tensor {one_line(name, 60)} begins within another")
    if placed and first + max(max(start + 1, end) for start, end, _ in placed) > cursor.size:
        raise ValueError("it is cut off: not all of its weights are there")
    return {name: StoredTensor(one.shape, one.type, first + one.offset, one.bytes) for name, one in listed.items()}
