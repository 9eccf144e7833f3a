"""The drafter of `auto`: each step takes the arm with the highest expected throughput, or explores another one.

Copiers propose in turn until one finds a long match; the longest match is compared with a model's draft. A copy's
acceptance is counted even if it is not taken. A model's acceptance is known only from drafts, so a losing arm is
explored now and then (`exploration.py`). To save time, a chosen model drafts for a few steps without a new choice, and
if no arm pays, a few plain steps follow without one.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from specchat.engine.bandit.arms import Arm, Sums
from specchat.engine.bandit.averages import text_kind
from specchat.engine.bandit.choice import ArmChoice, BanditState, ReplyState, rest_steps, unasked_steps, until
from specchat.engine.bandit.copies import After, CopyArms
from specchat.engine.bandit.estimates import MARGIN, Estimates
from specchat.engine.bandit.exploration import Exploration
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import PLAIN, Chain, Copier, Drafter, ModelDrafter, Proposal
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.drafters.parts import Fences, Parts

REVIEW, STALE = 8, 32
"""Steps between two reviews of costs, and between two refreshes of all estimates."""
REFRESHED = 8
"""Drafts of an arm between two refreshes of its estimate."""
COPIED_AFTER = ("draft", "target")
"""Models after which a copy may follow: heads would lack hidden states of copied tokens."""


class AutoDrafter(Drafter):
    """Bandit over other drafters. It does not call their `begin` and `forget`."""

    name = "auto"

    def __init__(
        self,
        copiers: Sequence[Copier],
        after: tuple[str, After] | None,
        models: Sequence[ModelDrafter],
        trees: Mapping[str, ModelDrafter],
        costs: StepCosts,
        fences: Fences,
    ) -> None:
        """Create the bandit; `copiers` are tried in this order, and `fences` distinguish code from prose.

        `after` is a copier's name and function, which may end a chain by one of `models`. `trees` go by the name of the
        chain with the same model.
        """
        self._fences, self._costs = fences, costs
        self._arms = {drafter.name: Arm(drafter) for drafter in models}
        self._arms |= {tree.name: Arm(tree, self._arms[name]) for name, tree in trees.items()}
        self._estimates = Estimates(self._arms, costs)
        self._exploration = Exploration(self._arms, self._estimates, costs)
        self._copies = CopyArms(copiers, after, fences)
        self._state = BanditState()
        self.tries = False
        """True while a pair is loaded: unknown arms are explored at every step."""
        self._reply = ReplyState()
        self.forget()
        self.begin([])

    @property
    def instant(self) -> bool:
        return all(arm.drafter.instant for arm in self._arms.values())

    def prepare(self, name: str, prompt: Sequence[int], limit: int, parallel: bool) -> bool:
        """Choose the arm of a reply's first step, before any token waits for it.

        Returns:
            True if the model `name` should read the prompt now: because it drafts that step or, if it can read in
            `parallel` with the target, because no other arm is expected to be faster.
        """
        self._review_costs()
        worth = parallel and self._estimates.worth_reading(name, text_kind(0), prompt)
        self._choose(prompt, limit, name if worth else "")
        self._reply.chosen_for = len(prompt), limit
        arm = self._arms.get(self._choice.arm)
        return worth or (arm is not None and arm.reads.name == name)

    def learnt(self) -> dict[str, tuple[int, Sums, Sums]]:
        """Return `Arm.learnt` by strategy."""
        return {name: arm.learnt() for name, arm in self._arms.items()}

    def restore(self, learnt: Mapping[str, tuple[int, Sums, Sums]]) -> None:
        """Restore values returned by `learnt`; strategies not in them start anew."""
        for name, known in learnt.items():
            if (arm := self._arms.get(name)) is not None:
                arm.restore(*known)
        self._estimates.refresh_all()

    def rank(self) -> None:
        """Rank arms between replies, so that the next reply need not wait for it."""
        self._review_costs()
        self._estimates.ranked(text_kind(0))

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._fences.begin()
        self._estimates.begin(self._reply.written)
        self._reply = ReplyState(end=len(prompt))

    def forget(self) -> None:
        """Forget this chat. Step costs and wide averages are kept: they belong to machine and pair."""
        for arm in self._arms.values():
            arm.forget()
        self._copies.forget()
        self._estimates.begin(self._reply.written)
        self._estimates.forget()
        self._reply, self._choice = ReplyState(), ArmChoice()
        self._state.forget()

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        reply = self._reply
        if reply.resting:
            reply.resting -= 1
            reply.rested += 1
            return PLAIN
        goes_on = reply.goes_on and len(token_ids) == reply.end and limit == self._choice.limit
        self._catch_up(token_ids)
        if goes_on and self._choice.kind == text_kind(0, self._fences.code):
            reply.goes_on -= 1
            self._choice.reads = self._choice.watched = False
            return self._arms[self._choice.arm].drafter.propose(token_ids, limit)
        reply.goes_on = 0
        if reply.chosen_for != (len(token_ids), limit):
            began = self._costs.clock()
            self._review_costs()
            self._choose(token_ids, limit)
            self._state.choosing.add(1e3 * (self._costs.clock() - began))
        choice = self._choice
        if choice.arm in self._arms:
            if not choice.explores:
                reply.goes_on = unasked_steps(self._state.choosing.value, self._estimates.plain)
            return self._draft(token_ids)
        if choice.arm != PLAIN.strategy:
            self._state.barren = 0
            return choice.copy.first(choice.limit)
        if limit and not (self.tries or self._state.pressing):
            self._state.barren += 1
            reply.resting = rest_steps(self._state.barren, self._state.overhead_ms * self._estimates.plain)
        return PLAIN

    def extend(self, token_ids: Sequence[int], copied: int, limit: int) -> Chain | None:
        arm = self._arms.get(self._choice.arm)
        return arm.drafter.extend(token_ids, copied, min(limit, self._choice.limit)) if arm is not None else None

    def observe_extension(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        self._arms[self._choice.arm].drafter.observe_extension(token_ids, outcome)

    def _catch_up(self, token_ids: Sequence[int]) -> None:
        reply = self._reply
        new = token_ids[reply.end :]
        self._fences.add(new)
        reply.written += len(new)
        self._state.step += reply.rested
        reply.end, reply.rested = len(token_ids), 0

    def _choose(self, token_ids: Sequence[int], limit: int, reads: str = "") -> None:
        """Choose the arm of a step; the model named `reads` will have read `token_ids` by then."""
        self._choice = choice = ArmChoice(kind=text_kind(0, self._fences.code), throughput=self._choice.throughput)
        if not limit:
            return
        reviewed, self._state.reviewed = self._state.reviewed, False
        self._reply.longest = max(self._reply.longest, limit)
        self._copies.find(token_ids, limit, choice)
        arm, choice.throughput = self._estimates.best(choice.kind, token_ids, reads)
        if arm:
            choice.arm, choice.limit = arm, limit
        if choice.copier:
            other_ms = self._costs.other_ms + self._state.overhead_ms
            found, length = self._copies.best(choice, self._estimates.verify_ms, other_ms)
            if found > choice.throughput * MARGIN:
                choice.arm, choice.limit, choice.throughput = choice.copier, length, found
        self._explore(token_ids, limit, reviewed)

    def _draft(self, token_ids: Sequence[int]) -> Proposal:
        """Propose a draft by the arm's model, which a copy may end if it pays more."""
        choice, arm = self._choice, self._arms[self._choice.arm]
        choice.reads = arm.reads.reading_ms(token_ids) > 0
        proposal = arm.drafter.propose(token_ids, choice.limit)
        copy_on = self._copies.copy_on
        if copy_on is None or not isinstance(proposal, Chain) or proposal.model not in COPIED_AFTER:
            return proposal
        copy_on.start(
            token_ids,
            choice.limit,
            choice.throughput,
            lambda: self._estimates.estimate(choice.arm, choice.kind).accepted,
            self._estimates.verify_ms,
            self._costs.draft_token_ms(choice.arm),
        )
        choice.watched = True
        return proposal._replace(follow=self._copies.follow)

    def _explore(self, token_ids: Sequence[int], limit: int, reviewed: bool) -> None:
        """Replace the best arm by one that is due to be explored, if any."""
        choice, exploration, due = self._choice, self._exploration, None
        if self.tries:
            due = exploration.unknown(limit)
        elif reviewed or self._state.pressing:
            due = exploration.due(token_ids, choice, self._state.step, limit, reviewed)
        if due is not None:
            (choice.arm, choice.limit), choice.explores = due, True

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        if self._reply.rested:
            return
        began = self._costs.clock()
        self._state.step += 1
        self._catch_up(token_ids)
        choice, reply = self._choice, self._reply
        self._copies.observe(choice, outcome.tokens)
        if (arm := self._arms.get(choice.arm)) is not None:
            own = until(outcome, outcome.switch) if outcome.switch else outcome
            self._add_outcome(arm, own)
            arm.drafter.observe(token_ids, own)
        rejected, reply.rejected = reply.rejected, outcome.accepted < outcome.drafted / 2
        if rejected and reply.rejected:
            reply.goes_on = 0
        self._state.observing.add(1e3 * (self._costs.clock() - began))

    def _add_outcome(self, arm: Arm, outcome: StepOutcome) -> None:
        choice, longest = self._choice, self._reply.longest
        arm.drafts += 1
        if choice.reads:
            self._estimates.forget_choices()
        if choice.explores or arm.drafts % REFRESHED == 0:
            # A chain and its tree share a model and its cache.
            self._estimates.refresh(one for one in self._arms.values() if arm in (one, one.chain) or one is arm.chain)
        whole = 0 < outcome.accepted == outcome.drafted
        short = choice.explores and choice.limit < longest and not arm.again and arm.chain is None
        arm.again = short and whole
        arm.last = self._state.step - 1
        if arm.again:
            arm.forget_acceptance(choice.kind)
        if choice.explores or self._state.pressing:
            self._state.pressing = self._exploration.pressing
        # A draft cut short and accepted whole does not show how many more tokens would be accepted.
        if not (whole and outcome.drafted == choice.limit < longest):
            self._estimates.note_outcome(choice.kind)
            arm.add(choice.kind, outcome.accepted, None if short else outcome.drafted, choice.explores)
            arm.barren *= not self.tries

    def _review_costs(self) -> None:
        if self._costs.measured - self._state.seen < REVIEW:
            return
        self._state.seen, self._state.reviewed = self._costs.measured, True
        if self._state.seen - self._state.refreshed >= STALE:
            self._state.refreshed = self._state.seen
            self._estimates.refresh_all()
        self._estimates.update_costs()


def make(parts: Parts) -> AutoDrafter:
    """Create the bandit over the drafters of a pair."""
    arms = {name: drafter for name, drafter in parts.drafters.items() if parts.strategies[name].arm == "yes"}
    copiers = [cast(Copier, arms.pop(name)) for name in list(arms) if parts.strategies[name].group == "copied"]
    alone = (name for name in parts.drafters if parts.strategies[name].arm == "alone")
    models = {name: drafter for name, drafter in arms.items() if not parts.strategies[name].tree_of}
    models = models or {name: parts.drafters[name] for name in alone}  # the target drafts for itself
    trees = {parts.strategies[name].tree_of: drafter for name, drafter in arms.items() if name not in models}
    after = next(((copier.name, copier.after) for copier in copiers if hasattr(copier, "after")), None)
    drafters = cast(list[ModelDrafter], list(models.values())), cast(dict[str, ModelDrafter], trees)
    return AutoDrafter(copiers, after if parts.joins else None, *drafters, parts.costs, parts.fences)
