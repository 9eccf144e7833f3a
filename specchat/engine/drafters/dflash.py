"""DFlash (z-lab 2026, arXiv:2602.06036): a head guesses all tokens of a block in one pass."""

from collections.abc import Sequence
from typing import Protocol

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import Drafts, Role
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.draft_model import DraftModelDrafter


class Guessing(Model, Protocol):
    """A head that guesses so many `places` in a pass, of which only those that are `wanted` are scored."""

    places: int
    wanted: int


class DFlashDrafter(DraftModelDrafter):
    """The head stands for a draft model whose first token is as dear as all of them."""

    name = "dflash"
    role: Role = "dflash"

    def __init__(self, head: CachedModel[Guessing], drafts: Drafts) -> None:
        super().__init__(head, drafts, ahead=False)
        self._head = head.model

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        # The head made entries of the text before the pending token, of which the target had no states.
        if stepped.drafted:
            self.draft.hold(text, self._proposed - 1)

    def _make(self, limit: int) -> None:
        self._head.wanted = min(limit, self._head.places)
        self._drafts.chain(self.name, self._head.wanted, self._one, at_once=True)


class DFlash2Drafter(DFlashDrafter):
    """DFlash2, whose places know the token before them."""

    name = "dflash2"
    role: Role = "dflash2"


class XPressDrafter(DFlashDrafter):
    """XPress (2026, arXiv:2608.02438), whose places know all tokens before them."""

    name = "xpress"
    role: Role = "xpress"
