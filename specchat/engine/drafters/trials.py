"""When a model that does not draft is tried: what its drafts bring must be seen to be known.

A trial of a chain is one token, and a whole draft follows where that was kept. A tree is tried whole, where it could
pay. Trials are so seldom that they cost little of the time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specchat.engine.decoding.costs import StepCosts
from specchat.engine.drafters.model_record import ModelRecord
from specchat.engine.strategy import MAX_DRAFT_LENGTH

TRIED = 1
"""Tokens of a trial's draft."""
SHARE = 0.018
"""What trials of all models may lose, as a share of the time."""
SOONEST, LATEST = 8, 64
"""Steps that a trial is waited for."""
BARREN, SELDOM = 4, 4.0
"""Trials in vain after which they get rarer by as much again, and times as rare that they get at most."""
CLOSE = 0.9
"""Times plain from which on a trial is a whole draft: it may pay, and loses little."""
ENOUGH = 32
"""Drafts by which a model is known well enough when it is loaded."""
TREE_GAIN = 1.25
"""Times the tokens that a tree keeps of what a chain of the same model does, at most."""
NEVER = float("inf")


@dataclass(frozen=True)
class Moment:
    """A step of a text of some `kind`, whose draft may have `limit` tokens.

    `drafting` is who would draft, which promises `best` tokens a millisecond, plain decoding `plain`; a model must
    promise `margin` times as much to be taken. `looked` says whether costs were looked at, `checks` what checks of 0,
    1, ... rows take, in milliseconds, `times` what a model is expected to be over plain. Where it `tries`, models of
    which nothing is known draft at once.
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
    times: Callable[[str], float]
    tries: bool = False


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
        if now.tries:
            return self._unknown(now)
        for name, model in sorted(self._models.items(), key=lambda item: item[1].last):
            waited = now.looked and now.step - model.last >= self._patience * SOONEST
            if name == now.drafting or not (waited or model.again):
                continue
            if model.chain is not None:
                tried, lost_ms = now.limit, self._lost_by_tree(model, model.chain, now)
            else:
                close = model.again or now.times(name) > CLOSE or self._costs.at_once(name)
                tried, lost_ms = now.limit if close else min(now.limit, TRIED), NEVER
                if self._could_pay(name, now):
                    lost_ms = self._lost_by_chain(model, close, now)
            latest = LATEST * min(1 + model.barren / BARREN, SELDOM)
            patience = self._patience * min(max(SOONEST, lost_ms * now.plain / SHARE * latest / LATEST), latest)
            reading = self._patience * model.reads.behind(text) * now.plain / SHARE
            if lost_ms < NEVER and (model.again or now.step - model.last >= max(patience, reading)):
                return name, tried
        return None

    def _lost_by_chain(self, model: ModelRecord, whole: bool, now: Moment) -> float:
        """Milliseconds that trying a chain loses by what is known of it; a short one brings nothing."""
        accepted, drafted = model.lengths(now.kind) if whole else (0.0, TRIED)
        row = min(int(drafted), now.limit, MAX_DRAFT_LENGTH)
        ms = self._costs.drafting(model.drafter.name, drafted) + now.checks[1 + row] + self._costs.other_ms
        return ms - (1 + accepted) / now.best

    def _unknown(self, now: Moment) -> tuple[str, int] | None:
        """The model that is known by fewest drafts, if by too few."""
        chains = [(model.known, name) for name, model in self._models.items() if model.chain is None]
        known, name = min(chains, default=(ENOUGH, ""))
        return (name, now.limit) if known < ENOUGH and self._could_pay(name, now) else None

    def _could_pay(self, name: str, now: Moment) -> bool:
        """Whether a model would promise enough if all that it drafts were accepted."""
        longest = min(now.limit, MAX_DRAFT_LENGTH)
        most = max(
            (1 + n) / (self._costs.drafting(name, n) + now.checks[1 + n] + self._costs.other_ms)
            for n in range(1, longest + 1)
        )
        return most > now.plain * now.margin

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
