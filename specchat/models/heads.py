"""The trained heads of a pair as far as they are on this machine: what they take, and which have to be fetched."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specchat.engine.errors import ModelError
from specchat.engine.files import found, read_json
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import need
from specchat.engine.memory.need import Place
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import Head, resolved
from specchat.engine.weights.config import ModelConfig
from specchat.models.about import About


@dataclass(frozen=True)
class PairHeads:
    """Heads `here`, sources `missing` until they are fetched, and bytes of the files that are here."""

    here: Mapping[Head, HeadFiles] = field(default_factory=dict)
    missing: tuple[ModelSource, ...] = ()
    size: int = 0

    def needs(self, target: ModelConfig, context: int, device: Place) -> dict[Head, int]:
        """Bytes of memory that each takes at most there; unusable settings are left to loading, which reports them."""
        needs: dict[Head, int] = {}
        for head, files in self.here.items():
            with suppress(ModelError, OSError):
                needs[head] = need(head, files, target, context, device)
        return needs


def look(spec: PairSpec, target: About | None, about: Callable[[ModelSource], About | None]) -> PairHeads:
    """The heads of `spec`, and those within its `target`, which take no further room on the disk.

    `about` gives the facts about a source, None where it is not here. Damaged ones are left out.
    """
    here: dict[Head, HeadFiles] = {}
    missing: list[ModelSource] = []
    size = 0
    for head, source in spec.heads.items():
        with suppress(ModelError, OSError):
            if (known := about(source)) is None:
                missing.append(source)
                continue
            here[head] = _heads_in(known.place)
            size += known.size
    for head, family in HEADS.items():
        if family.in_target and head not in spec.heads and target is not None and target.config is not None:
            with suppress(ModelError, OSError):
                if resolved(family.in_target)(read_json(target.place / "config.json")):
                    here[head] = _heads_in(target.place)
    return PairHeads(here, tuple(missing), size)


def _heads_in(folder: Path) -> HeadFiles:
    shards = tuple(file for file in folder.glob("*.safetensors") if found(file))
    return HeadFiles(folder, read_json(folder / "config.json"), shards)
