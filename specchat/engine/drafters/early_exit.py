"""Early exit (LayerSkip, Elhoushi et al. 2024): the target's first layers and its head draft, the others verify.

Drafting writes the same KV entries of the first layers as verification would, so they are kept. On the CPU verification
continues from the draft tokens' hidden states after these layers: a step of n draft tokens costs n passes of the first
layers, and one of the others over n + 1 rows. A captured pass of a GPU runs from the first layer on.

A target trained for it gives useful predictions after any layer. The first layers of other targets predict little
unless an adapter was trained (`weights/exit_adapter.py`).
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import Chain, Copy, Drafter, Proposal
from specchat.engine.decoding.means import Mean
from specchat.engine.drafters.skip_search import SEARCH_EVERY, WINDOW, share_right, skip_of
from specchat.engine.strategy import Facts, Strategy

if TYPE_CHECKING:
    from torch import Tensor

MOST_EXITS = 8
"""Layer counts that are compared."""
ROUNDS = 2
"""Trials of each layer count."""
LONGEST_DRAFT = 8
"""Most draft tokens in the estimated speed of a layer count."""


class ExitSearch:
    """Online search for the layer count that drafts best, by accuracy and cost."""

    def __init__(self, layers: int, head: float, chosen: int | None = None) -> None:
        """Initialise for a target of at least two `layers`, whose head costs as much as `head` of them.

        A `chosen` layer count ends the search. Otherwise a quarter of the layers drafts until each count had a trial.
        """
        self._layers, self._head = layers, head
        step = -(-layers // (2 * MOST_EXITS))
        self._right = {count: Mean() for count in ([chosen] if chosen else range(step, max(2, layers // 2 + 1), step))}
        self._chosen = chosen
        self.best = chosen or max(1, layers // 4)

    @property
    def done(self) -> bool:
        return self._chosen is not None or all(mean.count >= ROUNDS for mean in self._right.values())

    @property
    def next(self) -> int:
        """The layer count to try next: the least tried, then the smallest."""
        return min(self._right, key=lambda count: self._right[count].count)

    def add(self, layers: int, share: float) -> None:
        """Record a trial in which the first `layers` layers would have drafted this share of tokens right."""
        self._right[layers].add(share)
        if all(mean.count for mean in self._right.values()):
            self.best = max(self._right, key=self._speed)

    def _speed(self, layers: int) -> float:
        """Estimated tokens in the time of a plain token, at the best draft length; a verify pass counts as a token."""
        right, cost = self._right[layers].value, (layers + self._head) / (self._layers + self._head)
        tokens, chance, best = 1.0, 1.0, 0.0
        for drafted in range(1, LONGEST_DRAFT + 1):
            chance *= right
            tokens += chance
            best = max(best, tokens / (1 + drafted * cost))
        return best


class EarlyExitDrafter(Drafter):
    """Drafter that shares the target's weights, cache and computation."""

    name = "early-exit"

    def __init__(
        self,
        target: CachedModel[Decoder],
        layers: int,
        head: float,
        chosen: int | None,
        adapt: "Callable[[Tensor], Tensor] | None" = None,
    ) -> None:
        """Initialise for a target with `layers` layers, whose output head costs as much as `head` of them.

        `chosen` is the number of layers that draft; None to search for it. `adapt`: see `Chain`.
        """
        self._target, self._adapt = target, adapt
        self._exits = layers, head, chosen
        self._prompt = 0
        self.forget()

    @property
    def instant(self) -> bool:
        """False before a trial, which takes the host as long as several steps."""
        return self.search.done or (self._steps + 1) % SEARCH_EVERY != 0

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self.search = ExitSearch(*self._exits)
        self._steps = 0

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        if limit <= 0:
            return Copy(strategy=self.name)
        self._steps += 1
        if self._steps % SEARCH_EVERY == 0 and not self.search.done and len(token_ids) - self._prompt > WINDOW:
            self._try(token_ids, self.search.next)
        return Chain(self.name, "target", limit, layers=self.search.best, adapt=self._adapt)

    def warm(self, prompt: Sequence[int]) -> None:
        self._target.model.likeliest(prompt[:WINDOW], 0, skip_of((), ()))

    def _try(self, token_ids: Sequence[int], layers: int) -> None:
        later = range(layers, self._exits[0])
        self.search.add(layers, share_right(self._target.model, token_ids, skip_of(later, later)))


def _unsupported(facts: Facts) -> str:
    layers, chosen = facts.layers, facts.exit_layer
    if layers is not None and layers < 2:
        return "the target has only 1 layer: none to leave out"
    if layers is not None and chosen is not None and chosen >= layers:
        return f"exit_layer is {chosen}, and the target has {layers} layers: choose fewer"
    return ""


STRATEGY = Strategy(
    name="early-exit",
    group="itself",
    title="Early exit",
    summary="The target's first layers draft, and its other layers verify (LayerSkip).",
    draft_length=6,
    notes="""On the CPU verifying goes on from the hidden states that drafting made (LayerSkip, Elhoushi et al. 2024):
[early-exit.md](early-exit.md). *Parameters*: `exit_layer`, or `exit`, an adapter that
`specchat tune exit` trains ([tune.md](tune.md#early-exit)). *Pays* with targets that were trained for early exit, or
with an adapter.""",
    make=lambda parts: EarlyExitDrafter(
        parts.target, parts.layers.count, parts.layers.head, parts.layers.exit, parts.layers.adapter
    ),
    needs=("drafting", "exits"),
    begins_verify=True,
    condition=_unsupported,
)
