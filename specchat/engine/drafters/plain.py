"""No drafting."""

from collections.abc import Sequence

from specchat.engine.decoding.stepped import Stepped


class PlainDrafter:
    """Proposes nothing: the target writes one token a step."""

    name = "plain"
    ahead = True

    def begin(self, prompt: Sequence[int]) -> None:
        pass

    def forget(self) -> None:
        pass

    def propose(self, text: Sequence[int], limit: int) -> str:
        return self.name

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        pass
