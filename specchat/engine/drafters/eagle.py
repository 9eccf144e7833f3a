"""EAGLE and EAGLE-2 (Li et al. 2024): a head drafts from the target's last feature and the tokens after it.

EAGLE drafts a chain here, EAGLE-2 the paper's tree, whose likely paths are longer.
"""

from collections.abc import Sequence

from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.draft_model import DraftModelDrafter
from specchat.engine.drafters.draft_tree import LEAST


class EagleDrafter(DraftModelDrafter):
    """The head stands for a draft model."""

    name = "eagle"
    role: Role = "eagle"
    shortest = 3  # no feature comes before a text's first token

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        # The entries of drafted tokens have features that were guessed; with the target's own they are read again.
        if stepped.drafted:
            self.draft.hold(text, self._proposed)


class Eagle2Drafter(EagleDrafter):
    """Shares the head and its cache with the chain's drafter."""

    name = "eagle2"

    def _make(self, limit: int) -> None:
        self._drafts.grow(self.name, limit, self._level, LEAST)

    def _level(self, level: int) -> None:
        self._drafts.run(self.role, level)
        self._drafts.branch(self.role, level)
