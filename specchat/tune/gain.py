"""Held-out speed of a pair as a tune would leave it, over its speed as it is."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

import torch

from specchat.bench.contender import BenchPrompt, Different
from specchat.bench.interleaved import BenchProgress, measure, ratio_interval
from specchat.bench.ours import Ours
from specchat.bench.preflight import BUSY
from specchat.bench.summary import PLAIN
from specchat.engine.errors import EngineError
from specchat.engine.hardware.gpu import CHOSEN
from specchat.engine.loading import load
from specchat.engine.memory.need import Place
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.session import Session
from specchat.tune.replies import Question
from specchat.tune.room import free_bytes

TOKENS, REPEATS, PROMPTS = 96, 4, 12


@dataclass(frozen=True)
class HeldOutSpeed:
    """Speed of a strategy over plain by prompt, tokens per second over all, and the share of time that was waited."""

    strategy: str
    times: dict[str, float]
    tokens_per_second: float
    waited: float = 0.0


def held_out_prompts(session: Session, questions: Sequence[Question]) -> list[BenchPrompt]:
    """At most PROMPTS of the questions, evenly over them, that leave room for a reply.

    Raises:
        EngineError: none does.
    """
    pairs = [(question, tuple(session.tokenizer.prompt(question.chat))) for question in questions]
    fitting = [BenchPrompt(q.name, "", q.chat, ids) for q, ids in pairs if len(ids) + TOKENS <= session.info.context]
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
    waited_ms = whole_ms = 0.0
    for sample in measure([*every.values()], prompts, REPEATS, TOKENS, notify, lambda *_: None):
        key = sample.prompt.id
        if texts.setdefault(key, sample.run.tokens) != sample.run.tokens:
            raise Different(every[sample.contender].speculation.strategy)
        stats = sample.run.stats
        assert stats is not None
        spent[sample.contender].setdefault(key, []).append(1e-3 * stats.ran_ms)
        waited_ms, whole_ms = waited_ms + stats.waited_ms, whole_ms + stats.milliseconds
    seconds = {name: {key: median(each) for key, each in some.items()} for name, some in spent.items()}
    tokens = sum(map(len, texts.values()))
    return [
        HeldOutSpeed(
            one.speculation.strategy,
            {key: seconds[plain.name][key] / mine for key, mine in seconds[one.name].items()},
            tokens / sum(seconds[one.name].values()),
            waited_ms / whole_ms,
        )
        for one in others
    ]


@dataclass(frozen=True)
class Side:
    """A pair as it is loaded, and the strategies that it is measured by."""

    spec: PairSpec
    speculations: Sequence[Speculation]


@dataclass(frozen=True)
class Gain:
    """The factor on the speed, the geometric mean over prompts with its 95 % interval."""

    times: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """True if the pair is faster beyond the interval."""
        return self.low > 1.0


@dataclass(frozen=True)
class TuneComparison:
    """The fastest strategy of each side, and the gain between them."""

    before: HeldOutSpeed
    after: HeldOutSpeed
    gain: Gain

    @property
    def waited(self) -> float:
        """Share of the time that replies waited for a processor."""
        return max(self.before.waited, self.after.waited)

    @property
    def busy(self) -> bool:
        """True if other programs used the processor, so that the figures are unsure."""
        return self.waited > BUSY


def compared(
    before: Side,
    after: Side,
    questions: Sequence[Question],
    show: Callable[[Loading], None],
    notify: Callable[[BenchProgress], None],
) -> TuneComparison:
    """Answer held-out `questions` as the pair is and as it would be, beside each other where memory holds both.

    Strategies that `before` does not support are left out.

    Raises:
        EngineError: a pair cannot be loaded, no prompt leaves room for a reply, or `after` lacks a strategy.
        Different: a text is not plain decoding's.
    """
    gc.collect()  # the session that was trained for is not needed beside these
    first = load(before.spec, show)
    prompts = held_out_prompts(first, questions)
    device = first.runner.place
    free = free_bytes(CHOSEN.device if device == "cuda" else torch.device("cpu"))
    after = replace(after, spec=_placed(after.spec, device))
    # Beside each other they are measured in the same seconds.
    if free is None or free > 2 * first.info.load.memory:
        second = load(after.spec, show)
        old, new = _contenders(first, before, 1), _contenders(second, after, 2, needed=True)
        found = held_out_speeds(_plain(first), [*old, *new], prompts, notify)
    else:
        old = _contenders(first, before, 1)
        found = held_out_speeds(_plain(first), old, prompts, notify)
        count = len(old)
        del first, old[:]
        gc.collect()
        second = load(after.spec, show)
        found += held_out_speeds(_plain(second), _contenders(second, after, 2, needed=True), prompts, notify)
        return _comparison(found, count)
    return _comparison(found, len(old))


def _placed(spec: PairSpec, device: Place) -> PairSpec:
    """The pair on the device where the other one runs: alone it might fit another one."""
    return replace(spec, target=replace(spec.target, device=device)) if spec.target.device == "auto" else spec


def gain(before: HeldOutSpeed, after: HeldOutSpeed) -> Gain:
    """Compare two speeds prompt by prompt."""
    logs = [log(after.times[name] / times) for name, times in before.times.items() if name in after.times]
    return Gain(*ratio_interval(logs))


def _comparison(found: Sequence[HeldOutSpeed], first: int) -> TuneComparison:
    old, new = (max(some, key=lambda one: one.tokens_per_second) for some in (found[:first], found[first:]))
    return TuneComparison(old, new, gain(old, new))


def _plain(session: Session) -> Ours:
    return Ours(session, Speculation(), Sampling(), name=PLAIN)


def _contenders(session: Session, side: Side, number: int, needed: bool = False) -> list[Ours]:
    """The strategies of a side, named with its number.

    Raises:
        EngineError: one is not available, if all are `needed`.
    """
    contenders = []
    for speculation in side.speculations:
        status = session.info.strategy(speculation.strategy)
        if status.available:
            contenders.append(Ours(session, speculation, Sampling(), name=f"{speculation.strategy} {number}"))
        elif needed:
            raise EngineError(
                "model", f"{speculation.strategy} was trained and cannot be used: {status.reason.rstrip('.')}."
            )
    return contenders
