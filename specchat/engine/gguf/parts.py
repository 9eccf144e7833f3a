"""The files of a GGUF model that is split."""

import re
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.files import found
from specchat.engine.gguf.header import no_gguf

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
