"""How much of what was read is held, as the environment says it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MEMORY, DISK, FOLDER = "SPECCHAT_KEEP_READ", "SPECCHAT_KEEP_READ_ON_DISK", "SPECCHAT_READ_FOLDER"
DEFAULTS = {MEMORY: "2 GiB", DISK: "4 GiB"}
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


@dataclass(frozen=True)
class Bounds:
    """Bytes in main memory, and on disk in `folder`; None: nothing goes there."""

    memory: int
    disk: int = 0
    folder: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> "Bounds":
        """The bounds of the environment; what cannot be read there counts as not set."""
        memory, disk = (_read(environ, name) for name in (MEMORY, DISK))
        folder = environ.get(FOLDER)
        return cls(memory, disk, Path(folder) if folder and memory and disk else None)


def bytes_in(size: str) -> int:
    """Bytes of a size like "2 GiB", "512 MiB" or "0".

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT]iB|B|)", size.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f'should be a size like "2 GiB" or "512 MiB", or "0", not {size[:40]!r}.')
    return int(float(found[1]) * UNITS[found[2].upper()])


def _read(environ: Mapping[str, str], name: str) -> int:
    try:
        return bytes_in(environ.get(name) or DEFAULTS[name])
    except ValueError:
        return bytes_in(DEFAULTS[name])
