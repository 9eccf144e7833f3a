"""P-EAGLE (2026, arXiv:2602.01469): a head as EAGLE-3's drafts all tokens of a chain in one pass."""

from typing import Protocol

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import Drafts, Role
from specchat.engine.drafters.eagle import EagleDrafter


class Guessing(Model, Protocol):
    """A head that guesses so many `places` in its pass over a text."""

    places: int


class PEagleDrafter(EagleDrafter):
    """A chain, each token of which is the likeliest for its place."""

    name = "peagle"
    role: Role = "peagle"

    def __init__(self, head: CachedModel[Guessing], drafts: Drafts) -> None:
        super().__init__(head, drafts, ahead=False)
        self._head = head.model

    def _make(self, limit: int) -> None:
        self._head.places = limit
        self._drafts.chain(self.name, limit, self._one, at_once=True)
