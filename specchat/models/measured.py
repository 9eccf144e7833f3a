"""The last measurements of `specchat check --activations` on this machine: the price of rounded rows."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specchat import private
from specchat.config.errors import ConfigError
from specchat.config.paths import made_folder
from specchat.engine.protocol.pair import Activations
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


def keep(file: Path, model: str, found: Mapping[Activations, MeasuredRounding]) -> None:
    """Keep the latest figures of a model, by its label; without effect where the file cannot be written."""
    others = {name: one for name, one in _read(file).items() if name != model}
    latest = dict([*others.items(), (model, {form: asdict(one) for form, one in found.items()})][-MAX_MODELS:])
    with suppress(OSError, ConfigError):
        made_folder(file.parent)
        private.replace(file, json.dumps(latest))


def known(file: Path, model: str) -> Mapping[Activations, MeasuredRounding]:
    """The latest figures of a model by the form of its rows; empty where there are none or they are damaged."""
    try:
        found = {form: MeasuredRounding(**one) for form, one in _read(file)[model].items()}
        str([*map(str, found.values())])
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
