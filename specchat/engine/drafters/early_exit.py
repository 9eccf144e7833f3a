"""Early exit (LayerSkip, Elhoushi et al. 2024): the target's first layers and its head draft, the others verify.

What drafting wrote to the cache of the first layers is what verification would write, so that it is kept; and
verification goes on from the hidden states that the drafted tokens had after these layers. A step of n drafted tokens
costs n passes of the first layers, and one of the others over n + 1 rows.

A target trained for it can be read after any layer. Of another one the first layers say little.
"""

from collections.abc import Collection, Sequence

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import Chain, Copy, Drafter, Proposal
from specchat.engine.decoding.means import Mean
from specchat.engine.drafters.skip_search import SEARCH_EVERY, WINDOW, right_without, skip_of
from specchat.engine.strategy import Facts, Strategy

MOST_EXITS = 8
"""Numbers of layers that are compared."""
ROUNDS = 2
"""Trials of each."""
LONGEST_DRAFT = 8
"""Drafted tokens up to which a number of layers is judged."""


class ExitSearch:
    """Online search for the number of layers that draft best: by how often they are right and what they cost."""

    def __init__(self, layers: int, head: float, chosen: int | None = None) -> None:
        """For a target of at least two `layers` whose head weighs as much as `head` of them.

        What is `chosen` is not searched for. Otherwise a quarter of the layers drafts until a round of trials is over.
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
        """The number of layers to try next: the one tried least, the smallest of equals."""
        return min(self._right, key=lambda count: self._right[count].count)

    def tell(self, layers: int, share: float) -> None:
        """Count a trial, of whose tokens `layers` would have drafted this share right."""
        self._right[layers].add(share)
        if all(mean.count for mean in self._right.values()):
            self.best = max(self._right, key=self._speed)

    def _speed(self, layers: int) -> float:
        """Tokens in the time of a plain one, with the best draft length, where verifying costs what one token costs."""
        right, cost = self._right[layers].value, (layers + self._head) / (self._layers + self._head)
        tokens, chance, best = 1.0, 1.0, 0.0
        for drafted in range(1, LONGEST_DRAFT + 1):
            chance *= right
            tokens += chance
            best = max(best, tokens / (1 + drafted * cost))
        return best


class EarlyExitDrafter(Drafter):
    """Shares the target's weights, its cache and its work."""

    name = "early-exit"

    def __init__(self, target: CachedModel[Model], layers: int, head: float, chosen: int | None) -> None:
        """For a target with so many `layers`, whose output head weighs as much as `head` of them.

        `chosen` is the number of layers that draft; None to find it out.
        """
        self._target = target
        self._exits = layers, head, chosen
        self._prompt = 0
        self.forget()

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._prompt = len(prompt)

    def forget(self) -> None:
        self.search = ExitSearch(*self._exits)
        self._steps = 0

    def propose(self, text: Sequence[int], limit: int) -> Proposal:
        if limit <= 0:
            return Copy(strategy=self.name)
        self._steps += 1
        if self._steps % SEARCH_EVERY == 0 and not self.search.done and len(text) - self._prompt > WINDOW:
            self._try(text, self.search.next)
        return Chain(self.name, "target", limit, layers=self.search.best)

    def _try(self, text: Sequence[int], layers: int) -> None:
        """Score so many layers on the last generated tokens."""
        later = range(layers, self._exits[0])
        self.search.tell(layers, right_without(self._target.model, text, skip_of(later, later)))


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
    summary="The target's first layers draft, its others verify: for targets trained to be read early (LayerSkip).",
    draft_length=6,
    notes="""No work is done twice (LayerSkip, Elhoushi et al. 2024): [early-exit.md](early-exit.md). *Parameters*:
`exit_layer`. *Pays* with targets that were trained to be read early.""",
    make=lambda parts: EarlyExitDrafter(parts.target, parts.layers, parts.head_layers, parts.exit_layer),
    needs=("drafting", "exits"),
    begins_verify=True,
    condition=_unsupported,
)
