"""Bounds of the shelf, as the environment says them, and the identity of what it holds."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from specchat import __version__
from specchat.engine.fetch.file_state import file_state
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import ReadTexts

MEMORY, DISK, FOLDER = "SPECCHAT_KEEP_READ", "SPECCHAT_KEEP_READ_ON_DISK", "SPECCHAT_READ_FOLDER"
DEFAULTS = {MEMORY: "2 GiB", DISK: "4 GiB"}
PROGRAMS = "torch", "numba", "llvmlite", "triton"
"""Packages that compile or compute passes."""
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def bounds(environ: Mapping[str, str] = os.environ) -> ReadTexts:
    """The bounds of the environment; one that cannot be read counts as not set. Without a folder nothing is on disk."""
    memory, disk = (_read(environ, name) for name in (MEMORY, DISK))
    folder = environ.get(FOLDER) if memory and disk else None
    return ReadTexts(memory, disk, folder) if folder else ReadTexts(memory)


def identity(pair: PairSpec, *words: str) -> str:
    """All that the entries of a pair's caches depend on: files, settings, programs, and `words` about the machine."""
    from importlib.metadata import version  # here, so that reading config.toml needs none of it

    settings = repr(replace(pair, id="", name="", template={}, context=None, long_context=False))
    programs = [f"{name} {version(name)}" for name in PROGRAMS if find_spec(name)]
    return "\n".join((__version__, *programs, file_state(pair), settings, *words))


def bytes_in(size: str) -> int:
    """Bytes of a size like "2 GiB", "512 MiB" or "0".

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT]iB|B|)", size.strip(), re.IGNORECASE | re.ASCII)
    if found is None:
        raise ValueError(f'should be a size like "2 GiB" or "512 MiB", or "0", not {size[:40]!r}.')
    return int(float(found[1]) * UNITS[found[2].upper()])


def _read(environ: Mapping[str, str], name: str) -> int:
    try:
        return bytes_in(environ.get(name) or DEFAULTS[name])
    except ValueError:
        return bytes_in(DEFAULTS[name])
