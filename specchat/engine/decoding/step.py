"""The speculative step: propose, verify, accept (Leviathan et al. 2023), on any device."""

from collections.abc import Callable
from dataclasses import dataclass

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import PLAIN, Chain, Copy, Drafter, Proposal, Then
from specchat.engine.decoding.executor import Executor
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.options import Acceptance
from specchat.engine.strategies import GRAMMAR
from specchat.engine.strategy import MAX_DRAFT_LENGTH


@dataclass(frozen=True)
class Plan:
    """Plan of a step: its drafter, limit of draft tokens, acceptance test, and limit of tokens that are forced."""

    drafter: Drafter
    limit: int
    acceptance: Acceptance
    most: int


class Decoding:
    """A reply being written. Between steps the target's cache holds all of `committed` but its last token.

    An asynchronous device starts the next step before the text of the last one is processed, so that detokenising and
    drawing overlap with it. Such a step is dropped if it is not wanted after all.
    """

    def __init__(
        self,
        executor: Executor,
        target: CachedModel[Model],
        rules: ReplyRules,
        prompt: list[int],
        slip: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin a reply; the cache of `target` holds `prompt` but its last token.

        `slip` returns True if a step should be plain, for any strategy (`yardstick.py`).
        """
        self.committed = list(prompt)
        self._executor = executor
        self._target = target
        self._eos = frozenset(rules.eos)
        self._under_way: Plan | None = None
        self._slip, self._greedy, self._constraint = slip, rules.sampling.greedy, rules.constraint
        self._passed_over = False
        """True if the last started step is none that the drafter proposed: plain, or what the constraint forces."""
        self._went_on = False
        """True if in that step the drafter goes on after what is forced."""
        self._proposal: Proposal = PLAIN
        """Of the last started step."""
        self._slipping: bool | None = None
        """Whether the next step is to be plain, where that was asked before it starts."""
        executor.begin(rules, prompt)
        executor.costs.begin()

    @property
    def room(self) -> int:
        """Number of further tokens that fit the context."""
        return self._target.model.context - len(self.committed)

    def step(self, drafter: Drafter, length: int, acceptance: Acceptance, wanted: int | None = None) -> Stepped:
        """Add at least one token, at most `length` + 1 unless more are forced, none after an end-of-text token.

        The draft is limited to the tokens still `wanted`. A device may have a longer one under way, and may add more.
        """
        limit = longest(self._executor, length, self.room, wanted)
        most = longest(self._executor, MAX_DRAFT_LENGTH, self.room, wanted) if self._constraint is not None else limit
        plan = Plan(drafter, limit, acceptance, most)
        if self._under_way != plan:
            self.close()
            self._start(plan)
        early = self._executor.ahead and drafter.ahead
        follow = early and self._follows(plan)
        stepped = self._executor.verdict(follow)
        self._under_way = plan if follow else None
        self.committed += stepped.tokens
        self._target.hold(self.committed, len(self.committed) - 1)
        self._executor.costs.add(stepped.strategy, stepped)
        if self._went_on:
            drafter.went_on(self.committed, stepped)
        elif not self._passed_over:
            drafter.observe(self.committed, stepped)
        if follow and plan.limit and drafter.propose(self.committed, plan.limit) != self._proposal:
            self.close()
        if early and not follow and stepped.tokens[-1] not in self._eos and self.room > length:
            self._start(plan)
        return stepped

    def close(self) -> None:
        """Drop a step that is under way, as no more are wanted now."""
        if self._under_way is not None:
            self._under_way = None
            self._executor.verdict()
            self._executor.place(self.committed)

    def _start(self, plan: Plan) -> None:
        self._executor.start(plan.acceptance)
        forced = self._forced(plan)
        slipped = not forced and self._slips(plan)
        self._slipping = None
        self._passed_over = slipped or bool(forced)
        self._went_on = False
        if forced:
            proposal = self._after(plan, Copy(forced, strategy=GRAMMAR))
        else:
            proposal = PLAIN if slipped else plan.drafter.propose(self.committed, plan.limit)
        if not self._executor.takes(proposal):
            proposal, self._passed_over = PLAIN, True
        self._proposal = proposal
        self._executor.verify(proposal)
        self._under_way = plan

    def _follows(self, plan: Plan) -> bool:
        """Return True if a device has all that the next step takes: a plain one, or the same chain of a model.

        Both steps must fit the context.
        """
        if self.room <= 2 * plan.limit + 1 or self._passed_over:
            return False
        if not plan.limit:
            return self._proposal.strategy == PLAIN.strategy
        if not isinstance(self._proposal, Chain) or not plan.drafter.repeats or self._slips(plan):
            return False
        self._slipping = None
        return True

    def _slips(self, plan: Plan) -> bool:
        """Return True if the next step should be plain; asks once for each."""
        if self._slipping is None:
            # If the text depends on drafts, these must not depend on time.
            exact = plan.acceptance == "coupled" or self._greedy
            self._slipping = exact and plan.limit > 0 and self._slip()
        return self._slipping

    def _after(self, plan: Plan, forced: Copy) -> Proposal:
        """Let the drafter go on after the forced tokens, which it has to read in any case."""
        copied = len(forced.tokens)
        limit = min(plan.limit, plan.most - copied)
        if limit <= 0 or not self._executor.joins or forced.tokens[-1] in self._eos:
            return forced
        chain = plan.drafter.go_on(self.committed, copied, limit)
        self._went_on = chain is not None
        return Then(GRAMMAR, forced, chain) if chain is not None else forced

    def _forced(self, plan: Plan) -> list[int]:
        """Tokens that the constraint leaves no choice about, which cost nothing to draft; none in a plain reply."""
        if self._constraint is None or not plan.limit:
            return []
        return self._constraint.forced(plan.most)


def longest(executor: Executor, length: int, room: int, wanted: int | None) -> int:
    """Return the draft limit: `length`, less if less `room` is left or fewer tokens are `wanted`.

    An executor that is `ahead` ignores `wanted`: its steps begin before the number is known.
    """
    if wanted is not None and not executor.ahead:
        length = min(length, wanted - 1)
    return max(0, min(length, room - 1))
