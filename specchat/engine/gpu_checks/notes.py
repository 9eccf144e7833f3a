"""The figures of one check, written as they come: a check that is killed leaves those it had."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from specchat.engine.gpu_checks import ROWS, WRONGS


class Unavailable(Exception):
    """The check cannot run here, with the reason in words."""


@dataclass
class Notes:
    """Rows of figures and sentences on what is wrong; a folder gets both as they come, None keeps them here.

    `demo` is the folder of the embedded models.
    """

    out: Path | None = None
    demo: Path = Path()
    rows: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def row(self, **figures: Any) -> None:
        """Note figures by name; one that is infinite or not a number as its name, since JSON has none for it."""
        figures = {name: _told(figure) for name, figure in figures.items()}
        self.rows.append(figures)
        if self.out is not None:
            with (self.out / ROWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures, allow_nan=False) + "\n")

    def expect(self, right: bool, words: str) -> None:
        """Note `words` as wrong unless `right`; the check goes on."""
        if not right:
            self.wrong.append(words)
            if self.out is not None:
                (self.out / WRONGS).write_text(json.dumps(self.wrong), encoding="utf-8")

    def within(self, what: str, error: float, allowed: float, **figures: Any) -> None:
        """Note an error and expect it to be at most `allowed`; not a number is too much."""
        self.row(what=what, **figures, error=error, allowed=allowed)
        self.expect(error <= allowed, f"{what}: off by {error:.2g}, and {allowed:.2g} is allowed")


def _told(figure: Any) -> Any:
    return str(figure) if isinstance(figure, float) and not isfinite(figure) else figure


Check = Callable[[Notes], None]
