"""A step on the host's processor: every part runs at once, in plain torch and numpy."""

from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter

from torch import Tensor, cat, stack, tensor
from torch.nn.functional import one_hot, pad

from specchat.engine.decoding import noise
from specchat.engine.decoding.acceptance import Draft, judge
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import WIDTH, Copy, One, Role
from specchat.engine.decoding.growth import Growth
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.decoding.stop import Stops
from specchat.engine.model.decoder import NOTHING, CachedDecoder, Skip
from specchat.engine.model.runs import Runs, depth_first
from specchat.engine.options import Acceptance, Sampling
from specchat.engine.strategies import MAX_DRAFT_LENGTH


class HostDrafts:
    """Makes drafts by models on the host, for a target there or elsewhere."""

    def __init__(self, models: Mapping[Role, CachedModel[HostModel]], vocab: int, stops: Stops) -> None:
        """`vocab` is the target's: a draft's logits are cut or padded to it where only padding differs."""
        self.stops = stops
        self._models = models
        self._vocab = vocab
        self._skip: Skip = NOTHING
        self.begin(Sampling(), [])

    def begin(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        """A reply to `prompt` starts."""
        self.sampler = Sampler(sampling)
        self.text = list(prompt)
        self.history = History(prompt)
        self.start("coupled")

    def start(self, acceptance: Acceptance) -> None:
        """A step starts, with nothing drafted yet; `q` is kept where the ratio or the block test asks for it."""
        self.draft = Draft()
        self.copied = 0
        """Tokens of the draft that a chain goes on after."""
        self.switch = 0
        """Tokens of the draft before those that another family added; 0 where one made all."""
        self._copy: Copy | None = None
        self._wants_likeliest = False
        self._growth: Growth | None = None
        self._acceptance = acceptance
        self._timed = acceptance == "coupled" or self.sampler.greedy
        self.stops.start()

    def chain(self, name: str, limit: int, one: Callable[[int], None]) -> None:
        draft, stop = self.draft, self.stops.begin(name, self._timed)
        self._go_on_after(draft)
        try:
            for node in range(self.copied, limit):
                one(node)
                # On what it drafted, not on what it would draft next: the ratio test stays exact.
                ends = stop.ends(draft.confidence[-1])
                if self._copy is not None and (added := self._copy(draft.tokens, stop.chance)):
                    self.switch = len(draft.tokens)
                    self._add(added)
                    break
                if ends:
                    break
        finally:
            for token in draft.tokens:
                self.history.pop(token)

    def _go_on_after(self, draft: Draft) -> None:
        copied = list(draft.tokens)
        self.copied = self.switch = len(copied)
        draft.tokens.clear()
        draft.confidence.clear()
        self._add(copied)

    def _add(self, copied: Sequence[int]) -> None:
        """Draft what was copied, of which no probability is told and which is sure where `q` is asked for."""
        for token in copied:
            self.draft.tokens.append(token)
            self.history.push(token)
            if self._acceptance != "coupled":
                self.draft.q.append(one_hot(tensor(token), self._vocab).double())

    def _confidence(self) -> tuple[float | None, ...]:
        """The probability of each token, None for those that were copied beside a model's."""
        sure = self.draft.confidence
        after = len(self.draft.tokens) - self.copied - len(sure) if sure else 0
        return (*[None] * self.copied, *sure, *[None] * after)

    def follow(self, copy: Copy) -> None:
        self._copy = copy

    def grow(self, name: str, limit: int, one: One, least: float, levels: int = MAX_DRAFT_LENGTH) -> None:
        self._growth = growth = Growth(least)
        for level in range(min(limit, levels)):
            found = len(growth)
            one(level)
            growth.advance(found)
            if not growth.frontier:
                break
        self.draft, self._order = growth.best(limit)

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = (), parents: Sequence[int] = ()) -> None:
        self.draft = Draft(list(tokens), list(parents), confidence=list(confidence))

    def want_likeliest(self) -> None:
        self._wants_likeliest = True

    def leave_out(self, skip: Skip) -> None:
        self._skip = skip

    def run(self, role: Role, node: int, skipping: bool = False) -> None:
        cached, skip = self._models[role], self._skip if skipping else NOTHING
        self._ran = cached.model
        if node and (growth := self._growth) is not None:
            fed = growth.tokens(growth.frontier)
            self._hidden = cached.model.forward(fed, len(self.text) - 1, skip, growth.runs())
            return
        fed = self.draft.tokens[-1:]
        if node == self.copied:
            fed = [*self.text[len(cached.tokens) :], *self.draft.tokens]
        self._hidden = cached.model.forward(fed, len(self.text) + node - len(fed), skip)

    def pick(self, role: Role, node: int) -> None:
        scores = self.sampler.scores(self._logits(role, 1)[0], self.history)
        stream = noise.LATER + node if node and self._acceptance == "block" else noise.TOKEN
        token = self.sampler.pick(scores, len(self.text) + node, stream)
        draft = self.draft
        draft.tokens.append(token)
        draft.confidence.append(self.sampler.probability(scores, token))
        if self._acceptance != "coupled":
            draft.q.append(self.sampler.probabilities(scores))
        self.history.push(token)

    def branch(self, role: Role, level: int) -> None:
        assert self._growth is not None
        growth = self._growth
        logits = self._logits(role, len(growth.frontier))
        scores = stack([self._scores_after(*of) for of in zip(growth.frontier, logits, strict=True)])
        noisy = self._acceptance == "coupled"
        likely = self.sampler.perturbed(scores, len(self.text) + level) if noisy else scores
        shares, tokens = likely.softmax(-1).topk(WIDTH)
        probabilities = shares if likely is scores else scores.softmax(-1).gather(1, tokens)
        found = zip(growth.frontier, tokens.tolist(), probabilities.tolist(), shares.tolist(), strict=True)
        for parent, *rows in found:
            growth.add(parent, *rows)

    def _scores_after(self, node: int, logits: Tensor) -> Tensor:
        """Processed scores float32 [vocab] after a node and those before it."""
        assert self._growth is not None
        before = self._growth.tokens(self._growth.path(node))
        for token in before:
            self.history.push(token)
        scores = self.sampler.scores(logits, self.history)
        for token in before:
            self.history.pop(token)
        return scores

    def _logits(self, role: Role, rows: int) -> Tensor:
        """Logits float32 [rows, vocab] of the last rows that `run` went over."""
        logits = self._models[role].model.logits(self._hidden[-rows:])
        missing = self._vocab - logits.shape[1]
        return pad(logits, (0, missing), value=float("-inf")) if missing else logits

    def added(self, tokens: Sequence[int], path: Sequence[int]) -> None:
        """A step added `tokens` to the text, the first ones being the nodes of `path`."""
        if (growth := self._growth) is not None and path:
            rows = growth.rows([self._order[node - 1] for node in path])
            self._ran.keep(rows, len(self.text))
        self.text += tokens
        for token in tokens:
            self.history.push(token)

    def place(self, text: Sequence[int]) -> None:
        """Set the text back to `text`."""
        for token in self.text[len(text) :]:
            self.history.pop(token)
        del self.text[len(text) :]


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
        self.costs = StepCosts()
        super().__init__(models, self._target.vocab, Stops(self.costs))

    def begin(self, sampling: Sampling, prompt: Sequence[int], eos: Collection[int] = ()) -> None:
        super().begin(sampling, prompt)
        self._eos = eos

    def start(self, acceptance: Acceptance) -> None:
        super().start(acceptance)
        self._early: list[Tensor] = []
        """Hidden states float32 [1, hidden] of nodes 0, 1, ... after the first layers, where these drafted."""
        self._started = perf_counter()

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
        self._drafted = perf_counter()
        draft = self.draft
        runs = depth_first(draft.parents)
        branched = len(runs.lengths) > 1
        fed = [self.text[-1], *draft.tokens]
        logits = self._target.logits(self._checked(fed, runs if branched else None))
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

    def _checked(self, fed: Sequence[int], runs: Runs | None) -> Tensor:
        """Hidden states float32 [len(fed), hidden] of the pending token and the drafted ones."""
        start, begun, target = len(self.text) - 1, len(self._early), self._target
        if not begun:
            return target.forward(fed, start, runs=runs)
        assert isinstance(target, CachedDecoder)
        last = target.onward(target.embedded(fed[begun:]), 0, self._layers, start + begun)
        return target.onward(cat([*self._early, last]), self._layers, target.config.layers, start)

    def verdict(self) -> Stepped:
        draft, judged = self.draft, self._judged
        tokens = [*(draft.tokens[node - 1] for node in judged.path), judged.token]
        end = next((i for i, token in enumerate(tokens) if token in self._eos), len(tokens))
        tokens = tokens[: end + 1]
        path = judged.path[: len(tokens)]
        self.added(tokens, path)
        stepped = Stepped(
            tokens=tuple(tokens),
            drafts=tuple(draft.tokens),
            confidence=self._confidence(),
            tested=judged.tested,
            path=path,
            draft_ms=1e3 * (self._drafted - self._started),
            verify_ms=1e3 * (perf_counter() - self._drafted),
            parents=tuple(draft.parents),
            switch=self.switch,
            again=self._again,
            likeliest=self._likeliest,
            begun=len(self._early),
        )
        self.stops.observe(stepped)
        return stepped
