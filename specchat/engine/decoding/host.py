"""Executor of steps on the host's CPU: every part runs eagerly, in torch and numpy.

Its clock leaves out waits for a CPU: they hit any kind of step, so step costs exclude them.
"""

from collections.abc import Mapping, Sequence
from os import O_RDONLY, close, pread
from os import open as open_file
from pathlib import Path
from threading import local
from time import perf_counter
from weakref import finalize

from torch import Tensor, cat, tensor

from specchat.engine.decoding.acceptance import judge
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Copy, Proposal, Role
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.host_loops import HostDraft, HostLoops
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.outcome import Logprobs, StepOutcome
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import PassRows
from specchat.engine.model.tree_layout import Layout, depth_first
from specchat.engine.protocol.options import Acceptance

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds the thread ran, nanoseconds it waited to run, number of runs
(Documentation/scheduler/sched-stats)."""
MOST_BYTES = 128


class Scheduled:
    """The schedstat file of the thread that opens it."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = None
        try:
            self._file = open_file(path, O_RDONLY)
        except OSError:
            return
        finalize(self, close, self._file)

    def waited_ms(self) -> float:
        """Return the milliseconds waited since the thread began; 0 if the system does not provide them."""
        if self._file is None:
            return 0.0
        try:
            return int(pread(self._file, MOST_BYTES, 0).split()[1]) / 1e6
        except (OSError, ValueError, IndexError):
            return 0.0


class Waiting(local):
    """Clock that excludes waits, with state per thread."""

    def __init__(self, path: Path = SCHEDULED) -> None:
        self._scheduled = Scheduled(path)
        self._known_ms = 0.0

    def clock(self) -> float:
        """Return seconds without those that the thread waited."""
        while True:
            now, waited_ms = perf_counter(), self._scheduled.waited_ms()
            # A wait between the two readings would set the clock back.
            if waited_ms == self._known_ms:
                return now - waited_ms / 1e3
            self._known_ms = waited_ms


class HostExecutor:
    """Executor on the host."""

    asynchronous, joins = False, True

    def __init__(
        self, models: Mapping[Role, CachedModel[HostModel]], guard: Guard | None = None, trees: bool = True
    ) -> None:
        """Create an executor; `guard` is for a target with size-dependent logits, `trees` if it supports trees."""
        self.target = models["target"].model
        self._guard, self._trees = guard, trees
        self.costs = StepCosts(Waiting().clock)
        self.policies = LengthPolicies(self.costs)
        self.loops = HostLoops(models, self.target.vocab, self.policies)
        self._top: int | None = None
        """Tokens of a place whose log-probabilities are wanted; None for none at all."""

    def begin(self, rules: ReplyRules, prompt: list[int]) -> None:
        self.loops.begin(rules, prompt)
        self._top = rules.top

    def supports(self, proposal: Proposal) -> bool:
        """Return True: all proposals run here."""
        del proposal
        return True

    def start(self, acceptance: Acceptance) -> None:
        self.loops.start(acceptance)
        self._started = self.costs.clock()

    def verify(self, proposal: Proposal) -> None:
        likeliest = isinstance(proposal, Copy) and proposal.likeliest
        if isinstance(proposal, Copy) and proposal.parents and not self._trees:
            proposal = proposal.first_path()
        drafting = self.loops.make(proposal)
        drafted = self.costs.clock()
        self._outcome = self._verify_draft(drafting, likeliest, drafted)
        self.policies.observe(self._outcome)

    def outcome(self, follow: bool = False) -> StepOutcome:
        return self._outcome

    def rewind(self, token_ids: list[int]) -> None:
        self.loops.rewind(token_ids)

    def _verify_draft(self, drafting: HostDraft, likeliest: bool, drafted: float) -> StepOutcome:
        """Verify a draft finished at time `drafted`, and add the accepted tokens to the text."""
        loops, draft = self.loops, drafting.draft
        position, layout = len(loops.token_ids), depth_first(draft.parents)
        branched = len(layout.lengths) > 1
        fed = [loops.token_ids[-1], *draft.tokens]
        logits, again = self._logits(fed, layout if branched else None, drafting), 0
        # Without a draft all acceptance tests make the same choice.
        if self._guard is not None and (loops.timed or not draft.tokens):
            logits, again = self._guard.settle(logits, fed, position - 1, loops.sampler, loops.history)
        rows = logits.numpy().argmax(-1).tolist() if likeliest else ()
        judged = judge(logits, draft, position, loops.sampler, loops.history, loops.acceptance)
        if branched:
            self.target.keep(judged.path, position)
        tokens = [*(draft.tokens[node - 1] for node in judged.path), judged.token]
        end = next((i for i, token in enumerate(tokens) if token in loops.ends), len(tokens))
        tokens = tokens[: end + 1]
        path = judged.path[: len(tokens)]
        rows_of = (0, *path)[: len(tokens)]
        likelihoods = () if self._top is None else logprobs(logits, rows_of, tokens, self._top)
        loops.commit(tokens, path)
        return StepOutcome(
            tokens=tuple(tokens),
            drafts=tuple(draft.tokens),
            confidence=drafting.confidence(),
            tested=judged.tested,
            path=path,
            draft_ms=1e3 * max(0.0, drafted - self._started),
            verify_ms=1e3 * max(0.0, self.costs.clock() - drafted),
            parents=tuple(draft.parents),
            strategy=drafting.strategy,
            sources=drafting.sources,
            switch=drafting.switch,
            again=again,
            likeliest=tuple(rows),
            begun=len(drafting.early),
            logprobs=likelihoods,
        )

    def _logits(self, fed: Sequence[int], layout: Layout | None, drafting: HostDraft) -> Tensor:
        """Return logits float32 [len(fed), vocab] of the pending token and the draft."""
        start, begun, target = len(self.loops.token_ids) - 1, len(drafting.early), self.target
        if not isinstance(target, CachedDecoder):
            return target.logits(target.forward(fed, start, layout=layout))
        if not begun:
            return target.logits_after(fed, start, layout)
        after, first, others = fed[begun:], range(drafting.layers), range(drafting.layers, target.config.layers)
        last = target.run_and_record(target.embed(after), first, PassRows(after, start + begun))
        return target.logits(target.run_and_record(cat([*drafting.early, last]), others, PassRows(fed, start)))


def logprobs(logits: Tensor, rows: Sequence[int], tokens: Sequence[int], top: int) -> tuple[Logprobs, ...]:
    """Return the log-softmax of each token by the target's own logits, and the `top` largest ones of its row.

    Args:
        logits: float32 [any, vocab].
        rows: the row that each of `tokens` follows.
    """
    scores = logits[list(rows)].double().log_softmax(-1)
    own = scores.gather(1, tensor(tokens)[:, None])[:, 0].tolist()
    largest = scores.topk(min(top, scores.shape[1]), -1)
    best = zip(largest.indices.tolist(), largest.values.tolist(), strict=True)
    return tuple(
        Logprobs(token, value, tuple(zip(*row, strict=True)))
        for token, value, row in zip(tokens, own, best, strict=True)
    )
