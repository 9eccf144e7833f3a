"""When a model that does not draft is tried: what its drafts bring must be seen to be known.

A trial of a chain is one token, and a whole draft follows where that was kept. A tree is tried whole, where it could
pay. Trials are so seldom that they cost little of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.drafters.model_record import ModelRecord
from specchat.engine.strategies import MAX_DRAFT_LENGTH

TRIED = 1
"""Tokens of a trial's draft."""
SHARE = 0.018
"""What trials of all models may lose, as a share of the time."""
SOONEST, LATEST = 8, 64
"""Steps that a trial is waited for."""
TREE_GAIN = 1.25
"""Times the tokens that a tree keeps of what a chain of the same model does, at most."""
NEVER = float("inf")


@dataclass(frozen=True)
class Moment:
    """A step of a text of some `kind`, whose draft may have `limit` tokens.

    `drafting` is who would draft, which promises `best` tokens a millisecond, plain decoding `plain`; a model must
    promise `margin` times as much to be taken. `looked` says whether costs were looked at, `checks` what checks of 0,
    1, ... rows take, in milliseconds.
    """

    step: int
    limit: int
    kind: int
    looked: bool
    drafting: str
    best: float
    plain: float
    margin: float
    checks: Sequence[float]


class Trials:
    """Of all models that `auto` has."""

    def __init__(self, models: Mapping[str, ModelRecord], costs: StepCosts) -> None:
        self._models = models
        self._costs = costs
        self._patience = max(1, sum(model.chain is None for model in models.values()))
        """Times a trial of one waits as long as if it were the only one."""

    @property
    def pressing(self) -> bool:
        """Whether a model is to be tried again at once."""
        return any(model.again for model in self._models.values())

    def due(self, text: Sequence[int], now: Moment) -> tuple[str, int] | None:
        """The model that is tried in place of what promises most, and the most tokens that it drafts.

        Those that waited for long are looked at where costs were, the one that waited longest first; one whose last
        trial asks for another, at each step.
        """
        for name, model in sorted(self._models.items(), key=lambda item: item[1].last):
            waited = now.looked and now.step - model.last >= self._patience * SOONEST
            if name == now.drafting or not (waited or model.again):
                continue
            if model.chain is not None:
                tried, lost_ms = now.limit, self._lost_by_tree(model, model.chain, now)
            else:
                tried = now.limit if model.again else min(now.limit, TRIED)
                trial_ms = TRIED * self._costs.draft(name) + now.checks[1 + TRIED] + self._costs.other_ms
                lost_ms = trial_ms - 1 / now.best
            patience = self._patience * min(max(SOONEST, lost_ms * now.plain / SHARE), LATEST)
            reading = self._patience * model.reads.behind(text) * now.plain / SHARE
            if lost_ms < NEVER and (model.again or now.step - model.last >= max(patience, reading)):
                return name, tried
        return None

    def _lost_by_tree(self, tree: ModelRecord, chain: ModelRecord, now: Moment) -> float:
        """Milliseconds that trying a tree loses by what is known of it, as much as of the chain before it was tried.

        NEVER where it could not pay even if it kept as much as a tree can.
        """
        accepted, drafted = chain.lengths(now.kind)
        draft_ms = drafted * self._costs.draft(chain.drafter.name)
        ms = draft_ms + now.checks[1 + min(now.limit, MAX_DRAFT_LENGTH)] + self._costs.other_ms
        if (1 + TREE_GAIN * accepted) / ms < now.best * now.margin:
            return NEVER
        return ms - (1 + min(accepted, tree.lengths(now.kind)[0])) / now.best
