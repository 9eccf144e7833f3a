"""Reads the header of a GGUF file within bounds: metadata and tensor types, no weights.

Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite, prod
from pathlib import Path

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found

Value = int | float | bool | str

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_TEXT_BYTES = 1 << 26
"""Some files hold a whole tokenizer.json in one text."""
MAX_LIST_TEXTS = 1 << 21
"""Texts in all lists of a file; the largest vocabularies have 260,000 tokens and twice as many merges."""
MAX_HEADER_BYTES = 1 << 28
MAX_KEPT_TEXT_BYTES = 1 << 16
"""Longer texts are skipped: no reader needs them."""
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32
"""Bytes to whose multiples weights begin, unless the file says otherwise."""
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9
TOKENS_KEY = "tokenizer.ggml.tokens"
PADDING_PREFIX = b"[PAD"
"""Start of the texts of tokens that only pad the vocabulary."""
LIST_HEAD_BYTES = 12
"""Kind and length of a list."""
TENSOR_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Names of tensor types by number."""


@dataclass(frozen=True)
class Header:
    """Metadata of a GGUF file.

    Attributes:
        values: by key, without lists.
        lengths: of the lists, by key.
        tokens: SHA-256 of all tokens but padding.
        types: number of weights by the name of their tensor type.
    """

    values: Mapping[str, Value]
    lengths: Mapping[str, int]
    tokens: str
    types: Mapping[str, int]

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    def integer(self, key: str) -> int | None:
        """An integer of the architecture's own keys, such as `block_count`; None if there is none."""
        value = self.values.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) else None


class _Cursor:
    """Reads a file's bytes forwards; raises ValueError at a premature end or beyond a bound."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0
        self.texts = MAX_LIST_TEXTS
        """List texts that may still be read."""
        self.unpadded = 0
        """End of the last list text that is no padding."""

    def take(self, size: int) -> int:
        start = self.at
        if size < 0 or start + size > len(self.data):
            raise ValueError("it ends in its header")
        if start + size > MAX_HEADER_BYTES:
            raise ValueError(f"its header has more than {MAX_HEADER_BYTES >> 20} MB")
        self.at = start + size
        return start

    def number(self, form: str) -> Value:
        value: Value = struct.unpack_from(form, self.data, self.take(struct.calcsize(form)))[0]
        return value

    def count(self, most: int, what: str, form: str = "<Q") -> int:
        value = self.number(form)
        if not isinstance(value, int) or value > most:
            raise ValueError(f"it says it has {value} {what}")
        return value

    def text(self) -> str:
        size = self.count(MAX_TEXT_BYTES, "letters in one text")
        start = self.take(size)
        return self.data[start : start + size].decode("utf-8", "replace") if size <= MAX_KEPT_TEXT_BYTES else ""

    def skip_list(self) -> int:
        """Skip a list and return its length."""
        kind = self.count(_TEXT + 4, "as a kind", "<I")
        length = self.count(len(self.data), "entries in one list")
        if kind in _SCALARS:
            self.take(length * struct.calcsize(_SCALARS[kind]))
        elif kind == _TEXT:
            if (left := self.texts - length) < 0:
                raise ValueError(f"it has a list of {length:,} texts")
            self.texts = left
            for _ in range(length):
                start = self.take(self.count(MAX_TEXT_BYTES, "letters in one text"))
                if self.data[start : start + len(PADDING_PREFIX)] != PADDING_PREFIX:
                    self.unpadded = self.at
        else:
            raise ValueError("it has a list of lists")
        return length


def no_gguf(path: Path) -> ModelError:
    """The error for a file that does not begin as GGUF files do."""
    if found(path.with_name("config.json")):
        return ModelError(f"{path} is a file of a checkpoint. Give the folder, {path.parent}.")
    return ModelError(f"{path} is no GGUF file, or it was cut short. Download it again.")


def read_header(path: Path) -> Header:
    """The header of the file at `path`.

    Raises:
        ModelError: it is missing, no GGUF, of another version, damaged or cut off.
    """
    if not found(path):
        raise ModelError(f"{path} is missing, or a link that leads nowhere.")
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"GGUF":
                raise no_gguf(path)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(_Cursor(data))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Check that it is a file you may read.") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}. Download it again.") from None


def _read(cursor: _Cursor) -> Header:
    cursor.take(4)
    version = cursor.number("<I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of the format is none that is read (2 and 3)")
    tensors = cursor.count(MAX_TENSORS, "tensors")
    keys = cursor.count(MAX_KEYS, "keys")
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    tokens = ""
    for _ in range(keys):
        key = cursor.text()
        kind = cursor.count(12, "as a kind", "<I")
        if key in values or key in lengths:
            raise ValueError(f"it has {one_line(key, 60)} twice")
        if kind == _TEXT:
            values[key] = cursor.text()
        elif kind == _ARRAY:
            start = cursor.at
            lengths[key] = cursor.skip_list()
            if key == TOKENS_KEY:
                with memoryview(cursor.data) as whole, whole[start + LIST_HEAD_BYTES : cursor.unpadded] as listed:
                    tokens = sha256(listed).hexdigest()
        else:
            values[key] = value = cursor.number(_SCALARS[kind])
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"its {one_line(key, 60)} is {value}")
    types: dict[str, int] = {}
    last = 0
    for _ in range(tensors):
        cursor.text()
        shape = [cursor.count(1 << 40, "rows") for _ in range(cursor.count(MAX_DIMENSIONS, "dimensions", "<I"))]
        kind_number = cursor.count(1 << 16, "as a type", "<I")
        name = TENSOR_TYPES.get(kind_number, f"type {kind_number}")
        types[name] = types.get(name, 0) + prod(shape)
        last = max(last, cursor.count(1 << 62, "bytes"))
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment < 1:
        raise ValueError("its general.alignment is no whole number")
    if tensors and -(-cursor.at // alignment) * alignment + last >= len(cursor.data):
        raise ValueError("it is cut off: not all of its weights are there")
    return Header(values, lengths, tokens, types)
