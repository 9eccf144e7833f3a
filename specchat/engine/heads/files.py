"""Contents of a folder of published heads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.engine.model.checkpoint import weight_files
from specchat.engine.model.files import found, read_json, stored_values

MEDUSA = "medusa_lm_head.safetensors"
"""Medusa's own name for its weights."""


@dataclass(frozen=True)
class HeadFiles:
    """Files of a head; `model.weights.Weights` reads their tensors. `settings` are those of config.json."""

    folder: Path
    settings: dict[str, Any]
    shards: tuple[Path, ...]
    quant: None = None

    @classmethod
    def open(cls, folder: Path) -> "HeadFiles":
        """Read the settings in `folder`, and find the weights.

        Raises:
            ModelError: files missing, damaged or pickled.
        """
        shards = (folder / MEDUSA,) if found(folder / MEDUSA) else weight_files(folder)
        return cls(folder, read_json(folder / "config.json"), shards)

    @property
    def values(self) -> int:
        """Number of values in all tensors."""
        return sum(map(stored_values, self.shards))
