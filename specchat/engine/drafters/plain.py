"""No drafting."""

from collections.abc import Collection, Sequence

from specchat.engine.decoding.draft import PLAIN, Proposal
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.strategy import Strategy


class PlainDrafter:
    """Proposes nothing: the target writes one token a step."""

    name = "plain"
    ahead = True

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        pass

    def forget(self) -> None:
        pass

    def propose(self, text: Sequence[int], limit: int) -> Proposal:
        return PLAIN

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        pass


STRATEGY = Strategy(
    name="plain",
    group="plain",
    title="Plain",
    summary="No drafting: one token a step, the yardstick for all others.",
    draft_length=0,
    notes="All ratios here are to it.",
    make=lambda _: PlainDrafter(),
)
