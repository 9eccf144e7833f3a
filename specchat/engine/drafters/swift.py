"""SWIFT (Xia et al. 2024): the target drafts for itself with some of its attention and MLP sub-layers left out.

Which ones is searched while text is generated. Skipped attention writes no keys: whatever drafting writes lies beyond
the committed text and is overwritten when the target verifies.
"""

from collections.abc import Sequence

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import Drafts
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.skip_search import SEARCH_EVERY, WINDOW, SkipSearch, right_without


class SwiftDrafter:
    """Shares the target's weights and cache; needs no draft model."""

    name = "swift"

    def __init__(self, target: CachedModel[Model], layers: int, drafts: Drafts) -> None:
        self._target = target
        self._layers = layers
        self._drafts = drafts
        self._prompt = 0
        self.forget()

    @property
    def ahead(self) -> bool:
        """A trial takes the host as long as several steps."""
        return self.search.done or (self._steps + 1) % SEARCH_EVERY != 0

    def begin(self, prompt: Sequence[int]) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self.search = SkipSearch(self._layers)
        self._steps = 0

    def propose(self, text: Sequence[int], limit: int) -> str:
        if limit <= 0:
            return self.name
        self._steps += 1
        if self._steps % SEARCH_EVERY == 0:
            self._try_another(text)
        self._drafts.leave_out(self.search.best)
        self._drafts.chain(self.name, limit, self._one)
        return self.name

    def behind(self, text: Sequence[int]) -> float:
        return 0.0

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        pass

    def _one(self, node: int) -> None:
        self._drafts.run("target", node, skipping=True)
        self._drafts.pick("target", node)

    def _try_another(self, text: Sequence[int]) -> None:
        """Score one more skip set on the last generated tokens: the share it would have drafted right."""
        if not self.search.done and len(text) - self._prompt > WINDOW:
            self.search.offer(lambda skip: right_without(self._target.model, text, skip))
