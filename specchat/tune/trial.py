"""Held-out tokens/s with trained heads and without, taken in turns in one session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specchat.bench.contender import BenchPrompt, Different
from specchat.bench.interleaved import BenchProgress, Sample, measure
from specchat.bench.ours import Ours
from specchat.engine.errors import EngineError
from specchat.engine.options import Sampling, Speculation
from specchat.engine.session import Session
from specchat.engine.strategies import STRATEGIES
from specchat.engine.strategy import Head
from specchat.tune.replies import Question

TOKENS, REPEATS, PROMPTS = 96, 2, 12


@dataclass(frozen=True)
class Speeds:
    """Tokens per second by strategy: those by the heads, and those that the pair has without."""

    headed: dict[str, float]
    others: dict[str, float]

    @property
    def best(self) -> tuple[str, float]:
        """The fastest by the heads."""
        return max(self.headed.items(), key=lambda item: item[1])

    @property
    def before(self) -> tuple[str, float]:
        """The fastest without."""
        return max(self.others.items(), key=lambda item: item[1])

    @property
    def rise(self) -> bool:
        return self.best[1] > self.before[1]


def held_out_prompts(session: Session, questions: Sequence[Question]) -> list[BenchPrompt]:
    """At most PROMPTS of the questions, evenly over them, that leave room for a reply.

    Raises:
        EngineError: none does.
    """
    made = [(question, tuple(session.tokenizer.prompt(question.chat))) for question in questions]
    fitting = [BenchPrompt(q.name, "", q.chat, ids) for q, ids in made if len(ids) + TOKENS <= session.info.context]
    if not fitting:
        raise EngineError("context", f"No held-out prompt leaves room for {TOKENS} tokens. Give other --prompts.")
    return [fitting[i * len(fitting) // PROMPTS] for i in range(PROMPTS)] if len(fitting) > PROMPTS else fitting


def speeds(
    session: Session, head: Head, questions: Sequence[Question], told: Callable[[BenchProgress], None]
) -> Speeds:
    """Answer held-out `questions` greedily by the strategies of `head`, by `plain`, and by `draft` if the pair has one.

    Raises:
        EngineError: the heads cannot be used, with the reason, or no prompt leaves room for a reply.
        Different: a text differs.
    """
    headed = [name for name, info in STRATEGIES.items() if info.needs_head == head]
    for name in headed:
        if not (status := session.info.strategy(name)).available:
            raise EngineError("model", f"The heads were trained and cannot be used: {status.reason.rstrip('.')}.")
    others = ["plain", *(["draft"] if session.info.strategy("draft").available else [])]
    contenders = {
        name: Ours(session, Speculation() if name == "plain" else Speculation.of(name), Sampling())
        for name in [*others, *headed]
    }
    chosen = held_out_prompts(session, questions)
    samples = list(measure(list(contenders.values()), chosen, REPEATS, TOKENS, told, lambda *_: None))
    by_name = {name: [s for s in samples if s.contender == one.name] for name, one in contenders.items()}
    plain = {(s.prompt.id, s.repeat): s.run.tokens for s in by_name["plain"]}
    for name, found in by_name.items():
        if any(s.run.tokens != plain[s.prompt.id, s.repeat] for s in found):
            raise Different(name)
    return Speeds(
        {name: _speed(by_name[name]) for name in headed},
        {name: _speed(by_name[name]) for name in others},
    )


def _speed(samples: Sequence[Sample]) -> float:
    return sum(len(s.run.tokens) for s in samples) / sum(s.run.seconds for s in samples)
