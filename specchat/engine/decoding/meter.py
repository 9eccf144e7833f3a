"""A reply's figures, summed up from its steps."""

from dataclasses import dataclass, field

from specchat.engine.api import Stats
from specchat.engine.decoding.executor import Stepped


@dataclass
class Meter:
    """Counts what happened since the reply was asked for. All times in milliseconds."""

    prompt_tokens: int
    reused_tokens: int
    ttft_ms: float = 0.0
    tokens: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    steps: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    per_step: list[int] = field(default_factory=list)

    @property
    def spent_ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.other_ms

    def add(self, stepped: Stepped, emitted: int, accepted: int, elapsed_ms: float) -> float:
        """Count a step of which `emitted` tokens, `accepted` of them drafted, went into the reply.

        Returns what of the `elapsed_ms` since the first step began went into neither drafting nor verifying and is new.
        """
        # From the start, not from the last step: a device's step may have begun before that one ended.
        other_ms = max(0.0, elapsed_ms - self.spent_ms - stepped.draft_ms - stepped.verify_ms)
        self.steps += 1
        self.tokens += emitted
        self.draft_ms += stepped.draft_ms
        self.verify_ms += stepped.verify_ms
        self.other_ms += other_ms
        if stepped.drafted:
            self.drafted += stepped.drafted
            self.tested += stepped.tested
            self.accepted += accepted
            self.per_step.append(accepted)
        return other_ms

    def stats(self, plain_tokens_per_second: float) -> Stats:
        """The figures so far; the speed-up is over plain decoding as measured for this pair on this machine."""
        speed = 1e3 * self.tokens / self.spent_ms if self.spent_ms else 0.0
        steps = len(self.per_step)
        histogram = [0] * (max(self.per_step, default=-1) + 1)
        for accepted in self.per_step:
            histogram[accepted] += 1
        return Stats(
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_tokens,
            completion_tokens=self.tokens,
            ttft_ms=self.ttft_ms,
            tokens_per_second=speed,
            speedup_vs_plain=speed / plain_tokens_per_second if plain_tokens_per_second and self.tokens else None,
            num_steps=self.steps,
            num_spec_steps=steps,
            num_draft_tokens=self.drafted,
            num_tested_draft_tokens=self.tested,
            num_accepted_draft_tokens=self.accepted,
            mean_acceptance_length=1.0 + (self.accepted / steps if steps else 0.0),
            draft_acceptance_rate=self.accepted / self.drafted if self.drafted else 0.0,
            tested_acceptance_rate=self.accepted / self.tested if self.tested else 0.0,
            acceptance_histogram=tuple(histogram),
            per_step_accepted=tuple(self.per_step),
            draft_ms=self.draft_ms,
            verify_ms=self.verify_ms,
            other_ms=self.other_ms,
        )
