"""No drafting."""

from collections.abc import Sequence

from specchat.engine.decoding.draft import Draft
from specchat.engine.decoding.sampler import History, Sampler


class PlainDrafter:
    """Proposes nothing: the target writes one token a step."""

    name = "plain"

    def begin(self, prompt: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        pass

    def propose(self, committed: Sequence[int], limit: int, sampler: Sampler, history: History, ratio: bool) -> Draft:
        return Draft()

    def observe(self, committed: Sequence[int]) -> None:
        pass
