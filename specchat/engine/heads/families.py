"""The trained heads of a pair: those found, reasons why others cannot be used, and their models."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.target import Target
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import resolved


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


def read(found: FoundHeads, target: CachedModel[Target]) -> tuple[dict[str, CachedModel[HostModel]], FoundHeads]:
    """Read the weights of heads for `target`. Heads that fail to load are left out, with the reason."""
    models: dict[str, CachedModel[HostModel]] = {}
    unsupported: dict[str, str] = {}
    for head, files in found.files.items():
        try:
            models[head] = CachedModel(resolved(HEADS[head].reads)(files, target))
        except ModelError as error:
            unsupported[head] = error.message
    return models, found.without(unsupported)
