"""Compilation for the processor at hand, and the cache of compiled code.

numba keeps compiled code in files, in a subfolder of these sources: in the folder that NUMBA_CACHE_DIR names, else in
the user's cache. The files fit this processor and these sources alone. Files that cannot be used are made again.
"""

import importlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from specchat.engine import leash

PASSES, CHOICE = "specchat.engine.cpu.decoder", "specchat.engine.cpu.drafting.choice"
"""Modules that are compiled when imported."""
_FIRST = ("specchat.engine.cpu.layers.passes", "specchat.engine.cpu.layers.attention")
"""Modules compiled in this process while `compile_rest` compiles the others."""
STEPS = 891
"""numba's passes over what this process compiles for a pair, with an empty cache."""
_ROOMS = ("cpu", "formats", "memory", "model", "recipe", "kernels/streams.py")
"""The engine's folders and files of which compiled functions take code or constants."""
_SOURCES = tuple(Path(__file__).parents[1] / name for name in _ROOMS)
PATIENCE_S = 60.0
"""Longest wait for the process of `compile_rest`; then this process compiles the rest too."""
NEEDED = ("fma", "f16c")
"""Features that an x86 processor must have: without them, single operations become calls."""


def likely_available() -> bool:
    """Return True if models likely run compiled here, at once; `unavailable` is certain but slow."""
    return find_spec("numba") is not None


@cache
def share_compilation() -> None:
    """Compile in two processes if the cache is empty and can be written; call this early.

    `unavailable` waits for the other process.
    """
    kept = _folder()
    if not likely_available() or (os.cpu_count() or 1) < 2 or next(kept.rglob("*.nbi"), None) or not _writable(kept):
        return
    start = (
        f"import sys; sys.path[:] = {sys.path!r}; from specchat.engine.cpu.compiled import compile_rest; compile_rest()"
    )
    with suppress(OSError):
        helper = subprocess.Popen([sys.executable, "-P", "-c", start], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        _helpers.append(helper)


_helpers: list["subprocess.Popen[bytes]"] = []


def compile_rest() -> None:
    """Compile all that the passes do not wait for into the cache, in a process that ends with its parent.

    numba compiles in one thread at a time.
    """
    leash.hold(0)
    for module in ("drafting.chain", "threads.dispatch"):
        importlib.import_module(f"specchat.engine.cpu.{module}")
    products, tiles = (
        importlib.import_module(f"specchat.engine.cpu.products.{name}") for name in ("products", "tiles")
    )
    products.kernels(tiles.FLOAT16)  # weights of the demo pair, which loads first


def _end_sharing() -> None:
    """Wait for the other process, so that its compiled code is read here."""
    while _helpers:
        helper = _helpers.pop()
        with helper:  # its standard input stays open while this process lives
            try:
                helper.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                helper.kill()


@cache
def unavailable(module: str = PASSES) -> str:
    """Reason why a module, by default the models', cannot run compiled here, in a sentence; empty if it can."""
    try:
        import numba  # noqa: F401
        from llvmlite import binding
    except (ImportError, OSError, RuntimeError) as error:
        return f"numba cannot be imported ({error})"
    features = binding.get_host_cpu_features()
    missing = [name for name in NEEDED if name in features and not features[name]]
    if missing:
        return f"the processor lacks {' and '.join(missing)}"
    try:
        if module == PASSES:
            for first in _FIRST:
                importlib.import_module(first)
        _end_sharing()
        importlib.import_module(module)
    except Exception:
        discard_cache("what was compiled before cannot be used")
        try:
            importlib.import_module(module)
        except Exception as error:
            logging.getLogger(__name__).warning("the pass does not compile", exc_info=True)
            return f"the pass does not compile ({type(error).__name__})"
    return ""


@contextmanager
def reporting(notify: Callable[[float], None]) -> Iterator[None]:
    """Call `notify` at each step of a compilation in this context, never for cached code.

    It gets the estimated share of the time that is over: the last steps, of the largest functions, take longest.
    """
    steps = 0
    try:
        event: Any = importlib.import_module("numba.core.event")
    except (ImportError, OSError, RuntimeError):
        yield
        return

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: object) -> None:
            nonlocal steps
            steps += 1
            notify(min(1.0, (steps / STEPS) ** 3))

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:run_pass", Listener()):
        yield


def discard_cache(why: str) -> None:
    """Compile from here on without the cached files: in an empty folder, or without a cache."""
    logging.getLogger(__name__).warning(why, exc_info=sys.exc_info()[0] is not None)
    now = Path(importlib.import_module("numba").config.CACHE_DIR)
    if now.name == _digest():
        shutil.rmtree(now, ignore_errors=True)
        if _writable(now):
            return
    _uncached.append(why)


def caches_code() -> bool:
    """Return True if code compiled from here on is kept in files."""
    return not _uncached


_uncached: list[str] = []
"""Reasons why nothing can be kept in files."""


@cache
def use_folder() -> None:
    """Keep compiled code in a subfolder of these sources."""
    own = _folder()
    if _writable(own):
        importlib.import_module("numba").config.CACHE_DIR = str(own)
    else:
        discard_cache("the cache folder cannot be written")


def _writable(folder: Path) -> bool:
    """Make the folder if it is missing; return True if it takes a file."""
    try:
        for part in (*reversed(folder.parents), folder):
            part.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _folder() -> Path:
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return (Path(folder) if folder else user_cache_path("specchat") / "compiled") / _digest()


def _digest() -> str:
    """Digest of all sources: numba checks only one file of those that a function is made of."""
    sources = [file for room in _SOURCES for file in (sorted(room.rglob("*.py")) if room.is_dir() else [room])]
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
