"""Tools that Triton builds its driver module with: a C compiler, Python's headers, ldconfig.

The doctor imports this, so torch and Triton are not imported here.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/version")
"""The driver's version on Linux, also visible in a container without nvidia-smi."""
LDCONFIG = Path("/sbin/ldconfig")
"""Triton finds the driver's library with it."""


def compiler(environ: Mapping[str, str] = os.environ, which: Callable[[str], str | None] = shutil.which) -> str | None:
    """The C compiler that Triton takes: what CC names, else gcc, else clang; None where it is missing."""
    named = environ.get("CC")
    return which(named) if named is not None else which("gcc") or which("clang")


def header() -> Path:
    """Expected path of Python.h of this Python."""
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme names a folder without its headers; Triton replaces it likewise.
    paths = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)
    return Path(paths["include"]) / "Python.h"


def unsupported(
    environ: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
    python_h: Path | None = None,
    ldconfig: Path = LDCONFIG,
) -> str:
    """Missing tool and how to get it, in words; empty when nothing is missing."""
    python_h = python_h or header()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if compiler(environ, which) is None:
        if (named := environ.get("CC")) is not None:
            return f"CC names {named!r}, which is not there (unset CC, or install that compiler)"
        return 'no C compiler is found (install gcc, for example with "apt install gcc")'
    if not python_h.is_file():
        return (
            f"{python_h} is missing (install the headers of Python {version}, for example with "
            f'"apt install python{version}-dev")'
        )
    if not ldconfig.is_file() and "TRITON_LIBCUDA_PATH" not in environ:
        return f"{ldconfig} is missing (set TRITON_LIBCUDA_PATH to the folder of libcuda.so.1)"
    return ""
