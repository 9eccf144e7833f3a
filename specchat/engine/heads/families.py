"""The families of trained heads: how each is read, and which strategies draft by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import ModelDrafter
from specchat.engine.drafters.dflash import DFlash2Drafter, DFlashDrafter, XPressDrafter
from specchat.engine.drafters.dspark import DSparkDrafter
from specchat.engine.drafters.eagle import Eagle2Drafter, EagleDrafter
from specchat.engine.drafters.eagle3 import Eagle3Drafter, Eagle3TreeDrafter
from specchat.engine.drafters.medusa import MedusaDrafter
from specchat.engine.drafters.mtp import MtpDrafter
from specchat.engine.drafters.peagle import PEagleDrafter
from specchat.engine.errors import ModelError
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.heads.dflash2 import DFlash2Head
from specchat.engine.heads.dspark import DSparkHead
from specchat.engine.heads.eagle import EagleHead
from specchat.engine.heads.eagle3 import Eagle3Head
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.medusa import MedusaHeads
from specchat.engine.heads.mtp import MtpHead
from specchat.engine.heads.peagle import PEagleHead
from specchat.engine.heads.target import Target
from specchat.engine.heads.xpress import XPressHead
from specchat.engine.strategies import STRATEGIES, Head


@dataclass(frozen=True)
class Found:
    """The heads of a pair that were found, and in a sentence why others cannot be had."""

    files: Mapping[Head, HeadFiles] = field(default_factory=dict)
    refused: Mapping[Head, str] = field(default_factory=dict)

    def without(self, refused: Mapping[Head, str]) -> "Found":
        """The same but for some."""
        left = {head: files for head, files in self.files.items() if head not in refused}
        return Found(left, {**self.refused, **refused})

    def unfit(self) -> dict[str, str]:
        """The strategies that need what is refused, and why."""
        needs = ((name, info.needs_head) for name, info in STRATEGIES.items())
        return {name: self.refused[head] for name, head in needs if head is not None and head in self.refused}


@dataclass(frozen=True)
class Maker:
    """Makes a drafter, which drafts by what it is given.

    `chain` is the head, by its name, whose chain a device may run in its captured graphs; None where the host asks.
    """

    make: Callable[[Any], ModelDrafter]
    chain: tuple[Head, FeatureHead] | None = None


@dataclass(frozen=True)
class Heads:
    """Heads that were read, with the drafters that go with them; `found` tells what became of the others."""

    models: Mapping[Head, CachedModel[HostModel]]
    makers: tuple[Maker, ...]
    found: Found


def read(found: Found, target: CachedModel[Target]) -> Heads:
    """Read the weights of heads for `target`; those that cannot be used are refused with the reason."""
    models: dict[Head, CachedModel[HostModel]] = {}
    makers: list[Maker] = []
    refused: dict[Head, str] = {}
    for head, files in found.files.items():
        try:
            models[head], drafters = READERS[head](files, target)
            makers += drafters
        except ModelError as error:
            refused[head] = error.message
    return Heads(models, tuple(makers), found.without(refused))


Read = tuple[CachedModel[HostModel], list[Maker]]


def _medusa(files: HeadFiles, target: CachedModel[Target]) -> Read:
    heads = MedusaHeads(files, target)
    cached: CachedModel[HostModel] = CachedModel(heads)
    return cached, [Maker(lambda drafts: MedusaDrafter(cached, heads.places, drafts))]


def _eagle(files: HeadFiles, target: CachedModel[Target]) -> Read:
    return _of_features("eagle", EagleHead(files, target), EagleDrafter, Eagle2Drafter)


def _eagle3(files: HeadFiles, target: CachedModel[Target]) -> Read:
    return _of_features("eagle3", Eagle3Head(files, target), Eagle3Drafter, Eagle3TreeDrafter)


def _mtp(files: HeadFiles, target: CachedModel[Target]) -> Read:
    return _of_features("mtp", MtpHead(files, target), MtpDrafter)


def _of_features(name: Head, head: FeatureHead, chain: type[EagleDrafter], *trees: type[EagleDrafter]) -> Read:
    cached: CachedModel[HostModel] = CachedModel(head)
    makers = [Maker(partial(one, cached, ahead=False)) for one in trees]
    return cached, [Maker(partial(chain, cached, ahead=False), (name, head)), *makers]


def _alone(
    head: Callable[..., Any], drafter: Callable[..., ModelDrafter], files: HeadFiles, target: CachedModel[Target]
) -> Read:
    """A head that one drafter goes with."""
    cached: CachedModel[Any] = CachedModel(head(files, target))
    return cached, [Maker(partial(drafter, cached))]


READERS: Mapping[Head, Callable[[HeadFiles, CachedModel[Target]], Read]] = {
    "medusa": _medusa,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "peagle": partial(_alone, PEagleHead, PEagleDrafter),
    "mtp": _mtp,
    "dflash": partial(_alone, DFlashHead, DFlashDrafter),
    "dflash2": partial(_alone, DFlash2Head, DFlash2Drafter),
    "dspark": partial(_alone, DSparkHead, DSparkDrafter),
    "xpress": partial(_alone, XPressHead, XPressDrafter),
}
