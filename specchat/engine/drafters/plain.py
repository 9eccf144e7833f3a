"""No drafting."""

from collections.abc import Sequence


class PlainDrafter:
    """Proposes nothing: the target writes one token a step."""

    name = "plain"
    ahead = True

    def begin(self, prompt: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        pass

    def propose(self, text: Sequence[int], limit: int) -> None:
        pass

    def observe(self, text: Sequence[int], drafted: int) -> None:
        pass
