"""Medusa (Cai et al. 2024): heads on the target's last state guess several places at once, as a tree.

Every guess for a place may follow every guess for the place before it. Of these paths the likeliest are drafted: as
the heads see no drafts, the chance of a path is the product of the shares that its tokens have of their places. The
paper fixes which ranks go on by what was right most often in general; here the heads' own shares at this step say it.
"""

from collections.abc import Sequence

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import Drafts
from specchat.engine.decoding.stepped import Stepped

LEAST = 0.1
"""Value of a path below which it is not followed: it costs the heads nothing, but the target a row."""


class MedusaDrafter:
    """Drafts by heads for so many `places`."""

    name = "medusa"
    ahead = False

    def __init__(self, heads: CachedModel[Model], places: int, drafts: Drafts) -> None:
        self._heads = heads
        self._places = places
        self._drafts = drafts

    def begin(self, prompt: Sequence[int]) -> None:
        self._heads.keep(0)

    def forget(self) -> None:
        self._heads.keep(0)

    def propose(self, text: Sequence[int], limit: int) -> str:
        if limit > 0 and len(text) > 1:
            self._heads.hold(text, len(text) - 1)
            self._drafts.grow(self.name, limit, self._level, LEAST, self._places)
        return self.name

    def behind(self, text: Sequence[int]) -> float:
        return 0.0

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        pass

    def _level(self, level: int) -> None:
        self._drafts.run("medusa", level)
        self._drafts.branch("medusa", level)
