"""A reply's figures, from its steps and the clock."""

from dataclasses import dataclass, field

from specchat.engine.api import Stats, Step
from specchat.engine.decoding.slowness import MOST
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
    _plain: float = 0.0
    """What steps without a draft took, but for finding out that there was to be none."""
    _drafting: float = 0.0
    _drafting_unslowed: float = 0.0
    """What the other steps took, and would have taken where the machine is not slow."""
    _by_drafting: int = 0
    """Tokens of these."""

    def add(self, step: Step, usual_ms: float) -> None:
        """One more step, and what its check takes where the machine is not slow."""
        self.tally.add(step)
        self._checks += step.verify_ms
        self._usual += usual_ms
        if not step.drafted:
            self._plain += step.verify_ms + step.other_ms
            return
        lasted = step.draft_ms + step.verify_ms + step.other_ms
        self._drafting += lasted
        self._drafting_unslowed += lasted * (min(usual_ms / step.verify_ms, MOST) if step.verify_ms else 1.0)
        self._by_drafting += step.emitted

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

        What steps without a draft took it would have taken, too. As long as the others lasted it would have been as
        slow as these were, and after that `slowness` times: what slows the machine for a moment slows less of what
        takes longer.
        """
        if not (self.tally.tokens and usual):
            return 0.0
        ms, tokens = self._plain, self._by_drafting
        written = usual * self._drafting_unslowed / 1e3
        if written > tokens:
            ms += self._drafting * tokens / written
        elif tokens:
            ms += self._drafting + 1e3 * (tokens - written) * slowness / usual
        return 1e3 * self.tally.tokens / ms if ms else 0.0

    def stats(self, usual_plain_speed: float = 0.0, slowness: float = 1.0) -> Stats:
        """The figures so far. The speed-up is over `plain_speed`; None where no usual one is known."""
        return self.tally.stats(
            self.plain_speed(usual_plain_speed, slowness),
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_tokens,
            ttft_ms=self.ttft_ms,
        )
