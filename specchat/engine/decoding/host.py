"""A step on the host's processor: every part runs at once, in plain torch and numpy."""

from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter

from torch.nn.functional import pad

from specchat.engine.api import Acceptance, Sampling
from specchat.engine.decoding.acceptance import Draft, judge
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.executor import Stepped
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.model.decoder import NOTHING, Decoder, Skip


class HostDrafts:
    """Makes drafts by models on the host, for a target there or elsewhere."""

    def __init__(self, models: Mapping[Role, CachedModel[Decoder]], vocab: int) -> None:
        """`vocab` is the target's: a draft's logits are cut or padded to it where only padding differs."""
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
        """A step starts, with nothing drafted yet; `q` is kept where the ratio test asks for it."""
        self.draft = Draft()
        self._ratio = acceptance == "ratio"

    def chain(self, name: str, limit: int, one: Callable[[int], None], unsure: float) -> None:
        draft = self.draft
        try:
            for node in range(limit):
                one(node)
                # On what it drafted, not on what it would draft next: the ratio test stays exact.
                if draft.confidence[-1] < unsure:
                    break
        finally:
            for token in draft.tokens:
                self.history.pop(token)

    def fill(self, tokens: Sequence[int], confidence: Sequence[float] = ()) -> None:
        self.draft.tokens += tokens
        self.draft.confidence += confidence

    def leave_out(self, skip: Skip) -> None:
        self._skip = skip

    def run(self, role: Role, node: int, skipping: bool = False) -> None:
        cached = self._models[role]
        fed = self.draft.tokens[-1:] if node else self.text[len(cached.tokens) :]
        start = len(self.text) + node - len(fed)
        self._hidden = cached.model.forward(fed, start, self._skip if skipping else NOTHING)

    def pick(self, role: Role, node: int) -> None:
        logits = self._models[role].model.logits(self._hidden[-1:])[0]
        missing = self._vocab - logits.shape[0]
        if missing:
            logits = pad(logits, (0, missing), value=float("-inf"))
        scores = self.sampler.scores(logits, self.history)
        token = self.sampler.pick(scores, len(self.text) + node)
        draft = self.draft
        draft.tokens.append(token)
        draft.confidence.append(float(scores.softmax(0)[token]))
        if self._ratio:
            draft.q.append(self.sampler.probabilities(scores))
        self.history.push(token)

    def added(self, tokens: Sequence[int]) -> None:
        """A step added `tokens` to the text."""
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

    def __init__(self, models: Mapping[Role, CachedModel[Decoder]]) -> None:
        self._target = models["target"].model
        super().__init__(models, self._target.config.vocab)

    def begin(self, sampling: Sampling, prompt: Sequence[int], eos: Collection[int] = ()) -> None:
        super().begin(sampling, prompt)
        self._eos = eos

    def start(self, acceptance: Acceptance) -> None:
        super().start(acceptance)
        self._acceptance = acceptance
        self._started = perf_counter()

    def verify(self) -> None:
        self._drafted = perf_counter()
        logits = self._target.logits(self._target.forward([self.text[-1], *self.draft.tokens], len(self.text) - 1))
        self._judged = judge(logits, self.draft, len(self.text), self.sampler, self.history, self._acceptance)

    def verdict(self) -> Stepped:
        draft, judged = self.draft, self._judged
        tokens = [*draft.tokens[: judged.accepted], judged.token]
        end = next((i for i, token in enumerate(tokens) if token in self._eos), len(tokens))
        tokens = tokens[: end + 1]
        self.added(tokens)
        return Stepped(
            tokens=tuple(tokens),
            drafts=tuple(draft.tokens),
            confidence=tuple(draft.confidence),
            tested=judged.tested,
            accepted=min(judged.accepted, len(tokens)),
            draft_ms=1e3 * (self._drafted - self._started),
            verify_ms=1e3 * (perf_counter() - self._drafted),
        )
