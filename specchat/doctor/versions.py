"""Versions of specchat, Python, the packages it stands on, and SQLite."""

import json
import platform
import sqlite3
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from specchat import __version__
from specchat.doctor.finding import Finding, note, ok, problem

NEEDED = (
    "textual",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "jinja2",
    "numpy",
    "regex",
    "platformdirs",
    "click",
    "pydantic",
)
SOMETIMES = ("numba", "triton", "bitsandbytes", "nvidia-ml-py", "llama-cpp-python", "gguf", "matplotlib")
"""Not on every platform, or extras."""

ROOT = Path(__file__).parents[2]
"""The checkout, where specchat runs from one."""
GIT_S = 10.0


def installed(package: str) -> str | None:
    """The version of an installed package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit(root: Path = ROOT) -> str:
    """The commit that specchat was installed from, or that is checked out at `root`; empty where neither is known."""
    with suppress(PackageNotFoundError, ValueError, KeyError, TypeError):
        written = json.loads(distribution("specchat").read_text("direct_url.json") or "{}")
        return str(written["vcs_info"]["commit_id"])
    if not (root / ".git").exists():
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        command = ("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True)
        return done.stdout.strip()
    return ""


def versions() -> list[Finding]:
    machine = f"{platform.system()} {platform.machine()}"
    found = {name: installed(name) for name in (*NEEDED, *SOMETIMES)}
    listed = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    missing = [name for name in NEEDED if found[name] is None]
    return [
        ok("specchat", __version__),
        ok("python", f"{platform.python_version()} on {machine}, {sys.executable}"),
        problem("packages", f"{', '.join(missing)} missing. Install specchat again with pip.")
        if missing
        else ok("packages", listed),
        sqlite(),
    ]


def sqlite() -> Finding:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    except sqlite3.OperationalError:
        return note("sqlite", f"{sqlite3.sqlite_version} without FTS5: kept chats cannot be searched by their words.")
    finally:
        connection.close()
    return ok("sqlite", f"{sqlite3.sqlite_version} with FTS5")
