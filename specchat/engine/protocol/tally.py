"""Sums over the verify steps of a reply."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from specchat.dataclass import dataclass
from specchat.engine.protocol.comparison import Comparison
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.stats import Stats, StepTimes
from specchat.engine.strategies import STRATEGIES, delegates

COPYING = {name for name, info in STRATEGIES.items() if info.group == "copied" or delegates(name)}
"""Strategies that draft from existing text."""


def mean_acceptance_length(accepted: int, steps: int) -> float | None:
    """1 + accepted tokens per verify step; None without steps."""
    return 1 + accepted / steps if steps else None


@dataclass
class Tally(StepTimes):
    """Sums over verify steps, updated at constant cost per step. Times in milliseconds."""

    steps: int = 0
    speculative: int = 0
    """Steps with a draft."""
    tokens: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    copied: int = 0
    """Accepted tokens of steps that copied, a model's tokens before a copy included."""
    again: int = 0
    shared: int = 0
    """Steps whose passes other replies shared."""
    sharing: int = 0
    """Replies in these passes."""
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    waited_ms: float = 0.0
    context_used: int = 0
    per_step: list[int] = field(default_factory=list)
    """Accepted tokens of each step with a draft."""
    families: Counter[str] = field(default_factory=Counter)
    """Steps by strategy."""
    histogram: list[int] = field(default_factory=list)
    """[j] steps with a draft that accepted exactly j tokens."""
    compared: Comparison = field(default_factory=Comparison)
    """Comparison with plain decoding."""

    @classmethod
    def of(cls, steps: Iterable[Step]) -> "Tally":
        tally = cls()
        for step in steps:
            tally.add(step)
        return tally

    def add(self, step: Step) -> None:
        self.steps += 1
        self.tokens += step.emitted
        self.draft_ms += step.draft_ms
        self.verify_ms += step.verify_ms
        self.other_ms += step.other_ms
        self.waited_ms += step.waited_ms
        self.again += step.again
        if step.together > 1:
            self.shared += 1
            self.sharing += step.together
        self.context_used = step.context_used
        self.families[step.strategy] += 1
        self.compared.add(step)
        if step.drafted:
            self.speculative += 1
            self.drafted += step.drafted
            self.tested += step.tested
            self.accepted += step.accepted
            if step.strategy in COPYING:
                self.copied += step.accepted
            self.per_step.append(step.accepted)
            missing = step.accepted + 1 - len(self.histogram)
            self.histogram += [0] * missing
            self.histogram[step.accepted] += 1

    @property
    def waiting_factor(self) -> float:
        """Slowdown by waiting for a processor; 1 without measured time."""
        return self.milliseconds / self.ran_ms if self.ran_ms > 0 else 1.0

    @property
    def tokens_per_second(self) -> float:
        return 1e3 * self.tokens / self.milliseconds if self.milliseconds > 0 else 0.0

    @property
    def acceptance_length(self) -> float | None:
        return mean_acceptance_length(self.accepted, self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted share of the draft tokens; None without drafts."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def plain_tokens_per_second(self) -> float:
        """Estimated tokens per second of plain decoding in the time of these steps; 0 if unknown."""
        known = self.compared.estimate
        return self.tokens_per_second / known.times if known is not None else 0.0

    def stats(self, *, prompt_tokens: int, reused_tokens: int = 0, ttft_ms: float = 0.0) -> Stats:
        """A reply's figures."""
        speedup = self.compared.speedup
        return Stats(
            prompt_tokens=prompt_tokens,
            reused_tokens=reused_tokens,
            completion_tokens=self.tokens,
            ttft_ms=ttft_ms,
            tokens_per_second=self.tokens_per_second,
            speedup_vs_plain=speedup.times if speedup is not None else None,
            speedup_interval=(speedup.low, speedup.high) if speedup is not None else None,
            num_steps=self.steps,
            num_spec_steps=self.speculative,
            num_draft_tokens=self.drafted,
            num_tested_draft_tokens=self.tested,
            num_accepted_draft_tokens=self.accepted,
            mean_acceptance_length=self.acceptance_length or 1.0,
            draft_acceptance_rate=self.acceptance_rate or 0.0,
            tested_acceptance_rate=self.accepted / self.tested if self.tested else 0.0,
            acceptance_histogram=tuple(self.histogram),
            per_step_accepted=tuple(self.per_step),
            num_choices_again=self.again,
            num_shared_steps=self.shared,
            num_sharing_replies=self.sharing,
            draft_ms=self.draft_ms,
            verify_ms=self.verify_ms,
            other_ms=self.other_ms,
            waited_ms=self.waited_ms,
        )
