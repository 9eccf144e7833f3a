"""llama.cpp by way of llama-cpp-python: asked for by name where it is missing, and silent where it is there."""

import ctypes
import logging
from collections import deque
from functools import cache
from types import ModuleType

from specchat.clean import one_line
from specchat.engine.errors import EngineError

INSTALL = 'pip install "specchat[gguf]"'
ERROR, CONTINUED = 4, 5
"""Two of llama.cpp's levels: an error, and more of the line before."""


class Told:
    """The last errors that llama.cpp told of."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=8)
        self._level = 0

    def take(self, level: int, text: bytes, _: object) -> None:
        """One piece of llama.cpp's log."""
        self._level = self._level if level == CONTINUED else level
        words = text.decode("utf-8", "replace").strip()
        if self._level == ERROR and words:
            self._lines.append(words)
            logging.getLogger(__name__).info("llama.cpp: %s", words)

    def forget(self) -> None:
        self._lines.clear()

    def reason(self) -> str:
        """The first error since `forget`, which is the cause of those after it, in a line; "" without any."""
        if not self._lines:
            return ""
        words = one_line(self._lines[0]).removeprefix("llama_model_load: ")
        return words.removeprefix("error loading model: ").rstrip(".")


TOLD = Told()


@cache
def llama() -> ModuleType:
    """The package llama_cpp, which from now on says nothing on its own.

    Raises:
        EngineError: "config": it is not installed, or its library cannot be loaded.
    """
    try:
        import llama_cpp
    except ImportError:
        raise EngineError(
            "config", f"GGUF files need the package llama-cpp-python, which is not installed: {INSTALL}."
        ) from None
    except (OSError, RuntimeError) as error:
        raise EngineError(
            "config", f"llama-cpp-python cannot be used ({one_line(str(error))}). Install it again: {INSTALL}."
        ) from None
    package: ModuleType = llama_cpp
    # The package keeps no reference to a callback, and neither does llama.cpp.
    llama.callback = package.llama_log_callback(TOLD.take)  # type: ignore[attr-defined]
    package.llama_log_set(llama.callback, ctypes.c_void_p(0))  # type: ignore[attr-defined]
    package.llama_backend_init()
    return package
