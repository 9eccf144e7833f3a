"""Loads llama.cpp through llama-cpp-python, and collects its errors instead of printing them."""

import ctypes
import logging
from collections import deque
from functools import cache
from types import ModuleType

from specchat.clean import one_line
from specchat.engine.errors import EngineError
from specchat.installing import install_command

PACKAGE = "specchat[gguf]"
"""The package to install; it brings both that GGUF files need."""
ERROR, CONTINUED = 4, 5
"""Two of llama.cpp's log levels: an error, and a continuation of the line before."""


class ErrorLog:
    """llama.cpp's last errors."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=8)
        self._level = 0

    def receive(self, level: int, text: bytes, _: object) -> None:
        """Receive a piece of llama.cpp's log."""
        self._level = self._level if level == CONTINUED else level
        words = text.decode("utf-8", "replace").strip()
        if self._level == ERROR and words:
            self._lines.append(words)
            logging.getLogger(__name__).info("llama.cpp: %s", words)

    def clear(self) -> None:
        self._lines.clear()

    def reason(self) -> str:
        """The first error since `clear`, which causes the later ones, in one line; "" without any."""
        if not self._lines:
            return ""
        words = one_line(self._lines[0]).removeprefix("llama_model_load: ")
        return words.removeprefix("error loading model: ").rstrip(".")


ERRORS = ErrorLog()


@cache
def llama() -> ModuleType:
    """The package llama_cpp, silenced.

    Raises:
        EngineError: "config": it is not installed, or its library cannot be loaded.
    """
    try:
        import llama_cpp
    except ImportError:
        raise EngineError(
            "config",
            f"GGUF files need the package llama-cpp-python, which is not installed: {install_command(PACKAGE)}.",
        ) from None
    except (OSError, RuntimeError) as error:
        raise EngineError(
            "config",
            f"llama-cpp-python cannot be used ({one_line(str(error))}). Install it again: {install_command(PACKAGE)}.",
        ) from None
    package: ModuleType = llama_cpp
    # The package keeps no reference to a callback, and neither does llama.cpp.
    llama.callback = package.llama_log_callback(ERRORS.receive)  # type: ignore[attr-defined]
    package.llama_log_set(llama.callback, ctypes.c_void_p(0))  # type: ignore[attr-defined]
    package.llama_backend_init()
    return package
