"""The speculative step: propose, verify, accept (Leviathan et al. 2023), on any device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.engine.decoding.cached import CachedModel, Decoder
from specchat.engine.decoding.draft import PLAIN, Chain, Copy, Drafter, Proposal, Then
from specchat.engine.decoding.executor import Executor
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.protocol.options import Acceptance
from specchat.engine.strategies import GRAMMAR
from specchat.engine.strategy import MAX_DRAFT_LENGTH

Observer = Callable[[Sequence[int], StepOutcome], None]
"""A drafter's `observe` or `observe_extension`."""


@dataclass(frozen=True)
class StepPlan:
    """Plan of a step: its drafter, limit of draft tokens, acceptance test, and limit of forced tokens."""

    drafter: Drafter
    limit: int
    acceptance: Acceptance
    forced_limit: int


class Decoding:
    """A reply being written. Between steps the target's cache holds all of `committed` but its last token.

    An asynchronous device starts the next step before the text of the last one is processed, so that detokenising and
    drawing overlap with it. Such a step is dropped if it is not wanted after all.
    """

    def __init__(
        self,
        executor: Executor,
        target: CachedModel[Decoder],
        rules: ReplyRules,
        prompt: list[int],
        probe: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin a reply; the cache of `target` holds `prompt` but its last token.

        `probe` returns True if the next step should be plain, to measure the speed of such steps (`yardstick.py`).
        """
        self.committed = list(prompt)
        self._executor = executor
        self._target = target
        self._rules, self._prompt = rules, len(prompt)
        self._eos = frozenset(rules.eos)
        self._under_way: StepPlan | None = None
        self._probe = probe
        self._observe: Observer | None = None
        """Learns from the last started step; None if the drafter proposed nothing of it."""
        self._proposal: Proposal = PLAIN
        """The proposal of the last started step."""
        self._probing: bool | None = None
        """True if the next step is a plain probe; None until that is asked."""
        executor.begin(rules, prompt)
        executor.costs.begin()

    @property
    def room(self) -> int:
        """Number of further tokens that fit the context."""
        return self._target.model.context - len(self.committed)

    def step(self, drafter: Drafter, length: int, acceptance: Acceptance, wanted: int | None = None) -> StepOutcome:
        """Add at least one token, at most `length` + 1 unless more are forced, none after an end-of-text token.

        The draft is limited to the tokens still `wanted`. A device may already run a longer draft, and may add more.
        """
        limit = draft_limit(self._executor, length, self.room, wanted)
        forced_limit = limit
        if self._rules.constraint is not None:
            forced_limit = draft_limit(self._executor, MAX_DRAFT_LENGTH, self.room, wanted)
        plan = StepPlan(drafter, limit, acceptance, forced_limit)
        if self._under_way != plan:
            self.close()
            self._start(plan)
        early = self._executor.asynchronous and drafter.instant
        follow = early and self._follows(plan)
        outcome = self._executor.outcome(follow)
        self._under_way = plan if follow else None
        self.committed += outcome.tokens
        self._target.hold(self.committed, len(self.committed) - 1)
        self._executor.costs.add(outcome.strategy, outcome)
        if self._observe is not None:
            self._observe(self.committed, outcome)
        if follow and plan.limit and drafter.propose(self.committed, plan.limit) != self._proposal:
            self.close()
        if early and not follow and outcome.tokens[-1] not in self._eos and self.room > length:
            self._start(plan)
        return outcome

    @property
    def repeatable(self) -> bool:
        """True if `repeat` can run: no constraint has ended, and one more token fits the context."""
        return self._rules.constraint is None and self.room > 1

    def repeat(self) -> StepOutcome:
        """Run a plain step after the end of the text and drop its token, to measure the speed of such steps."""
        self.close()
        self._executor.start("coupled")
        self._executor.verify(PLAIN)
        outcome = self._executor.outcome()
        self._executor.rewind(self.committed)
        # No text is processed between such steps, so the rest of one is no other step's.
        self._executor.costs.begin()
        self._executor.costs.add(outcome.strategy, outcome)
        return outcome

    def close(self) -> None:
        """Drop the step that runs, as no more are wanted now."""
        if self._under_way is not None:
            self._under_way = None
            self._executor.outcome()
            self._executor.rewind(self.committed)

    def resume(self) -> None:
        """Go on after another reply used the models: read what their caches lost of this one's text."""
        self._target.begin(self.committed)
        self._executor.begin(self._rules_here, self.committed)
        self._executor.costs.begin()

    def continued(self, executor: Executor, target: CachedModel[Decoder]) -> "Decoding":
        """Go on by another executor, with a `target` that holds the text: the text of both is one."""
        other = Decoding(executor, target, self._rules_here, self.committed)
        other.committed = self.committed
        return other

    @property
    def _rules_here(self) -> ReplyRules:
        """The rules for the rest of the reply."""
        return self._rules._replace(begun=self._rules.begun + len(self.committed) - self._prompt)

    def _start(self, plan: StepPlan) -> None:
        self._executor.start(plan.acceptance)
        proposal, self._observe = self._propose(plan)
        self._probing = None
        if not self._executor.supports(proposal):
            proposal, self._observe = PLAIN, None
        self._proposal = proposal
        self._executor.verify(proposal)
        self._under_way = plan

    def _propose(self, plan: StepPlan) -> tuple[Proposal, Observer | None]:
        """Return the proposal of forced tokens, of a plain probe or of the drafter, and the observer of its outcome."""
        drafter = plan.drafter
        if forced := self._forced(plan):
            copy = Copy(forced, strategy=GRAMMAR)
            chain = self._extension(plan, forced)
            return (copy, None) if chain is None else (Then(GRAMMAR, copy, chain), drafter.observe_extension)
        if self._probes(plan):
            return PLAIN, None
        return drafter.propose(self.committed, plan.limit), drafter.observe

    def _follows(self, plan: StepPlan) -> bool:
        """Return True if a device has all that the next step takes: a plain one, or the same chain of a model.

        Both steps must fit the context.
        """
        if self.room <= 2 * plan.limit + 1:
            return False
        if not plan.limit:
            return self._proposal.strategy == PLAIN.strategy
        if not isinstance(self._proposal, Chain) or not plan.drafter.repeats or self._probes(plan):
            return False
        self._probing = None
        return True

    def _probes(self, plan: StepPlan) -> bool:
        """Return True if the next step is a plain probe; asks once for each."""
        if self._probing is None:
            # If the text depends on drafts, these must not depend on time.
            exact = plan.acceptance == "coupled" or self._rules.sampling.greedy
            self._probing = exact and plan.limit > 0 and self._probe()
        return self._probing

    def _forced(self, plan: StepPlan) -> list[int]:
        """Tokens that the constraint leaves no choice about, which cost nothing to draft; none in a plain reply."""
        if self._rules.constraint is None or not plan.limit:
            return []
        return self._rules.constraint.forced(plan.forced_limit)

    def _extension(self, plan: StepPlan, forced: list[int]) -> Chain | None:
        """The drafter's chain after the forced tokens, which its model has to read in any case."""
        limit = min(plan.limit, plan.forced_limit - len(forced))
        if limit <= 0 or not self._executor.joins or forced[-1] in self._eos:
            return None
        return plan.drafter.extend(self.committed, len(forced), limit)


def draft_limit(executor: Executor, length: int, room: int, wanted: int | None) -> int:
    """Return the draft limit: `length`, less if less `room` is left or fewer tokens are `wanted`.

    An asynchronous executor ignores `wanted`: its steps begin before the number is known.
    """
    if wanted is not None and not executor.asynchronous:
        length = min(length, wanted - 1)
    return max(0, min(length, room - 1))
