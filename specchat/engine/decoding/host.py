"""A step on the host's processor: every part runs at once, in plain torch and numpy."""

from collections.abc import Mapping, Sequence

from torch import Tensor, cat

from specchat.engine.decoding.acceptance import judge
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.host_drafts import HostDrafts
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.decoding.stop import Stops
from specchat.engine.decoding.waiting import Waiting
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.runs import Runs, depth_first
from specchat.engine.options import Acceptance


class HostExecutor(HostDrafts):
    """Drafts, verifies and judges on the host."""

    ahead = False

    def __init__(
        self, models: Mapping[Role, CachedModel[HostModel]], guard: Guard | None = None, trees: bool = True
    ) -> None:
        """`guard` where rows of the target depend on how many there are; `trees` where it takes them."""
        self._target = models["target"].model
        self._guard = guard
        self._trees = trees
        self.costs = StepCosts(Waiting().clock)
        super().__init__(models, self._target.vocab, Stops(self.costs))

    def start(self, acceptance: Acceptance) -> None:
        super().start(acceptance)
        self._early: list[Tensor] = []
        """Hidden states float32 [1, hidden] of nodes 0, 1, ... after the first layers, where these drafted."""
        self._started = self.costs.clock()

    def run_early(self, layers: int, node: int) -> None:
        target = self._target
        assert isinstance(target, CachedDecoder)
        fed = target.embedded(self.draft.tokens[-1:] or self.text[-1:])
        self._hidden = target.onward(fed, 0, layers, len(self.text) - 1 + node)
        self._early.append(self._hidden)
        self._layers = layers

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = (), parents: Sequence[int] = ()) -> None:
        if parents and not self._trees:
            # The first path of a tree: the likeliest of siblings comes first.
            length = next((i for i, parent in enumerate(parents) if parent != i), len(parents))
            tokens, confidence, parents = tokens[:length], confidence[:length], ()
        super().fill(tokens, confidence, parents)

    def verify(self) -> None:
        self._drafted = self.costs.clock()
        draft = self.draft
        runs = depth_first(draft.parents)
        branched = len(runs.lengths) > 1
        fed = [self.text[-1], *draft.tokens]
        logits = self._scores(fed, runs if branched else None)
        self._again = 0
        # Without a draft each test makes the same choice.
        if self._guard is not None and (self._timed or not draft.tokens):
            logits, self._again = self._guard.settle(logits, fed, len(self.text) - 1, self.sampler, self.history)
        self._likeliest: tuple[int, ...] = ()
        if self._wants_likeliest:
            self._likeliest = tuple(logits.numpy().argmax(-1).tolist())
        self._judged = judge(logits, draft, len(self.text), self.sampler, self.history, self._acceptance)
        if branched:
            self._target.keep(self._judged.path, len(self.text))

    def _scores(self, fed: Sequence[int], runs: Runs | None) -> Tensor:
        """Logits float32 [len(fed), vocab] after the pending token and the drafted ones."""
        start, begun, target = len(self.text) - 1, len(self._early), self._target
        if not isinstance(target, CachedDecoder):
            return target.logits(target.forward(fed, start, runs=runs))
        if not begun:
            return target.scored(fed, start, runs)
        last = target.onward(target.embedded(fed[begun:]), 0, self._layers, start + begun)
        return target.logits(target.onward(cat([*self._early, last]), self._layers, target.config.layers, start))

    def verdict(self, follow: bool = False) -> Stepped:
        draft, judged = self.draft, self._judged
        tokens = [*(draft.tokens[node - 1] for node in judged.path), judged.token]
        end = next((i for i, token in enumerate(tokens) if token in self.ends), len(tokens))
        tokens = tokens[: end + 1]
        path = judged.path[: len(tokens)]
        self.added(tokens, path)
        stepped = Stepped(
            tokens=tuple(tokens),
            drafts=tuple(draft.tokens),
            confidence=self._confidence(),
            tested=judged.tested,
            path=path,
            draft_ms=1e3 * max(0.0, self._drafted - self._started),
            verify_ms=1e3 * max(0.0, self.costs.clock() - self._drafted),
            parents=tuple(draft.parents),
            switch=self.switch,
            again=self._again,
            likeliest=self._likeliest,
            begun=len(self._early),
        )
        self.stops.observe(stepped)
        return stepped
