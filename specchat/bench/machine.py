"""Describes the machine of a measurement."""

import os
import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path


def describe(packages: Sequence[str]) -> str:
    """One line: date, processor, cores, versions of `packages`."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    model = next(
        (line.split(":")[1].strip() for line in text.splitlines() if "model name" in line), platform.processor()
    )
    flags = "AVX-512" if "avx512f" in text else "AVX2" if "avx2" in text else "no AVX2"
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{date.today()}, {model}, {os.cpu_count()} cores, {flags}; Python {platform.python_version()}, {versions}"
