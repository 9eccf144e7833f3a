"""Drafts by models on the host: every part runs at once, in plain torch and numpy, or a chain in one go."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from torch import Tensor, stack, tensor
from torch.nn.functional import one_hot, pad

from specchat.engine.decoding import noise
from specchat.engine.decoding.acceptance import Draft
from specchat.engine.decoding.cached import CachedModel, HostModel, InOneGo
from specchat.engine.decoding.draft import WIDTH, Copy, One, Role
from specchat.engine.decoding.growth import Growth
from specchat.engine.decoding.sampler import Sampler
from specchat.engine.decoding.stop import Stop, Stops
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.going import Going
from specchat.engine.options import Acceptance, Sampling
from specchat.engine.strategies import MAX_DRAFT_LENGTH


class HostDrafts:
    """Makes drafts by models on the host, for a target there or elsewhere."""

    def __init__(self, models: Mapping[Role, CachedModel[HostModel]], vocab: int, stops: Stops) -> None:
        """`vocab` is the target's: a draft's logits are cut or padded to it where only padding differs."""
        self.stops = stops
        self._models = models
        # Asked once: whether a class has what a protocol names takes longer to find out than a token to draft.
        self._chainers = {role: one.model for role, one in models.items() if isinstance(one.model, InOneGo)}
        self._vocab = vocab
        self._skip: Skip = NOTHING
        self.begin(Sampling(), [])

    def begin(self, sampling: Sampling, prompt: Sequence[int], eos: Collection[int] = ()) -> None:
        """A reply to `prompt` starts, which a token of `eos` ends: nothing is drafted after one."""
        self.ends, self._end_tokens = frozenset(eos), np.array(sorted(eos), np.int64)
        self.sampler = Sampler(sampling)
        self.text = list(prompt)
        self.history = self.sampler.history(prompt)
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
        self._stop: Stop | None = None
        self._coming: list[tuple[int, float]] = []
        """Tokens that a model drafted in one go, with their probabilities, until they are picked."""
        self._ended = False
        """Whether one did, and so the chain has ended."""
        self._told = 0
        """Tokens of the model that its stop was told of; of those in one go only where a copy depends on it."""
        self._acceptance = acceptance
        self._timed = acceptance == "coupled" or self.sampler.greedy
        self.stops.start()

    def chain(self, name: str, limit: int, one: Callable[[int], None], at_once: bool = False) -> None:
        draft, stop = self.draft, self.stops.begin(name, self._timed, at_once)
        self._stop, self._limit = stop, limit
        self._go_on_after(draft)
        try:
            while (made := len(draft.tokens)) < limit:
                one(made)
                # On what it drafted, not on what it would draft next: the ratio test stays exact.
                ends = self._ended or self._judge(stop)
                if draft.tokens[-1] in self.ends:
                    break
                # Of a chain that was drafted in one go a copy would save nothing but at its end.
                if self._copy is not None and (added := self._copy(draft.tokens, self._chance)):
                    self.switch = len(draft.tokens)
                    self._add(added)
                    break
                if ends:
                    break
        finally:
            self._stop = None
            for token in draft.tokens:
                self.history.pop(token)

    def _judge(self, stop: Stop) -> bool:
        """Tell where a chain ends of all tokens that it was not told of; whether it ends with the last."""
        ends = False
        for probability in self.draft.confidence[self._told :]:
            ends = stop.ends(probability)
        self._told = len(self.draft.confidence)
        return ends

    def _chance(self) -> float:
        """That all tokens of the model stay."""
        assert self._stop is not None
        self._judge(self._stop)
        return self._stop.chance

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
        start = len(self.text) + node - len(fed)
        if self._stop is not None and (chainer := self._chainers.get(role)) is not None:
            self._coming = self._in_one_go(chainer, self._stop, fed, start, node, skip)
        if not self._coming:
            self._hidden = cached.model.forward(fed, start, skip)

    def _in_one_go(
        self, model: InOneGo, stop: Stop, fed: Sequence[int], start: int, node: int, skip: Skip
    ) -> list[tuple[int, float]]:
        """The tokens after `fed` that a chain goes on with, as far as a model drafts several without being asked."""
        sampler = self.sampler
        if not self._timed or self._acceptance != "coupled" or not sampler.temperature_alone:
            return []
        temperature = 0.0 if sampler.greedy else sampler.sampling.temperature
        seed, vocab = sampler.sampling.seed & noise.WORD, min(self._ran.vocab, self._vocab)
        shares, least = stop.known()
        return model.drafted(
            fed,
            start,
            Going(self._limit - node, vocab, temperature, seed, shares, stop.chance, least, self._end_tokens),
            skip,
        )

    def pick(self, role: Role, node: int) -> None:
        draft = self.draft
        if self._coming:
            tokens, confidence = zip(*self._coming, strict=True)
            draft.tokens += tokens
            draft.confidence += confidence
            self._coming, self._ended = [], True
            return
        scores = self.sampler.scores(self._logits(role, 1)[0], self.history)
        stream = noise.LATER + node if node and self._acceptance == "block" else noise.TOKEN
        token = self.sampler.pick(scores, len(self.text) + node, stream)
        draft.tokens.append(token)
        draft.confidence.append(self.sampler.probability(scores, token))
        if self._acceptance != "coupled":
            draft.q.append(self.sampler.probabilities(scores))
        self.history.push(token)

    def sure(self, chance: float) -> None:
        self.draft.confidence[-1] = chance

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
        """Logits float32 [rows, vocab], on the host, of the last rows that `run` went over."""
        logits = self._models[role].model.logits(self._hidden[-rows:]).cpu()
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
