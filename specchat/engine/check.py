"""Checks losslessness: compares every strategy with plain decoding, token by token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Count, Generate
from specchat.engine.session import Session

SAMPLINGS: dict[str, Sampling] = {
    "greedy": Sampling(),
    "T=0.7 top-p 0.9": Sampling(temperature=0.7, top_p=0.9),
    "T=1 min-p 0.05": Sampling(temperature=1.0, min_p=0.05),
    "penalties": Sampling(temperature=0.8, repetition_penalty=1.15, presence_penalty=0.2, frequency_penalty=0.2),
}
LENGTHS = (1, 3, 5, 8)
QUICK_SAMPLINGS = ("greedy", "T=0.7 top-p 0.9", "penalties")
QUICK_LENGTHS = (5,)
MAX_TOKENS, QUICK_TOKENS = 64, 32
QUICK_S = 10.0
"""Seconds after which a quick check takes no further prompt, once every sampling has run."""
GO_ON = Message("user", "Go on.")
"""Prompt of the second turn."""


@dataclass(frozen=True)
class CheckPrompt:
    """A chat to answer, with its name in reports."""

    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class CheckResult:
    """One reply compared with plain decoding's.

    At a difference, `position` counts reply tokens, and `margin` is the gap between plain's token and the runner-up in
    processed scores (logits over temperature). The second `turn` continues in the caches of the first.
    """

    prompt: str
    sampling: str
    turn: int
    strategy: str
    draft_length: int
    tokens: int
    identical: bool
    mean_acceptance_length: float
    position: int | None = None
    margin: float | None = None


def run(session: Session, prompts: Sequence[CheckPrompt], full: bool) -> Iterator[CheckResult]:
    """Compare every available strategy with plain decoding, in two turns.

    Plain decoding starts from empty caches. In the second turn it is also compared with itself on the caches of the
    first. Unless `full`, each prompt has one sampling and one draft length, and slow prompts are left out.
    """
    begun, tokens = perf_counter(), MAX_TOKENS if full else QUICK_TOKENS
    strategies = [s.name for s in session.info.strategies if s.available and s.name != "plain"]
    lengths = LENGTHS if full else QUICK_LENGTHS
    drafting = [Speculation(strategy, length) for strategy in strategies for length in lengths]
    for number, prompt in enumerate(prompts):
        at = number % len(QUICK_SAMPLINGS)
        if not full and number >= len(QUICK_SAMPLINGS) and perf_counter() - begun > QUICK_S:
            return
        for name in SAMPLINGS if full else QUICK_SAMPLINGS[at : at + 1]:
            sampling = replace(SAMPLINGS[name], seed=number)
            turns = _turns(session, prompt, sampling, tokens)
            for speculation in (Speculation(), *drafting):
                for turn, (chat, plain) in enumerate(turns, 1):
                    reply = _reply(session, chat, sampling, tokens, speculation)
                    if turn > 1 or speculation.strategy != "plain":
                        compared = _Compared(prompt.id, chat, name, sampling, turn)
                        yield _compare(session, compared, plain, reply, speculation)


def _turns(
    session: Session, prompt: CheckPrompt, sampling: Sampling, tokens: int
) -> list[tuple[tuple[Message, ...], Finished]]:
    """The chat of each turn with plain decoding's answer; one turn if the context holds no second."""
    first = _reply(session, prompt.messages, sampling, tokens, Speculation(), cold=True)
    turns = [(prompt.messages, first)]
    chat = (*prompt.messages, Message("assistant", first.text), GO_ON)
    counted = session.count(Count(0, chat))
    if not counted.dropped and counted.tokens < counted.context:
        turns.append((chat, _reply(session, chat, sampling, tokens, Speculation(), cold=True)))
    return turns


def _reply(
    session: Session,
    chat: tuple[Message, ...],
    sampling: Sampling,
    tokens: int,
    speculation: Speculation,
    cold: bool = False,
) -> Finished:
    *_, last = session.generate(Generate(0, chat, sampling, Limits(tokens), speculation, cold=cold))
    assert isinstance(last, Finished)
    return last


@dataclass(frozen=True)
class _Compared:
    """A chat with its sampling."""

    prompt: str
    chat: tuple[Message, ...]
    name: str
    sampling: Sampling
    turn: int


def _compare(
    session: Session, of: _Compared, plain: Finished, reply: Finished, speculation: Speculation
) -> CheckResult:
    result = CheckResult(
        prompt=of.prompt,
        sampling=of.name,
        turn=of.turn,
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
    return replace(result, position=position, margin=_margin(session, of, plain.token_ids[:position]))


def _margin(session: Session, of: _Compared, before: Sequence[int]) -> float:
    tokens = session.tokenizer.prompt(of.chat)
    history = History(tokens)
    for token in before:
        history.push(token)
    tokens += before
    session.forget()
    logits = session.target.next_logits(tokens)
    first, second = Sampler(of.sampling).scores(logits, history).topk(2).values.tolist()
    return float(first - second)
