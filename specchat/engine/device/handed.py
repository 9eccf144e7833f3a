"""Drafts that are made token by token as the host asks for them, for a target on a device: by heads beside it there."""

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import One, Role
from specchat.engine.decoding.host_drafts import HostDrafts
from specchat.engine.decoding.stop import Stops
from specchat.engine.options import Acceptance
from specchat.engine.strategies import MAX_DRAFT_LENGTH

Pick = Callable[[Tensor, int], tuple[int, float]]
"""Picks from logits float32 [1, vocab] on the device what follows a node of a chain: the token and its probability."""
Fill = Callable[[Sequence[int], Sequence[float], Sequence[int]], None]
"""Takes tokens, their probabilities and parents, as `Drafts.fill` does."""


class HandedDrafts(HostDrafts):
    """Hands what it drafts to a device by `fill`."""

    def __init__(
        self,
        models: Mapping[Role, CachedModel[HostModel]],
        vocab: int,
        stops: Stops,
        fill: Fill,
        pick: Pick | None = None,
    ) -> None:
        """`pick` where the models' logits are on the device: a token then comes from there, and not all its scores."""
        self._fill, self._pick = fill, pick
        super().__init__(models, vocab, stops)

    def start(self, acceptance: Acceptance) -> None:
        """As for `coupled`, for the device judges by the tokens alone."""
        super().start("coupled")
        self._timed = acceptance == "coupled" or self.sampler.greedy

    def chain(self, name: str, limit: int, one: Callable[[int], None], at_once: bool = False) -> None:
        super().chain(name, limit, one, at_once)
        self._fill(self.draft.tokens, self.draft.confidence, ())

    def pick(self, role: Role, node: int) -> None:
        # Other tests need drafts that owe nothing to the noise that the device judges with.
        if self._pick is None or not self._timed:
            super().pick(role, node)
            return
        token, probability = self._pick(self._models[role].model.logits(self._hidden[-1:]), node)
        self.draft.tokens.append(token)
        self.draft.confidence.append(probability)
        self.history.push(token)

    def grow(self, name: str, limit: int, one: One, least: float, levels: int = MAX_DRAFT_LENGTH) -> None:
        super().grow(name, limit, one, least, levels)
        self._fill(self.draft.tokens, self.draft.confidence, self.draft.parents)

    def go_on(self, done: Callable[[], bool]) -> None:
        """Do what is of use while the device verifies, until that is `done`: nothing, where drafts need the verdict."""
