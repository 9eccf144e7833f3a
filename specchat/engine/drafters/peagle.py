"""P-EAGLE (2026, arXiv:2602.01469): a head like EAGLE-3's drafts all tokens of a chain in one pass."""

from specchat.engine.decoding.draft import Block, Proposal
from specchat.engine.drafters.eagle import EagleDrafter
from specchat.engine.strategy import HeadFamily, headed


class PEagleDrafter(EagleDrafter):
    """Drafter of a block, each token of which is the likeliest for its position."""

    def _proposal(self, limit: int) -> Proposal:
        return Block(self.name, self.role, limit)


HEAD = HeadFamily("peagle", "specchat.engine.heads.peagle:PEagleHead", "specchat.engine.heads.settings:eagle3")
STRATEGY = headed(
    HEAD,
    "P-EAGLE",
    "A head like EAGLE-3's drafts a chain in one pass; its tokens do not depend on each other.",
    7,
    """One learnt vector stands for hidden states that are not known yet (P-EAGLE, 2026): [heads.md](heads.md).
*Parameters*: `[pair.heads] peagle`. *Pays* where a pass of the head is mostly fixed cost.""",
    lambda parts: PEagleDrafter("peagle", "peagle", parts.heads["peagle"]),
)
