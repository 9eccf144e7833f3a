"""ctrl+c as a wish: the first is noted, so that what is under way can end well; the second ends it at once."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Notes SIGINT inside its `with` block."""

    def __init__(self) -> None:
        self.pressed = False
        self._then: Callable[[], None] = lambda: None
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def then(self, act: Callable[[], None]) -> None:
        """Set a further effect of the first ctrl+c."""
        self._then = act

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        self._then()
