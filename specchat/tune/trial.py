"""Held-out speeds of strategies, each in turns with plain decoding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from specchat.bench.contender import BenchPrompt, Different
from specchat.bench.interleaved import BenchProgress, measure
from specchat.bench.ours import Ours
from specchat.engine.errors import EngineError
from specchat.engine.session import Session
from specchat.tune.replies import Question

TOKENS, REPEATS, PROMPTS = 96, 4, 12


@dataclass(frozen=True)
class HeldOutSpeed:
    """Speed of a strategy over plain by prompt, and tokens per second over all."""

    strategy: str
    times: dict[str, float]
    tokens_per_second: float


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


def held_out_speeds(
    plain: Ours, others: Sequence[Ours], prompts: Sequence[BenchPrompt], notify: Callable[[BenchProgress], None]
) -> list[HeldOutSpeed]:
    """Answer `prompts` greedily by `plain` decoding and by each of `others`; the speeds of these.

    Times are those of the steps, without waits for a processor that other programs used; of the replies to a prompt the
    median counts, for on a busy machine some are delayed.

    Raises:
        Different: a text differs.
    """
    every = {one.name: one for one in (plain, *others)}
    spent: dict[str, dict[str, list[float]]] = {name: {} for name in every}
    texts: dict[str, tuple[int, ...]] = {}
    for sample in measure([*every.values()], prompts, REPEATS, TOKENS, notify, lambda *_: None):
        key = sample.prompt.id
        if texts.setdefault(key, sample.run.tokens) != sample.run.tokens:
            raise Different(every[sample.contender].speculation.strategy)
        stats = sample.run.stats
        assert stats is not None
        spent[sample.contender].setdefault(key, []).append(1e-3 * stats.ran_ms)
    seconds = {name: {key: median(each) for key, each in some.items()} for name, some in spent.items()}
    tokens = sum(map(len, texts.values()))
    return [
        HeldOutSpeed(
            one.speculation.strategy,
            {key: seconds[plain.name][key] / mine for key, mine in seconds[one.name].items()},
            tokens / sum(seconds[one.name].values()),
        )
        for one in others
    ]
