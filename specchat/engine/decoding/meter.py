"""A reply's figures, from its steps and the clock."""

from dataclasses import dataclass, field

from specchat.engine.api import Stats
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.tally import Tally


@dataclass
class Meter:
    """What happened since the reply was asked for. All times in milliseconds."""

    prompt_tokens: int
    reused_tokens: int
    ttft_ms: float = 0.0
    tally: Tally = field(default_factory=Tally)

    def other_ms(self, stepped: Stepped, elapsed_ms: float, ran_ms: float) -> tuple[float, float]:
        """The rest of the step that just ended, and its waits for a processor, both in milliseconds.

        Since the first step began `elapsed_ms` have passed, `ran_ms` of them without waits. The tally has all steps but
        this one, `stepped`.
        """
        # From the start, not from the last step: a device's step may have begun before that one ended.
        other_ms = max(0.0, ran_ms - self.tally.ran_ms - stepped.draft_ms - stepped.verify_ms)
        return other_ms, max(0.0, elapsed_ms - ran_ms - self.tally.waited_ms)

    def stats(self) -> Stats:
        """The figures so far."""
        return self.tally.stats(
            prompt_tokens=self.prompt_tokens, reused_tokens=self.reused_tokens, ttft_ms=self.ttft_ms
        )
