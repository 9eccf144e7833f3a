"""Held-out speed with a trained draft over that with the one before, each measured beside plain decoding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev

from specchat.bench.contender import BenchPrompt
from specchat.bench.interleaved import BenchProgress, measure
from specchat.bench.ours import Ours
from specchat.engine.errors import EngineError
from specchat.engine.options import Sampling, Speculation
from specchat.engine.session import Session
from specchat.tune.replies import Question
from specchat.tune.trial import PROMPTS, TOKENS, Different

REPEATS = 3
SURE = 1.96
"""Standard errors on each side of a mean that hold it in 95 of 100 cases."""


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


def draft_speed(
    session: Session,
    speculation: Speculation,
    questions: Sequence[Question],
    notify: Callable[[BenchProgress], None],
) -> DraftSpeed:
    """Answer held-out `questions` greedily, drafted and plainly in turns.

    Raises:
        EngineError: no prompt leaves room for a reply.
        Different: a text differs.
    """
    made = [(question, tuple(session.tokenizer.prompt(question.chat))) for question in questions]
    fitting = [BenchPrompt(q.name, "", q.chat, ids) for q, ids in made if len(ids) + TOKENS <= session.info.context]
    if not fitting:
        raise EngineError("context", f"No held-out prompt leaves room for {TOKENS} tokens. Give other --prompts.")
    chosen = [fitting[i * len(fitting) // PROMPTS] for i in range(PROMPTS)] if len(fitting) > PROMPTS else fitting
    plain, drafted = (Ours(session, each, Sampling()) for each in (Speculation(), speculation))
    seconds: dict[str, dict[str, list[float]]] = {one.id: {plain.name: [], drafted.name: []} for one in chosen}
    texts: dict[str, tuple[int, ...]] = {}
    tokens = 0
    for sample in measure([plain, drafted], chosen, REPEATS, TOKENS, notify, lambda *_: None):
        if texts.setdefault(sample.prompt.id, sample.run.tokens) != sample.run.tokens:
            raise Different(drafted.name)
        seconds[sample.prompt.id][sample.contender].append(sample.run.seconds)
        tokens += len(sample.run.tokens) if sample.contender == drafted.name else 0
    times = {name: sum(found[plain.name]) / sum(found[drafted.name]) for name, found in seconds.items()}
    return DraftSpeed(times, tokens / sum(sum(found[drafted.name]) for found in seconds.values()))


def gain(before: DraftSpeed, after: DraftSpeed) -> Gain:
    """Compare two drafts prompt by prompt."""
    logs = [log(after.times[name] / times) for name, times in before.times.items() if name in after.times]
    mean = fmean(logs)
    spread = SURE * stdev(logs) / sqrt(len(logs)) if len(logs) > 1 else float("inf")
    return Gain(exp(mean), exp(mean - spread), exp(mean + spread))
