"""Medusa (Cai et al. 2024): heads on the target's last hidden state draft several positions at once, as a tree.

Each candidate of a position may follow each candidate of the one before. The likeliest paths are drafted. Heads do not
see drafts, so the probability of a path is the product of its tokens' probabilities. The paper fixes the tree by the
accuracy of ranks in general; here it follows the probabilities of this step.
"""

from collections.abc import Collection, Sequence
from typing import Any

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Copy, ModelDrafter, Proposal, Tree
from specchat.engine.strategy import HeadFamily, headed

LEAST = 0.1
"""Least value of a path: a lower one costs the heads nothing, but the target a row."""


class MedusaDrafter(ModelDrafter):
    """Drafter of a tree with a level for each head."""

    name = "medusa"

    def __init__(self, heads: CachedModel[Any]) -> None:
        self._heads = heads

    @property
    def instant(self) -> bool:
        return self._heads.asynchronous

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._heads.keep(0)

    def forget(self) -> None:
        self._heads.keep(0)

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        if limit <= 0 or len(token_ids) <= 1:
            return Copy(strategy=self.name)
        self._heads.hold(token_ids, len(token_ids) - 1)
        return Tree(self.name, HEAD.name, limit, LEAST, self._heads.model.places)


HEAD = HeadFamily("medusa", "specchat.engine.heads.medusa:MedusaHeads", "specchat.engine.heads.settings:medusa")
STRATEGY = headed(
    HEAD,
    "Medusa",
    "Heads on the target's last hidden state draft a tree, each for one position.",
    12,
    """Medusa-1 (Cai et al. 2024): [heads.md](heads.md). *Parameters*: `[pair.heads] medusa`. *Pays* where a head
costs next to nothing beside the target's pass. Drafts are short, because a head does not know the tokens between.""",
    lambda parts: MedusaDrafter(parts.heads["medusa"]),
)
