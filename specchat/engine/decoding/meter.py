"""Statistics of a reply, from its steps and the clock."""

from dataclasses import dataclass, field

from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.stats import Stats
from specchat.engine.tally import Tally


@dataclass
class Meter:
    """Statistics since the request of a reply. All times in milliseconds."""

    prompt_tokens: int
    reused_tokens: int
    ttft_ms: float = 0.0
    tally: Tally = field(default_factory=Tally)

    def other_ms(self, outcome: StepOutcome, elapsed_ms: float, ran_ms: float) -> tuple[float, float]:
        """Return the rest of the step that just ended, and its waits for a CPU, both in milliseconds.

        Since the first step began `elapsed_ms` have passed, `ran_ms` of them without waits. The tally lacks this step.
        """
        # From the start, not from the last step: on a device a step may begin before the last one ends.
        other_ms = max(0.0, ran_ms - self.tally.ran_ms - outcome.draft_ms - outcome.verify_ms)
        return other_ms, max(0.0, elapsed_ms - ran_ms - self.tally.waited_ms)

    def stats(self) -> Stats:
        """Return the statistics so far."""
        return self.tally.stats(
            prompt_tokens=self.prompt_tokens, reused_tokens=self.reused_tokens, ttft_ms=self.ttft_ms
        )
