"""Held-out speed with a trained draft over that with the one before, in turns with plain decoding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from specchat.bench.contender import Different
from specchat.bench.interleaved import BenchProgress, measure
from specchat.bench.ours import Ours
from specchat.bench.ratios import ratio_interval
from specchat.bench.summary import PLAIN
from specchat.engine.options import Sampling, Speculation
from specchat.engine.session import Session
from specchat.tune import trial
from specchat.tune.replies import Question
from specchat.tune.trial import held_out_prompts

REPEATS = 4


@dataclass(frozen=True)
class DraftSpeed:
    """Speed over plain by prompt, and tokens per second over all."""

    times: dict[str, float]
    tokens_per_second: float


@dataclass(frozen=True)
class Gain:
    """The factor on the speed, the geometric mean over prompts with its 95 % interval."""

    times: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """True if the trained draft is faster beyond the interval."""
        return self.low > 1.0


def draft_speeds(
    sessions: Sequence[Session],
    speculation: Speculation,
    questions: Sequence[Question],
    notify: Callable[[BenchProgress], None],
) -> list[DraftSpeed]:
    """Answer held-out `questions` greedily by the draft of each session, and plainly by the first, in turns.

    Times are those of the steps, without waits for a processor that other programs used.

    Raises:
        EngineError: no prompt leaves room for a reply.
        Different: a text differs.
    """
    first = sessions[0]
    chosen = held_out_prompts(first, questions)
    plain = Ours(first, Speculation(), Sampling(), name=PLAIN)
    drafted = [Ours(one, speculation, Sampling(), name=f"draft {number}") for number, one in enumerate(sessions, 1)]
    seconds: dict[str, dict[str, float]] = {one.name: {} for one in (plain, *drafted)}
    texts: dict[str, tuple[int, ...]] = {}
    tokens = 0
    for sample in measure([plain, *drafted], chosen, REPEATS, trial.TOKENS, notify, lambda *_: None):
        key = sample.prompt.id
        if texts.setdefault(key, sample.run.tokens) != sample.run.tokens:
            raise Different(speculation.strategy)
        stats = sample.run.stats
        assert stats is not None
        seconds[sample.contender][key] = seconds[sample.contender].get(key, 0.0) + 1e-3 * stats.ran_ms
        tokens += len(sample.run.tokens) if sample.contender == PLAIN else 0
    return [
        DraftSpeed(
            {key: seconds[PLAIN][key] / spent for key, spent in seconds[one.name].items()},
            tokens / sum(seconds[one.name].values()),
        )
        for one in drafted
    ]


def gain(before: DraftSpeed, after: DraftSpeed) -> Gain:
    """Compare two drafts prompt by prompt."""
    logs = [log(after.times[name] / times) for name, times in before.times.items() if name in after.times]
    return Gain(*ratio_interval(logs))
