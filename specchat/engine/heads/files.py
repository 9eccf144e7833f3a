"""Contents of a folder of published heads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.engine.files import found, read_json, stored_tensors
from specchat.engine.formats.format import Format
from specchat.engine.weights.checkpoint import Checkpoint, weight_files

MEDUSA = "medusa_lm_head.safetensors"
"""Medusa's own name for its weights."""


@dataclass(frozen=True)
class HeadFiles:
    """Files of a head; `weights.Weights` reads their tensors.

    Attributes:
        settings: those of config.json.
        format: of the matrices in a target's own files; None: dense, or in a format without settings.
        frequent: the target whose `drafts` alone may be proposed by a head that has no output matrix of its own; None:
            all tokens.
    """

    folder: Path
    settings: dict[str, Any]
    shards: tuple[Path, ...]
    format: Format | None = None
    frequent: Checkpoint | None = None

    @classmethod
    def open(cls, folder: Path) -> "HeadFiles":
        """Read the settings in `folder`, and find the weights.

        Raises:
            ModelError: files missing, damaged or pickled.
        """
        shards = (folder / MEDUSA,) if found(folder / MEDUSA) else weight_files(folder)
        return cls(folder, read_json(folder / "config.json"), shards)

    @property
    def rows(self) -> int:
        """Rows of the target's output matrix that such a head holds itself."""
        return 0 if self.frequent is None else len(self.frequent.drafts or ())

    @property
    def values(self) -> int:
        """Number of values in all tensors."""
        return sum(stored_tensors(shard).values for shard in self.shards)
