"""One pass for the next plain steps of several replies, each with a copy of the target's cache.

The first reply that goes on runs the pass, and the others find their logits. A row of a pass does not depend on the
others, so each reply has the text that it has alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from torch import Tensor

from specchat.engine.decoding.cached import CachedModel, ReadsTextsApart
from specchat.engine.decoding.costs import VerifyCosts
from specchat.engine.decoding.draft import Proposal
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.host_loops import HostDraft
from specchat.engine.model.cache_copy import CacheCopy
from specchat.engine.model.tree_layout import Layout

RECENT_S = 60.0
"""Seconds without a pass after which measured times are dropped: the load may be another."""


class CommonPasses:
    """Passes of `model` over a token of each of its companions.

    Attributes:
        kind: the executors of replies that need no other executor than the pair's when they are alone.
    """

    def __init__(self, model: ReadsTextsApart, kind: "type[Companion] | None" = None) -> None:
        self.model, self.kind = model, kind or Companion
        self.companions: list[Companion] = []
        self._costs, self._last = VerifyCosts(), perf_counter()
        self._before: list[CacheCopy] = []
        """The copies of the last pass."""

    def known_ms(self, replies: int) -> float:
        """Milliseconds of a pass over so many replies, 0 if the last ones are unknown or long ago."""
        if perf_counter() - self._last > RECENT_S:
            self._costs = VerifyCosts()
        return self._costs.known(replies)

    def run(self) -> None:
        """Run the next pass, over all replies that wait for one."""
        waiting = [one for one in self.companions if one.waits]
        texts, copies = [one.text for one in waiting], [one.copy for one in waiting]
        clock = waiting[0].costs.clock
        began = clock()
        logits = self.model.logits_apart([text[-1] for text in texts], [len(text) - 1 for text in texts], copies)
        try:
            for one, row in zip(waiting, logits.clone().split(1), strict=True):
                one.take(row)
        finally:  # those that have a row read it, whatever became of the others
            self.model.finish()
        ms = 1e3 * (clock() - began)
        if copies == self._before:  # a GPU captures the first pass of others
            self._costs.add(len(waiting), ms)
        self._before, self._last = copies, perf_counter()
        for one in waiting:
            one.pass_ms, one.together = ms, len(waiting)


class Companion(HostExecutor):
    """Executor of the plain steps of one reply in company.

    Attributes:
        cached: the target with the tokens that the copy holds.
        copy: of the cache.
        text: the reply's, with its prompt.
        pass_ms: milliseconds of the last pass with a row for it, over `together` replies.
    """

    def __init__(self, passes: CommonPasses, copy: CacheCopy, text: list[int], ended: Callable[[], bool]) -> None:
        """`ended` is True once the reply wants no further token."""
        self.cached = CachedModel(passes.model)
        super().__init__({"target": self.cached})
        self._passes, self.copy, self.text, self._ended = passes, copy, text, ended
        self._row: Tensor | None = None
        """Logits float32 [1, vocab] after the text; None before a pass."""
        self.pass_ms, self.together = 0.0, 1

    @property
    def waits(self) -> bool:
        """True if the next pass has a row for this reply."""
        return self._row is None and not self._ended()

    def take(self, row: Tensor) -> None:
        """Take a row of a pass."""
        self._row = row

    def verify(self, proposal: Proposal) -> None:
        super().verify(proposal)
        self._outcome = replace(self._outcome, verify_ms=self.pass_ms, together=self.together)

    def _logits(self, fed: Sequence[int], layout: Layout | None, drafting: HostDraft) -> Tensor:
        del fed, layout, drafting
        return self._taken().cpu()

    def _taken(self) -> Tensor:
        """The next row, for which a pass is run if there is none."""
        if self._row is None:
            self._passes.run()
        row, self._row = self._row, None
        assert row is not None
        return row
