"""Losslessness, checked: every strategy against plain decoding, token by token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specchat.engine.api import Finished, Generate, Limits, Message, Sampling, Speculation
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.session import Session

SAMPLINGS: dict[str, Sampling] = {
    "greedy": Sampling(),
    "T=0.7 top-p 0.9": Sampling(temperature=0.7, top_p=0.9),
    "T=1 min-p 0.05": Sampling(temperature=1.0, min_p=0.05),
    "penalties": Sampling(temperature=0.8, repetition_penalty=1.15, presence_penalty=0.2, frequency_penalty=0.2),
}
LENGTHS = (1, 3, 5, 8)
QUICK_SAMPLINGS = ("greedy", "T=0.7 top-p 0.9")
QUICK_LENGTHS = (5,)
MAX_TOKENS = 64


@dataclass(frozen=True)
class CheckPrompt:
    """A chat to answer, with a name to report it by."""

    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class CheckResult:
    """One reply compared with plain decoding's.

    Where they differ, `position` counts reply tokens and `margin` is the gap between plain's token and the runner-up
    in processed scores (logits over temperature) there.
    """

    prompt: str
    sampling: str
    strategy: str
    draft_length: int
    tokens: int
    identical: bool
    mean_acceptance_length: float
    position: int | None = None
    margin: float | None = None


def run(session: Session, prompts: Sequence[CheckPrompt], full: bool) -> Iterator[CheckResult]:
    """Compare every available strategy with plain; `full` adds all samplings and draft lengths."""
    strategies = [s.name for s in session.info.strategies if s.available and s.name != "plain"]
    for number, prompt in enumerate(prompts):
        for name in SAMPLINGS if full else QUICK_SAMPLINGS:
            sampling = replace(SAMPLINGS[name], seed=number)
            plain = _reply(session, prompt, sampling, Speculation())
            for strategy in strategies:
                for length in LENGTHS if full else QUICK_LENGTHS:
                    reply = _reply(session, prompt, sampling, Speculation(strategy, length))
                    yield _compare(session, prompt, name, sampling, plain, reply, Speculation(strategy, length))


def _reply(session: Session, prompt: CheckPrompt, sampling: Sampling, speculation: Speculation) -> Finished:
    request = Generate(0, prompt.messages, sampling, Limits(MAX_TOKENS), speculation)
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last


def _compare(
    session: Session,
    prompt: CheckPrompt,
    name: str,
    sampling: Sampling,
    plain: Finished,
    reply: Finished,
    speculation: Speculation,
) -> CheckResult:
    result = CheckResult(
        prompt=prompt.id,
        sampling=name,
        strategy=speculation.strategy,
        draft_length=speculation.draft_length,
        tokens=len(plain.token_ids),
        identical=(reply.token_ids, reply.reason) == (plain.token_ids, plain.reason),
        mean_acceptance_length=reply.stats.mean_acceptance_length,
    )
    if result.identical:
        return result
    pairs = zip(plain.token_ids, reply.token_ids, strict=False)
    shorter = min(len(plain.token_ids), len(reply.token_ids))
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    return replace(result, position=position, margin=_margin(session, prompt, sampling, plain.token_ids[:position]))


def _margin(session: Session, prompt: CheckPrompt, sampling: Sampling, before: Sequence[int]) -> float:
    tokens = session.tokenizer.prompt(prompt.messages)
    history = History(tokens)
    for token in before:
        history.push(token)
    tokens += before
    logits = session.target.next_logits(tokens)
    first, second = Sampler(sampling).scores(logits, history).topk(2).values.tolist()
    return float(first - second)
