"""The draft model grows a tree: several tokens for a place, the paths that are likely (EAGLE-2, Li et al. 2024).

Where the draft model is torn between two tokens a chain is lost with the wrong one; a tree has both.
"""

from collections.abc import Sequence

from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.draft_model import DraftModelDrafter

LEAST = 0.3
"""Value of a path below which it is not followed."""


class DraftTreeDrafter(DraftModelDrafter):
    """Shares the draft model and its cache with the chain's drafter."""

    name = "draft-tree"

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        # Of the path that stays, the model ran over all but the last token.
        if stepped.drafted:
            self.draft.hold(text, max(self._proposed, len(text) - 2))

    def _make(self, limit: int) -> None:
        self._drafts.grow(self.name, limit, self._level, LEAST)

    def _level(self, level: int) -> None:
        self._drafts.run("draft", level)
        self._drafts.branch("draft", level)
