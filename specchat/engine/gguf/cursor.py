"""Reads the header of a GGUF file forwards, within bounds and without mapping it."""

import os
import struct
from hashlib import sha256
from typing import BinaryIO

from specchat.clean import one_line

Value = int | float | bool | str

MAX_TEXT_BYTES = 1 << 26
"""Some files hold a whole tokenizer.json in one text."""
MAX_LIST_ENTRIES = 1 << 21
"""Texts in all lists of a file, and entries of a list that is read; the largest vocabularies have 260,000 tokens and
twice as many merges."""
MAX_HEADER_BYTES = 1 << 28
MAX_KEPT_TEXT_BYTES = 1 << 20
"""Longer texts are skipped: no reader needs them."""
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, ARRAY = 8, 9
_TEXT_HEAD = struct.Struct("<Q")
PADDING_PREFIX = b"[PAD"
"""Start of the texts of tokens that only pad the vocabulary."""
WINDOW_BYTES = 1 << 18
"""Bytes that are read at once."""


class HeaderCursor:
    """Reads a file's bytes forwards; raises ValueError at a premature end or beyond a bound.

    The file is not mapped: one that shrinks meanwhile would end the process.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.at = file, 0
        self.size = os.fstat(file.fileno()).st_size
        self._window, self._begin = b"", 0
        """Bytes of the file, and the offset of the first one."""
        self.texts = MAX_LIST_ENTRIES
        """List texts that may still be read."""
        self.unpadded = 0
        """End of the last list text that is no padding."""

    def bytes_at(self, start: int, size: int) -> bytes:
        """Bytes from anywhere in the file."""
        self._file.seek(start)
        found = self._file.read(size)
        if len(found) < size:
            raise ValueError("it changed while it was read")
        return found

    def take(self, size: int) -> int:
        """Pass `size` bytes; returns the offset of the first one."""
        start = self.at
        if size < 0 or start + size > self.size:
            raise ValueError("it ends in its header")
        if start + size > MAX_HEADER_BYTES:
            raise ValueError(f"its header has more than {MAX_HEADER_BYTES >> 20} MB")
        self.at = start + size
        return start

    def window_offset(self, start: int, size: int) -> int:
        """The offset in the window of bytes that `take` passed."""
        if not self._begin <= start <= start + size <= self._begin + len(self._window):
            self._window = self.bytes_at(start, min(max(size, WINDOW_BYTES), self.size - start))
            self._begin = start
        return start - self._begin

    def number(self, form: str) -> Value:
        size = struct.calcsize(form)
        offset = self.window_offset(self.take(size), size)
        value: Value = struct.unpack_from(form, self._window, offset)[0]
        return value

    def count(self, most: int, what: str, form: str = "<Q") -> int:
        value = self.number(form)
        if not isinstance(value, int) or value > most:
            raise ValueError(f"it says it has {value} {what}")
        return value

    def text(self, most: int = MAX_KEPT_TEXT_BYTES) -> str:
        """Read a text; one of more bytes than `most` is skipped and empty."""
        size = self.count(MAX_TEXT_BYTES, "letters in one text")
        start = self.take(size)
        if size > most:
            return ""
        offset = self.window_offset(start, size)
        return self._window[offset : offset + size].decode("utf-8", "replace")

    def list_head(self) -> tuple[int, int]:
        """The kind and the number of a list's entries, texts within those that may still be read."""
        kind = self.count(TEXT + 4, "as a kind", "<I")
        length = self.count(self.size, "entries in one list")
        if kind == TEXT:
            if (left := self.texts - length) < 0:
                raise ValueError(f"it has a list of {length:,} texts")
            self.texts = left
        elif kind not in SCALARS:
            raise ValueError("it has a list of lists")
        return kind, length

    def skip_list(self) -> int:
        """Skip a list and return its length."""
        kind, length = self.list_head()
        if kind != TEXT:
            self.take(length * struct.calcsize(SCALARS[kind]))
            return length
        at, window, begin, last = self.at, b"", 0, -1
        for _ in range(length):
            if at > last:  # as `count` and `take` do, without their calls
                window, begin = self.bytes_at(at, min(WINDOW_BYTES, self.size - at)), at
                last = at + len(window) - _TEXT_HEAD.size - len(PADDING_PREFIX)
            if at - begin + _TEXT_HEAD.size > len(window):
                raise ValueError("it ends in its header")
            (size,) = _TEXT_HEAD.unpack_from(window, at - begin)
            if size > MAX_TEXT_BYTES:
                raise ValueError(f"it says it has {size} letters in one text")
            is_padding = size >= len(PADDING_PREFIX) and window.startswith(PADDING_PREFIX, at - begin + _TEXT_HEAD.size)
            at += _TEXT_HEAD.size + size
            if at > self.size or at > MAX_HEADER_BYTES:
                self.take(at - self.at)
            if not is_padding:
                self.unpadded = at
        self.at = at
        return length

    def entries(self, key: str) -> list[Value]:
        kind, length = self.list_head()
        if kind == TEXT:
            return [self.text(MAX_TEXT_BYTES) for _ in range(length)]
        if length > MAX_LIST_ENTRIES:
            raise ValueError(f"its {one_line(key, 60)} has {length:,} entries")
        form = SCALARS[kind]
        size = length * struct.calcsize(form)
        return [*struct.unpack(f"<{length}{form[1:]}", self.bytes_at(self.take(size), size))]

    def digest(self, start: int, end: int) -> str:
        """SHA-256 of bytes of the file."""
        digest = sha256()
        for at in range(start, end, WINDOW_BYTES):
            digest.update(self.bytes_at(at, min(WINDOW_BYTES, end - at)))
        return digest.hexdigest()
