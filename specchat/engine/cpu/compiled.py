"""What is compiled for the processor at hand, and where it is kept.

numba keeps what it compiled in files: beside the sources, or in the folder that NUMBA_CACHE_DIR names. They are for
this processor and these sources alone; whatever is wrong with them, they are made again.
"""

import importlib
import logging
import os
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

PASSES = "specchat.engine.cpu.passes"
NEEDED = ("fma", "f16c")
"""What an x86 processor must have: without it, single operations become calls."""


@cache
def unavailable() -> str:
    """Why models cannot run compiled here, in a sentence; empty where they can."""
    try:
        import numba  # noqa: F401
        from llvmlite import binding
    except ImportError as error:
        return f"numba cannot be imported ({error})"
    features = binding.get_host_cpu_features()
    missing = [name for name in NEEDED if name in features and not features[name]]
    if missing:
        return f"the processor lacks {' and '.join(missing)}"
    try:
        importlib.import_module(PASSES)
    except Exception:
        anew()
        try:
            importlib.import_module(PASSES)
        except Exception as error:
            logging.getLogger(__name__).warning("the pass does not compile", exc_info=True)
            return f"the pass does not compile ({type(error).__name__})"
    return ""


def cold() -> bool:
    """Whether everything is to be compiled first, which takes seconds."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return bool(folder) and not (Path(str(folder)) / _digest()).exists()


def anew() -> None:
    """Compile from here on without the files that there are, and keep nothing."""
    logging.getLogger(__name__).warning("what was compiled before cannot be used", exc_info=True)
    _temporary.append(tempfile.TemporaryDirectory(prefix="specchat-"))
    _keep_in(_temporary[-1].name)


_temporary: list[tempfile.TemporaryDirectory[str]] = []


@cache
def use_folder() -> None:
    """Keep what is compiled in the folder that NUMBA_CACHE_DIR names, apart from what other sources were made into."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if not folder:
        return
    own = Path(folder) / _digest()
    try:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=own):
            pass
    except OSError:
        anew()
    else:
        _keep_in(str(own))


def _keep_in(folder: str) -> None:
    config: Any = importlib.import_module("numba").config
    config.CACHE_DIR = folder


def _digest() -> str:
    """Of the sources: numba looks at one file of those that a function is made of."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
