"""A reply's figures, from its steps and the clock."""

from dataclasses import dataclass, field

from specchat.engine.api import Stats, Step
from specchat.engine.decoding.stepped import Stepped
from specchat.engine.tally import Tally


@dataclass
class Meter:
    """What happened since the reply was asked for. All times in milliseconds."""

    prompt_tokens: int
    reused_tokens: int
    ttft_ms: float = 0.0
    tally: Tally = field(default_factory=Tally)
    _checks: float = 0.0
    _usual: float = 0.0

    def add(self, step: Step, usual_ms: float) -> None:
        """One more step, and what its check takes where the machine is not slow."""
        self.tally.add(step)
        self._checks += step.verify_ms
        self._usual += usual_ms

    @property
    def slowness(self) -> float:
        """How many times what they usually take the reply's checks took; 1 without any."""
        return self._checks / self._usual if self._usual else 1.0

    def other_ms(self, stepped: Stepped, elapsed_ms: float) -> float:
        """What of the `elapsed_ms` since the first step began went into neither drafting nor verifying, and is new.

        `stepped` is the step that ended just then, not yet in the tally.
        """
        # From the start, not from the last step: a device's step may have begun before that one ended.
        return max(0.0, elapsed_ms - self.tally.milliseconds - stepped.draft_ms - stepped.verify_ms)

    def stats(self, plain_tokens_per_second: float, plain_part: float = 1.0) -> Stats:
        """The figures so far. The speed-up is over plain decoding as measured for this pair on this machine, and
        `plain_part` times as slow as the reply's own steps were."""
        return self.tally.stats(
            plain_tokens_per_second / (self.slowness * plain_part),
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_tokens,
            ttft_ms=self.ttft_ms,
        )
