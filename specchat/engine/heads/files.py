"""Files of the trained heads of a pair. The app imports this module, so it does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specchat.engine.files import found, read_json, stored_tensors, weight_files
from specchat.engine.formats.format import Format
from specchat.engine.gguf.files import GgufFiles

if TYPE_CHECKING:
    from specchat.engine.weights.checkpoint import Checkpoint

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
        nextn: GGUF files that hold a target's own layer; None: safetensors files do.
    """

    folder: Path
    settings: dict[str, Any]
    shards: tuple[Path, ...]
    format: Format | None = None
    frequent: "Checkpoint | None" = None
    nextn: GgufFiles | None = None
    gguf: None = None

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

    @cached_property
    def values(self) -> int:
        """Number of values in all tensors."""
        return sum(stored_tensors(shard).values for shard in self.shards)


@dataclass(frozen=True)
class FoundHeads:
    """Files of heads by family, and reasons why the others of a pair cannot be used."""

    files: Mapping[str, HeadFiles] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def without(self, unsupported: Mapping[str, str]) -> "FoundHeads":
        """Return a copy that moves the heads in `unsupported` out of `files`."""
        left = {head: files for head, files in self.files.items() if head not in unsupported}
        return FoundHeads(left, {**self.unsupported, **unsupported})

    @property
    def facts(self) -> dict[str, str]:
        """Reason why each family cannot be used, "" if it can: `strategy.Facts.heads`."""
        return {**dict.fromkeys(self.files, ""), **self.unsupported}
