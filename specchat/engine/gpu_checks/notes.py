"""The figures of one check, written at once, so that a killed check leaves them."""

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
    """Rows of figures, and sentences on faults; both are written to a folder at once, unless it is None.

    `demo` is the folder of the embedded models.
    """

    out: Path | None = None
    demo: Path = Path()
    rows: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def row(self, **figures: Any) -> None:
        """Note figures by name; infinity and NaN as text, which JSON lacks."""
        figures = {name: _encodable(figure) for name, figure in figures.items()}
        self.rows.append(figures)
        if self.out is not None:
            with (self.out / ROWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures, allow_nan=False) + "\n")

    def expect(self, right: bool, words: str) -> None:
        """Note `words` as a fault unless `right`; the check continues."""
        if not right:
            self.wrong.append(words)
            if self.out is not None:
                (self.out / WRONGS).write_text(json.dumps(self.wrong), encoding="utf-8")

    def within(self, what: str, error: float, allowed: float, **figures: Any) -> None:
        """Note an error and expect at most `allowed`; NaN is a fault."""
        self.row(what=what, **figures, error=error, allowed=allowed)
        self.expect(error <= allowed, f"{what}: off by {error:.2g}, and {allowed:.2g} is allowed")


def _encodable(figure: Any) -> Any:
    return str(figure) if isinstance(figure, float) and not isfinite(figure) else figure


Check = Callable[[Notes], None]
