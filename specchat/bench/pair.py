"""The measurement of a pair: prompts that fit it, its own strategies, and the figures of all contenders."""

from collections.abc import Callable, Sequence

from specchat.bench.contender import BenchPrompt, Contender
from specchat.bench.interleaved import BenchProgress, Sample, measure
from specchat.bench.ours import Ours
from specchat.bench.paired import all_within
from specchat.bench.peers import reason
from specchat.bench.prompts import ChatPrompt
from specchat.bench.report import BenchReport
from specchat.bench.summary import CONTROL, PLAIN
from specchat.bench.verify_cost import verify_cost
from specchat.engine.errors import ContextError, EngineError
from specchat.engine.protocol.options import Sampling, Speculation
from specchat.engine.session import Session

MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
"""Spec-Bench reports these together, as one of its six categories."""


def usable(session: Session, prompts: Sequence[ChatPrompt], tokens: int) -> list[BenchPrompt]:
    """The prompts that leave room for so many tokens.

    Raises:
        ContextError: none does.
    """
    made = []
    for prompt in prompts:
        ids = tuple(session.tokenizer.prompt(prompt.messages))
        category = "mt-bench" if prompt.category in MT_BENCH else prompt.category or "all"
        if len(ids) + tokens <= session.info.context:
            made.append(BenchPrompt(prompt.id, category, prompt.messages, ids))
    if not made:
        raise ContextError(
            f"No prompt leaves room for {tokens} tokens in the context of {session.info.context}. Lower --tokens."
        )
    return made


def ours(session: Session, cases: Sequence[Speculation], sampling: Sampling) -> list[Contender]:
    """Plain decoding and each of `cases`; where plain is one of several, it takes part twice, as a control.

    Raises:
        EngineError: the pair lacks a strategy.
    """
    for case in cases:
        if not (status := session.info.strategy(case.strategy)).available:
            raise EngineError("request", f"{case.strategy} cannot be measured: {status.reason}.")
    plain, ran = Speculation(), session.runner.executor.costs.clock
    made: list[Contender] = [Ours(session, case, sampling, ran=ran) for case in dict.fromkeys((plain, *cases))]
    if len(made) > 1 and any(case.strategy == plain.strategy for case in cases):
        made.append(Ours(session, plain, sampling, name=CONTROL, ran=ran))
    return made


def measured(
    session: Session,
    contenders: Sequence[Contender],
    prompts: Sequence[BenchPrompt],
    repeats: int,
    tokens: int,
    show: Callable[[str, float], None],
    stopped: Callable[[], bool],
    within: float = 0.0,
) -> BenchReport:
    """Let contenders answer prompts, `repeats` times each, and time the steps that verify 1 to 16 tokens.

    A prompt is left once its ratios to plain are known `within` a share. `show` gets what is done and the share that is
    done; `stopped` is asked between two replies.
    """
    report = BenchReport.of(session.info, contenders, repeats, tokens)

    def notify(at: BenchProgress) -> None:
        if stopped():
            raise KeyboardInterrupt
        show(f"{at.prompt}: {at.contender}", at.fraction)

    def failed(contender: Contender, error: Exception) -> None:
        report.notes.append(f"{contender.name} failed and is left out from there: {reason(error)}")

    def enough(answered: Sequence[Sample]) -> bool:
        return within > 0 and all_within(answered, PLAIN, within)

    try:
        for sample in measure(contenders, prompts, repeats, tokens, notify, failed, enough):
            report.samples.append(sample)
    except KeyboardInterrupt:
        # From `notify`, or from ctrl+c while a reply was still being written: only that reply is lost.
        report.interrupted = True
    finally:
        for contender in contenders:
            contender.close()
    report.interrupted |= stopped()
    if report.interrupted:
        report.notes.append("interrupted: the figures are of the replies up to there")
    report.notes += [f"{c.name}: {c.note}" for c in contenders if c.note]
    if not report.interrupted:
        report.verify_cost = verify_cost(
            session.runner, lambda part: show("checking 1 to 16 tokens", part), lambda: not stopped()
        )
        report.interrupted = stopped()
    return report
