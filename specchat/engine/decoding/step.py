"""The speculative step: propose, verify, keep (Leviathan et al. 2023), on whatever device."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.decoding.draft import PLAIN, Drafter
from specchat.engine.decoding.executor import Executor
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.options import Acceptance, Sampling


@dataclass(frozen=True)
class Plan:
    """How a step drafts: at most `limit` tokens."""

    drafter: Drafter
    limit: int
    acceptance: Acceptance


class Decoding:
    """A reply being written. Between steps the target's cache holds all of `committed` but its last token.

    Where a device works by itself, the next step is started before the text of the last one is looked at: detokenising
    and drawing overlap with it. A step that then turns out not to be wanted is dropped.
    """

    def __init__(
        self,
        executor: Executor,
        target: CachedModel[Model],
        sampling: Sampling,
        prompt: list[int],
        eos: Collection[int],
        slip: Callable[[], bool] = lambda: False,
    ) -> None:
        """`prompt` but its last token is in the cache of `target`; nothing is added after a token of `eos`.

        `slip` says whether a step is to draft nothing, whatever the strategy: `yardstick.py`.
        """
        self.committed = list(prompt)
        self._executor = executor
        self._target = target
        self._eos = frozenset(eos)
        self._under_way: Plan | None = None
        self._slip, self._greedy = slip, sampling.greedy
        self._slipped = False
        """Whether the step that was started last drafts nothing because of that."""
        self._drafts = False
        """Whether the step that was started last may draft."""
        executor.begin(sampling, prompt, self._eos)
        executor.costs.begin()

    @property
    def room(self) -> int:
        """How many more tokens fit the context."""
        return self._target.model.context - len(self.committed)

    def step(self, drafter: Drafter, length: int, acceptance: Acceptance, wanted: int | None = None) -> Stepped:
        """Add at least one token, at most `length` + 1, none after an end-of-text token.

        Where only so many more are `wanted` the draft is shorter, unless a device has the longer one under way: then
        there may be more than are wanted.
        """
        plan = Plan(drafter, longest(self._executor, length, self.room, wanted), acceptance)
        if self._under_way != plan:
            self.close()
            self._start(plan)
        early = self._executor.ahead and drafter.ahead
        # The device knows the token that a plain step goes on from.
        follow = early and plan.limit == 0 and not self._drafts and self.room > 1
        stepped = self._executor.verdict(follow)
        self._under_way = plan if follow else None
        self.committed += stepped.tokens
        self._target.hold(self.committed, len(self.committed) - 1)
        self._executor.costs.add(stepped.strategy, stepped)
        if not self._slipped:
            drafter.observe(self.committed, stepped)
        if early and not follow and stepped.tokens[-1] not in self._eos and self.room > length:
            self._start(plan)
        return stepped

    def close(self) -> None:
        """No more steps are wanted now: drop one that is under way."""
        if self._under_way is not None:
            self._under_way = None
            self._executor.verdict()
            self._executor.place(self.committed)

    def _start(self, plan: Plan) -> None:
        self._executor.start(plan.acceptance)
        # Where the text depends on drafts it must not depend on time.
        exact = plan.acceptance == "coupled" or self._greedy
        self._slipped = exact and plan.limit > 0 and self._slip()
        proposal = PLAIN if self._slipped else plan.drafter.propose(self.committed, plan.limit)
        self._drafts = proposal.strategy != PLAIN.strategy
        self._executor.verify(proposal)
        self._under_way = plan


def longest(executor: Executor, length: int, room: int, wanted: int | None) -> int:
    """Tokens that a draft may have where `length` is allowed, `room` is left and at most so many are `wanted`.

    Steps of a device are begun before it is known how many still are.
    """
    if wanted is not None and not executor.ahead:
        length = min(length, wanted - 1)
    return max(0, min(length, room - 1))
