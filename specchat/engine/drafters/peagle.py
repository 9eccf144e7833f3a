"""P-EAGLE (2026, arXiv:2602.01469): a head as EAGLE-3's drafts all tokens of a chain in one pass."""

from specchat.engine.decoding.draft import Block, Proposal
from specchat.engine.drafters.eagle import EagleDrafter
from specchat.engine.drafters.parts import Parts
from specchat.engine.strategy import HeadFamily, Strategy


class PEagleDrafter(EagleDrafter):
    """Proposes a block, each token of which is the likeliest for its place."""

    def _proposal(self, limit: int) -> Proposal:
        return Block(self.name, self.role, limit)


def _make(parts: Parts) -> PEagleDrafter:
    return PEagleDrafter(STRATEGY.name, HEAD.name, parts.heads[HEAD.name])


HEAD = HeadFamily("peagle", "specchat.engine.heads.peagle:PEagleHead", "specchat.engine.heads.need:of_peagle")
STRATEGY = Strategy(
    name="peagle",
    group="heads",
    title="P-EAGLE",
    summary="A head as EAGLE-3's drafts a chain in one pass: each token without knowing those before it.",
    draft_length=7,
    notes="""One state stands for the ones that it does not know (P-EAGLE, 2026): [heads.md](heads.md). *Parameters*:
`[pair.heads] peagle`. *Pays* where a pass of the head is mostly fixed cost.""",
    make=_make,
    needs=("drafting", "states"),
    head=HEAD,
    arm="yes",
)
