"""Early exit (LayerSkip, Elhoushi et al. 2024): the target's first layers and its head draft, the others verify.

What drafting wrote to the cache of the first layers is what verification would write, so that it stays; and
verification goes on from the hidden states that the drafted tokens had after these layers. A step of n drafted tokens
costs n passes of the first layers, and one of the others over n + 1 rows.

A target trained for it can be read after any layer. Of another one the first layers say little.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import EarlyDrafts
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.drafters.exit_search import ExitSearch
from specchat.engine.drafters.skip_search import SEARCH_EVERY, WINDOW, right_without
from specchat.engine.model.decoder import Skip


@dataclass(frozen=True)
class Exits:
    """Where a target may be left early.

    Attributes:
        drafts: runs it so.
        layers: how many it has.
        head: what its head weighs, in layers.
        chosen: the number of layers that draft; None to find it out.
    """

    drafts: EarlyDrafts
    layers: int
    head: float
    chosen: int | None

    @property
    def refused(self) -> str:
        """Why it cannot be left early, in words; empty where it can."""
        if self.layers < 2:
            return "the target has only 1 layer: none to leave out"
        if self.chosen is not None and self.chosen >= self.layers:
            return f"exit_layer is {self.chosen}, and the target has {self.layers} layers: choose fewer"
        return ""


class EarlyExitDrafter:
    """Shares the target's weights, its cache and its work."""

    name = "early-exit"
    ahead = False

    def __init__(self, target: CachedModel[Model], exits: Exits) -> None:
        self._target = target
        self._exits = exits
        self._prompt = 0
        self.forget()

    def begin(self, prompt: Sequence[int]) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self.search = ExitSearch(self._exits.layers, self._exits.head, self._exits.chosen)
        self._steps = 0

    def propose(self, text: Sequence[int], limit: int) -> str:
        if limit > 0:
            self._steps += 1
            if self._steps % SEARCH_EVERY == 0 and not self.search.done and len(text) - self._prompt > WINDOW:
                self._try(text, self.search.next)
            self._exits.drafts.chain(self.name, limit, self._one)
        return self.name

    def observe(self, text: Sequence[int], stepped: Stepped) -> None:
        pass

    def _one(self, node: int) -> None:
        self._exits.drafts.run_early(self.search.best, node)
        self._exits.drafts.pick("target", node)

    def _try(self, text: Sequence[int], layers: int) -> None:
        """Score so many layers on the last generated tokens."""
        later = frozenset(range(layers, self._exits.layers))
        self.search.tell(layers, right_without(self._target.model, text, Skip(later, later)))
