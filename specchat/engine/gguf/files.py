"""The files of a GGUF model, which may be split, and their metadata."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from specchat.clean import one_line
from specchat.engine.errors import ModelError
from specchat.engine.files import found
from specchat.engine.gguf.cursor import Value
from specchat.engine.gguf.header import Header, StoredTensor, no_gguf, read_header

PART_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
"""File name of one part of a split model."""
MAGIC = b"GGUF"


def file_parts(file: Path) -> list[Path]:
    """All files of the model that `file` belongs to, in order."""
    if (split := PART_NAME.fullmatch(file.name)) is None:
        return [file]
    name, count = split[1], int(split[3])
    return [file.with_name(f"{name}-{part:05}-of-{count:05}.gguf") for part in range(1, count + 1)]


def first_part(file: Path) -> Path:
    """The file that llama.cpp opens for the model that `file` belongs to.

    Raises:
        ModelError: the file or another part is missing, or it is no GGUF file.
    """
    if not found(file):
        raise ModelError(f"{file} is missing. Give the .gguf file of the model.")
    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            raise no_gguf(file)
    files = file_parts(file)
    if missing := [part.name for part in files if not found(part)]:
        raise ModelError(
            f"{file}: {len(missing)} of {len(files)} parts are missing ({missing[0]}). Download all parts."
        )
    return files[0]


@dataclass(frozen=True)
class Stamp:
    """The state of a file, by which a change shows."""

    size: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> "Stamp | None":
        """The state of a file now; None where there is none."""
        try:
            now = os.stat(path)
        except OSError:
            return None
        return cls(now.st_size, now.st_mtime_ns)


def check_unchanged(path: Path, stamp: Stamp | None) -> None:
    """Check that a mapped file is as it was: reading what a shorter one no longer has ends the process.

    Raises:
        ModelError: it changed.
    """
    if Stamp.of(path) != stamp:
        raise ModelError(f"{path} changed while it was read. Load the model again.")


@dataclass(frozen=True)
class GgufFiles:
    """A model in one file or more, of which the first has the metadata.

    Attributes:
        headers: of each file.
        stamps: of each file, taken before its header was read.
    """

    headers: tuple[Header, ...]
    stamps: tuple[Stamp | None, ...]

    @classmethod
    def open(cls, file: Path) -> "GgufFiles":
        """Read the headers of all parts of the model that `file` belongs to.

        Raises:
            ModelError: a part is missing, damaged, cut off or of another model, or the file holds no model.
        """
        paths = file_parts(first_part(file))
        stamps = tuple(map(Stamp.of, paths))
        files = cls(tuple(map(read_header, paths)), stamps)
        kind = files.values.get("general.type", "model")
        if kind != "model":
            raise ModelError(f"{file} holds no model but {one_line(str(kind), 40)} for one.")
        for number, header in enumerate(files.headers):
            stated = header.values.get("split.no", number), header.values.get("split.count", len(paths))
            if stated != (number, len(paths)):
                raise ModelError(f"{header.path} is not part {number + 1} of {len(paths)}. Download all parts again.")
        held = sum(len(header.tensors) for header in files.headers)
        if held != len(files.tensors) or files.values.get("split.tensors.count", held) != held:
            raise ModelError(f"{file}: its parts are of different models. Download all parts again.")
        return files

    @property
    def path(self) -> Path:
        """The first file."""
        return self.headers[0].path

    @property
    def values(self) -> Mapping[str, Value]:
        """The metadata but for lists."""
        return self.headers[0].values

    @property
    def architecture(self) -> str:
        return self.headers[0].architecture

    @cached_property
    def tensors(self) -> dict[str, tuple[int, StoredTensor]]:
        """The number of its file and the tensor, by name."""
        return {
            name: (number, tensor)
            for number, header in enumerate(self.headers)
            for name, tensor in header.tensors.items()
        }

    def holds(self, name: str) -> bool:
        """True where there is a tensor or a list of the metadata of this name."""
        return name in self.tensors or name in self.headers[0].lengths

    @cached_property
    def sections(self) -> list[int]:
        """Rotations of a head by positions of several kinds; empty where positions are of one."""
        keys = (f"{self.architecture}.rope.{name}" for name in ("dimension_sections", "mrope_section"))
        listed = next(filter(None, map(self.headers[0].entries, keys)), [])
        found = [one for one in listed if isinstance(one, int) and one]
        return found if len(found) > 1 else []

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; empty where there is none."""
        return self.tensors[name][1].shape if name in self.tensors else ()

    def floats(self, name: str) -> list[float]:
        """The values of a short vector of float32; empty where there is none.

        Raises:
            ModelError: it is of another type, or the file changed.
        """
        return self.headers[self.tensors[name][0]].floats(name) if name in self.tensors else []
