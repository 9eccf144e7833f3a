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
    _unslowed: float = 0.0
    """What all steps would have taken where the machine is not slow."""

    def add(self, step: Step, usual_ms: float) -> None:
        """One more step, and what its check takes where the machine is not slow."""
        self.tally.add(step)
        self._checks += step.verify_ms
        self._usual += usual_ms
        lasted = step.draft_ms + step.verify_ms + step.other_ms
        self._unslowed += lasted * usual_ms / step.verify_ms if step.verify_ms else lasted

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

    def plain_speed(self, usual: float, slowness: float) -> float:
        """What plain decoding would have had instead, in tokens per second; `usual` is what it has where the machine is
        not slow.

        As long as the reply lasted, plain decoding would have been as slow as the reply's steps were, and after that
        `slowness` times: what slows the machine for a moment slows less of what takes longer.
        """
        tokens, ms = self.tally.tokens, self.tally.milliseconds
        if not (tokens and ms and usual):
            return 0.0
        written = usual * self._unslowed / 1e3
        left = max(0.0, tokens - written)
        return 1e3 * (written + left) / (ms + 1e3 * left * slowness / usual)

    def stats(self, usual_plain_speed: float = 0.0, slowness: float = 1.0) -> Stats:
        """The figures so far. The speed-up is over `plain_speed`; None where no usual one is known."""
        return self.tally.stats(
            self.plain_speed(usual_plain_speed, slowness),
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_tokens,
            ttft_ms=self.ttft_ms,
        )
