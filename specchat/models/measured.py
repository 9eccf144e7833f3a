"""The last measurements of `specchat check --activations` on this machine: the price of rows in 8 bits."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specchat import private
from specchat.config.errors import ConfigError
from specchat.config.paths import made_folder
from specchat.reading import read_text

MAX_MODELS = 200
"""Models that are kept."""


@dataclass(frozen=True)
class MeasuredRounding:
    """Mean KL divergence in nats to float32 rows, share of tokens with the same likeliest one, and the day."""

    divergence: float
    alike: float
    tokens: int
    day: str

    def __str__(self) -> str:
        shares = f"same likeliest token {self.alike:.1%} of {self.tokens}"
        return f"KL divergence {self.divergence:.1e} nats to float32, {shares} (measured {self.day})"


def keep(file: Path, model: str, found: MeasuredRounding) -> None:
    """Keep the latest figures of a model, by its label; without effect where the file cannot be written."""
    others = {name: one for name, one in _read(file).items() if name != model}
    latest = dict([*others.items(), (model, asdict(found))][-MAX_MODELS:])
    with suppress(OSError, ConfigError):
        made_folder(file.parent)
        private.replace(file, json.dumps(latest))


def known(file: Path, model: str) -> MeasuredRounding | None:
    """The latest figures of a model; None where there are none or they are damaged."""
    try:
        found = MeasuredRounding(**_read(file)[model])
        str(found)
    except (KeyError, TypeError, ValueError):
        return None
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
