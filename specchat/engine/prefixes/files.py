"""Parts of long texts on disk, in files that only this user may read: from one start of an engine to the next.

A file has MAGIC, the length of a header in JSON, the header, token ids, entries and tail, and a digest of all that.
It is written under another name and moved, so it is whole or not there. Files that cannot be used are removed.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b, sha256
from io import BufferedReader
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import torch

from specchat import private
from specchat.engine.prefixes.entries import PackedCopies, Shape, bytes_of
from specchat.engine.prefixes.on_disk import MAGIC, SUFFIX, UNKNOWN, UnusableFile, header_of, part_files, used_at
from specchat.engine.prefixes.parts import PartForm, TextPart

DIGEST = 16
"""Bytes of a digest."""
MOST_TOKENS = 1 << 24
PIECE = 16 << 20
"""Bytes that are written at a time."""
ROOM = 1 << 30
"""Bytes that stay free on the disk."""
ABANDONED_S = 3600.0
"""Seconds after which a file that nobody has finished is removed."""


class PartFiles:
    """The files of one model's parts, among those of all models in a folder, which are bounded in all."""

    def __init__(self, folder: Path, identity: str, limit: int) -> None:
        """`identity` stands for a model, its form and the program; `limit`: bytes of all files in `folder`."""
        self._folder, self.limit = folder, limit
        self._identity = sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def found(self) -> list[TextPart]:
        """The parts that are there, the latest last, in files alone."""
        parts = list[TextPart]()
        for path in sorted(part_files(self._folder), key=used_at):
            if path.name.startswith("."):
                if time.time() - used_at(path) > ABANDONED_S:
                    path.unlink(missing_ok=True)
            elif path.name.startswith(self._identity):
                try:
                    with open(path, "rb") as file:
                        parts.append(self._described(file, path))
                except (OSError, ValueError, UnusableFile) as error:
                    _remove(path, error)
        return parts

    def load(self, part: TextPart) -> bool:
        """Read a part's entries and tail; False if it cannot be used, or memory ran out."""
        assert part.file is not None
        try:
            with open(part.file, "rb") as file:
                hashed = blake2b(digest_size=DIGEST)
                described = self._described(file, part.file, hashed)
                if (described.token_ids, described.first) != (part.token_ids, part.first):
                    raise UnusableFile("it has another text")
                rows, ends = (_read(file, shapes, hashed) for shapes in (described.form.rows, described.form.ends))
                if file.read(DIGEST + 1) != hashed.digest():
                    raise UnusableFile("it is damaged")
            os.utime(part.file)
        except (OSError, ValueError, MemoryError, RuntimeError, UnusableFile) as error:
            _remove(part.file, error)
            return False
        part.form, part.rows = described.form, rows
        part.ends = None if part.form.numbers is None else ends
        return True

    def save(self, part: TextPart, stop: Callable[[], bool]) -> bool:
        """Write a part; False if `stop` says so meanwhile, or the disk does not take it."""
        tokens = np.array(part.token_ids, "<i4").tobytes()
        assert part.rows is not None
        name = blake2b(tokens + part.first.to_bytes(8, "little"), digest_size=DIGEST).hexdigest()
        path, wholes = self._folder / f"{self._identity}-{name}{SUFFIX}", [part.rows.whole]
        if part.ends is not None:
            wholes.append(part.ends.whole)
        header = json.dumps([self._identity, len(part.token_ids), part.first, part.owners, *part.form]).encode()
        head = bytearray(MAGIC + len(header).to_bytes(8, "little") + header + tokens)
        partial = ""
        try:
            self._folder.mkdir(mode=private.FOLDER, parents=True, exist_ok=True)
            private.tighten(self._folder)
            self._trim(part.size)
            if shutil.disk_usage(self._folder).free < part.size + ROOM:
                raise OSError("the disk is almost full")
            with NamedTemporaryFile(dir=self._folder, prefix=".", suffix=SUFFIX, delete=False) as file:
                partial, hashed = file.name, blake2b(digest_size=DIGEST)
                for piece in _pieces([torch.frombuffer(head, dtype=torch.uint8), *wholes]):
                    if stop():
                        return False
                    hashed.update(piece)
                    file.write(piece)
                file.write(hashed.digest())
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            part.file, partial = path, ""
            return True
        except OSError as error:
            logging.getLogger(__name__).warning("what was read is not written to %s: %s", self._folder, error)
        finally:
            if partial:
                Path(partial).unlink(missing_ok=True)
        return False

    def _described(self, file: BufferedReader, path: Path, hashed: Any = None) -> TextPart:
        """The part that a file begins with.

        Raises:
            UnusableFile, ValueError: it is none of this model.
        """
        begin, header = header_of(file)
        try:
            identity, count, first, owners, *form = json.loads(header)
            rows, ends = (tuple((str(kind), tuple(map(int, sizes))) for kind, sizes in shapes) for shapes in form[:2])
            numbers = None if form[2] is None else tuple(map(int, form[2]))
            form_of, sizes = (
                PartForm(rows, ends, numbers, form[3:] == [True]),
                [size for _, sizes in (*rows, *ends) for size in sizes],
            )
            size = len(begin) + len(header) + 4 * count + form_of.size + DIGEST
            if not 0 <= first <= count <= MOST_TOKENS or min(sizes, default=0) < 0:
                raise UnusableFile("its numbers cannot be")
        except (TypeError, IndexError, AttributeError, KeyError):
            raise UnusableFile("its header cannot be read") from None
        tokens = file.read(4 * count)
        shares = {str(owner): count for owner in owners or [UNKNOWN]}
        described = TextPart(np.frombuffer(tokens, "<i4").tolist(), first, form_of, file=path, shares=shares)
        if identity != self._identity or os.fstat(file.fileno()).st_size != size:
            raise UnusableFile("it is cut, or of another model")
        if hashed is not None:
            hashed.update(begin + header + tokens)
        return described

    def _trim(self, size: int) -> None:
        """Remove the files that were used least recently, for `size` bytes more."""
        files = [(path, path.stat().st_size) for path in sorted(part_files(self._folder), key=used_at)]
        over = sum(taken for _, taken in files) + size - self.limit
        for path, taken in files:
            if over > 0:
                path.unlink(missing_ok=True)
                over -= taken


def _pieces(wholes: Sequence[torch.Tensor]) -> "Iterator[memoryview[int]]":
    for whole in wholes:
        view: memoryview[int] = whole.numpy().data
        yield from (view[first : first + PIECE] for first in range(0, len(view), PIECE))


def _read(file: BufferedReader, shapes: Sequence[Shape], hashed: Any) -> PackedCopies:
    packed = PackedCopies(torch.empty(bytes_of(shapes), dtype=torch.uint8), shapes)
    for piece in _pieces([packed.whole]):
        if file.readinto(piece) != len(piece):
            raise UnusableFile("it is cut")
        hashed.update(piece)
    return packed


def _remove(path: Path, error: Exception) -> None:
    if not isinstance(error, ValueError | UnusableFile):  # it may be good another time
        return
    logging.getLogger(__name__).warning("%s is removed: %s", path, error)
    with suppress(OSError):
        path.unlink()
