"""DSpark (DeepSeek 2026): a block as DFlash's, whose head tells itself how likely each token is to stay."""

from typing import Protocol

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Role, SureDrafts
from specchat.engine.drafters.dflash import DFlashDrafter, Guessing


class Sure(Guessing, Protocol):
    """A head that knows the `chance` of the token that it guessed last, if it tells any."""

    chance: float | None


class DSparkDrafter(DFlashDrafter):
    """The paper ends a block before a chance below a threshold; here after one with which no further token pays."""

    name = "dspark"
    role: Role = "dspark"

    def __init__(self, head: CachedModel[Sure], drafts: SureDrafts) -> None:
        super().__init__(head, drafts)
        self._sure, self._taken = head.model, drafts

    def _one(self, node: int) -> None:
        super()._one(node)
        if self._sure.chance is not None:
            self._taken.sure(self._sure.chance)
