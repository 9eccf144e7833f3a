"""EAGLE and EAGLE-2 (Li et al. 2024): a head drafts from the target's last feature and the tokens after it.

EAGLE drafts a chain here, EAGLE-2 the paper's tree, with longer likely paths.
"""

from collections.abc import Sequence

from specchat.engine.decoding.draft import Proposal, Tree
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters.draft_model import LEAST, DraftModelDrafter
from specchat.engine.strategy import HeadFamily, headed


class EagleDrafter(DraftModelDrafter):
    """Drafter of a chain by a head in place of a draft model."""

    shortest = 3  # no feature precedes a text's first token

    def _held(self, token_ids: Sequence[int], outcome: StepOutcome) -> int:
        # KV entries of draft tokens have predicted features; they are written again with the target's own.
        return self._proposed


class EagleTreeDrafter(EagleDrafter):
    """Drafter of a tree, which shares the head and its cache with the chain's drafter."""

    def _proposal(self, limit: int) -> Proposal:
        return Tree(self.name, self.role, limit, LEAST)


HEAD = HeadFamily("eagle", "specchat.engine.heads.eagle:EagleHead", "specchat.engine.heads.settings:eagle")
EAGLE = headed(
    HEAD,
    "EAGLE",
    "A head of one layer drafts a chain from the target's last hidden state.",
    5,
    """It predicts the next hidden state, and from that the token (EAGLE, Li et al. 2024): [heads.md](heads.md).
*Parameters*: `[pair.heads] eagle`. *Pays* as a draft model does, at the cost of one layer.""",
    lambda parts: EagleDrafter("eagle", "eagle", parts.heads["eagle"]),
)
EAGLE2 = headed(
    HEAD,
    "EAGLE-2",
    "EAGLE's head drafts a tree: several tokens where it is unsure.",
    12,
    """EAGLE-2 (Li et al. 2024): [heads.md](heads.md), [trees.md](trees.md). *Pays* where `draft-tree` would.""",
    lambda parts: EagleTreeDrafter("eagle2", "eagle", parts.heads["eagle"]),
    name="eagle2",
    tree_of="eagle",
)
