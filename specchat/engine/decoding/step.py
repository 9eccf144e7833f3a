"""The speculative step: propose, extend, judge, keep."""

from collections.abc import Collection
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from torch import Tensor

from specchat.engine.api import Acceptance
from specchat.engine.decoding.acceptance import judge
from specchat.engine.decoding.draft import Drafter
from specchat.engine.decoding.sampler import History, Sampler


class Target(Protocol):
    """The model that has the last word, as the step sees it."""

    @property
    def context(self) -> int: ...
    def extend(self, tokens: list[int]) -> Tensor: ...
    def keep(self, length: int) -> None: ...


@dataclass(frozen=True)
class Stepped:
    """One verify step: `tokens` were added, the first `accepted` of them drafted. Times in milliseconds.

    `drafts` are the tokens that were proposed, `confidence` as in `Draft`.
    """

    tokens: tuple[int, ...]
    drafts: tuple[int, ...]
    confidence: tuple[float, ...]
    tested: int
    accepted: int
    draft_ms: float
    verify_ms: float

    @property
    def drafted(self) -> int:
        return len(self.drafts)


class Decoding:
    """A reply being written. Between steps the target's cache holds all of `committed` but its last token."""

    def __init__(self, target: Target, sampler: Sampler, prompt: list[int], eos: Collection[int]) -> None:
        self.target = target
        self.sampler = sampler
        self.committed = list(prompt)
        self.history = History(prompt)
        self.eos = eos

    @property
    def room(self) -> int:
        """How many more tokens fit the context."""
        return self.target.context - len(self.committed)

    def step(self, drafter: Drafter, length: int, acceptance: Acceptance) -> Stepped:
        """Add at least one token, at most `length` + 1, none after an end-of-text token."""
        start = perf_counter()
        known = len(self.committed) - 1
        try:
            draft = drafter.propose(
                self.committed, min(length, self.room - 1), self.sampler, self.history, acceptance == "ratio"
            )
            drafted = perf_counter()
            logits = self.target.extend([self.committed[-1], *draft.tokens])
            verdict = judge(logits, draft, known + 1, self.sampler, self.history, acceptance)
            tokens = self._until_eos([*draft.tokens[: verdict.accepted], verdict.token])
            known += len(tokens)
            self.committed += tokens
            for token in tokens:
                self.history.push(token)
        finally:
            self.target.keep(known)
        drafter.observe(self.committed)
        accepted = min(verdict.accepted, len(tokens))
        return Stepped(
            tokens=tuple(tokens),
            drafts=tuple(draft.tokens),
            confidence=tuple(draft.confidence),
            tested=verdict.tested,
            accepted=accepted,
            draft_ms=1e3 * (drafted - start),
            verify_ms=1e3 * (perf_counter() - drafted),
        )

    def close(self) -> None:
        """Nothing is under way between steps."""

    def _until_eos(self, tokens: list[int]) -> list[int]:
        end = next((i for i, token in enumerate(tokens) if token in self.eos), None)
        return tokens if end is None else tokens[: end + 1]
