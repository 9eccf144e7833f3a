"""No drafting."""

from collections.abc import Sequence

from specchat.engine.decoding.draft import PLAIN, Copier, Copy
from specchat.engine.strategy import Strategy


class PlainDrafter(Copier):
    """Drafter without drafts: the target generates one token a step."""

    name = "plain"

    def propose(self, token_ids: Sequence[int], limit: int) -> Copy:
        return PLAIN


STRATEGY = Strategy(
    name="plain",
    group="plain",
    title="Plain",
    summary="No drafting: one token a step. All others are compared with it.",
    draft_length=0,
    notes="Speedups on this page are over it.",
    make=lambda _: PlainDrafter(),
)
