"""One pass for the next steps of several replies, each with a copy of the target's cache.

The first reply that goes on has all others draft, runs the pass over all drafts, and the others find their logits. A
row of a pass does not depend on the others, so each reply has the text that it has alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from torch import Tensor

from specchat.engine.decoding.cached import CachedModel, HostModel, ReadsTextsApart
from specchat.engine.decoding.costs import StepCosts, VerifyCosts
from specchat.engine.decoding.draft import Copy, Proposal, Role, Tree
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.host_loops import HostDraft
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.model.tree_layout import Layout

RECENT_S = 60.0
"""Seconds without a pass after which measured times are dropped: the load may be another."""


class CommonPasses:
    """Passes of `model` over tokens of each of its companions; `alone` are the costs of steps of a reply alone."""

    def __init__(self, model: ReadsTextsApart, alone: StepCosts) -> None:
        self.model, self.alone = model, alone
        self.companions: list[Companion] = []
        self._costs, self._last = VerifyCosts(), perf_counter()

    def plain_ms(self, replies: int) -> float:
        """Milliseconds of a pass over a token each of so many replies, at first that of drafts of as many tokens."""
        if perf_counter() - self._last > RECENT_S:
            self._costs = VerifyCosts()
        return self._costs.known(replies) or self.alone.verify_ms()[replies]

    @property
    def row_ms(self) -> float:
        """Milliseconds that a drafted token adds to a pass."""
        table = self.alone.verify_ms()
        few = max(1, len(self.companions))
        return (table[-1] - table[few]) / (len(table) - 1 - few)

    def share_ms(self, rows: int) -> float:
        """Milliseconds of a pass that fall to a reply with so many rows of it."""
        replies = max(1, len(self.companions))
        return self.plain_ms(replies) / replies + (rows - 1) * self.row_ms

    def run(self) -> None:
        """Run the next pass, over all replies that wait for one."""
        waiting = [one for one in self.companions if one.waits()]
        fed, clock = [one.fed for one in waiting], self.alone.clock
        began = clock()
        positions = [len(one.text) - 1 for one in waiting]
        logits = self.model.logits_apart(fed, positions, [one.copy for one in waiting]).clone()
        ms, rows = 1e3 * (clock() - began), [len(tokens) for tokens in fed]
        drafted = sum(rows) - len(waiting)
        self._costs.add(len(waiting), max(ms - drafted * self.row_ms, ms * len(waiting) / sum(rows)))
        self._last = perf_counter()
        shares = [self.share_ms(count) for count in rows]
        for one, own, share in zip(waiting, logits.split(rows), shares, strict=True):
            one.take(own, ms * share / sum(shares), len(waiting))


class CompanyCosts(StepCosts):
    """Costs of the steps of a reply in company: of a pass its share, so that no draft pays at the cost of others."""

    def __init__(self, passes: CommonPasses) -> None:
        super().__init__(passes.alone.clock)
        self._passes = passes
        self.share(passes.alone)

    def add(self, strategy: str, outcome: StepOutcome) -> None:
        """Count one more step; what drafts take is measured alone."""
        self.measured += 1

    def verify_ms(self) -> list[float]:
        table = self._passes.alone.verify_ms()
        return [0.0, *(self._passes.share_ms(rows) for rows in range(1, len(table)))]


class Companion(HostExecutor):
    """Executor of the steps of one reply in company.

    Attributes:
        copy: of the target's cache.
        text: the reply's, with its prompt.
    """

    def __init__(
        self,
        passes: CommonPasses,
        copy: CacheCopy,
        models: Mapping[Role, CachedModel[HostModel]],
        text: list[int],
        begin: Callable[[], bool],
    ) -> None:
        """`models` hold the reply's text in copies; `begin` has its next step drafted, False where none comes."""
        super().__init__(models, trees=False, costs=CompanyCosts(passes))
        self._passes, self.copy, self.text, self._begin = passes, copy, text, begin
        self._rows: Tensor | None = None
        """Logits float32 [rows, vocab] of the pending token and the draft; None before a pass."""
        self._share_ms, self._together = 0.0, 1

    @property
    def fed(self) -> list[int]:
        """The pending token and the draft."""
        assert self._drafted is not None
        return [self.text[-1], *self._drafted.drafting.draft.tokens]

    def waits(self) -> bool:
        """True if the next pass has rows for this reply, whose draft is made by then."""
        return self._rows is None and (self._drafted is not None or self._begin())

    def take(self, rows: Tensor, share_ms: float, together: int) -> None:
        """Take rows of a pass over so many replies, and the share of its time."""
        self._rows, self._share_ms, self._together = rows, share_ms, together

    def supports(self, proposal: Proposal) -> bool:
        """True for all but a model's trees, whose entries would go to the cache instead of the copy."""
        return not isinstance(proposal, Tree) and not (isinstance(proposal, Copy) and proposal.likeliest)

    def _verified(self, drafting: HostDraft, likeliest: bool, drafted: float) -> StepOutcome:
        outcome = super()._verified(drafting, likeliest, drafted)
        return replace(outcome, verify_ms=self._share_ms, together=self._together)

    def _logits(self, fed: Sequence[int], layout: Layout | None, drafting: HostDraft) -> Tensor:
        del fed, layout, drafting
        if self._rows is None:
            self._passes.run()
        rows, self._rows = self._rows, None
        assert rows is not None
        return rows
