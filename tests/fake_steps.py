"""Invented verify steps for a text, and the figures of a reply of such steps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle, islice

from specchat.engine.protocol.events import Drafted, Piece, Step
from specchat.engine.protocol.options import CallDelta, ToolCall, Written
from specchat.engine.protocol.stats import Stats
from specchat.engine.protocol.tally import Tally
from specchat.engine.strategies import delegates, in_group

DRAFT_MS, VERIFY_MS, OTHER_MS = 1.0, 10.0, 0.2
ACCEPTED, REJECTED = (0.97, 0.88, 0.99, 0.93), (0.41, 0.62, 0.35)
"""Probabilities of accepted and rejected draft tokens, in a cycle."""
MODEL, COPIER = next(in_group("model")), next(in_group("copied"))
DELEGATED = (MODEL, MODEL, COPIER)
"""Strategies that draft for a delegating one, in a cycle."""
WRONG = (" or", " so", " the", " then")
"""Text of rejected draft tokens."""
_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


def count(text: str) -> int:
    """Number of tokens of a text; a word with the space before it is one."""
    return len(_TOKEN.findall(text))


def steps(
    text: str | Written,
    accepted: Sequence[int] = (3, 0, 5, 1),
    strategy: str = "draft",
    length: int = 5,
    used: int = 0,
    candidates: int = 1,
) -> list[Step]:
    """Split `text` into verify steps that accept `accepted[0]`, `accepted[1]`, ... draft tokens, in a cycle.

    A token is a word with the space before it. `used` tokens
    were in the context before. `plain` accepts nothing. A draft has at most `length` tokens, with up to 3 `candidates`
    per position, one of which continues: one candidate makes a chain, several make a tree. The calls of `text` follow,
    one a step.
    """
    written = Written(text) if isinstance(text, str) else text
    tokens = [(token, reasoning) for run, reasoning in written.spans for token in _TOKEN.findall(run)]
    made: list[Step] = []
    places = length // candidates
    counts = cycle([0] if strategy == "plain" else [min(n, places) for n in accepted])
    done = 0
    families = cycle(DELEGATED if delegates(strategy) else (strategy,))
    while done < len(tokens):
        strategy = next(families)
        kept = min(next(counts), len(tokens) - done - 1)
        taken = tokens[done : done + kept + 1]
        last = "plain" if strategy == "plain" else "bonus" if kept == places else "target"
        sources = [strategy] * kept + [last]
        pieces = tuple(
            Piece(token, source, reasoning, position)
            for position, ((token, reasoning), source) in enumerate(zip(taken, sources, strict=True))
        )
        done += len(taken)
        drafts = () if strategy == "plain" else _drafts([token for token, _ in taken], places, strategy, candidates)
        made.append(
            Step(
                id=0,
                pieces=pieces,
                drafted=len(drafts),
                tested=min(kept + 1, places) if drafts else 0,
                accepted=kept,
                emitted=len(taken),
                draft_ms=len(drafts) * DRAFT_MS,
                verify_ms=VERIFY_MS,
                other_ms=OTHER_MS,
                context_used=used + done,
                strategy=strategy,
                drafts=drafts,
            )
        )
    return made + [_call(call, used + done + number, strategy) for number, call in enumerate(written.tool_calls, 1)]


def compared(reply: Iterable[Step], plain_tokens_per_second: float) -> list[Step]:
    """The steps with times for this speed of plain decoding; 0 means unknown."""
    if not plain_tokens_per_second:
        return [replace(step, usual_ms=0.0, plain_ms=0.0) for step in reply]
    plain_ms = 1e3 / plain_tokens_per_second
    return [replace(step, usual_ms=step.milliseconds, plain_ms=step.emitted * plain_ms) for step in reply]


def stats(reply: Sequence[Step], prompt_tokens: int, plain_tokens_per_second: float) -> Stats:
    """The figures of a reply made of these steps."""
    ttft_ms = reply[0].draft_ms + reply[0].verify_ms if reply else 0.0
    return Tally.of(compared(reply, plain_tokens_per_second)).stats(prompt_tokens=prompt_tokens, ttft_ms=ttft_ms)


def written_in(steps: Sequence[Step]) -> Written:
    """The text and the calls of steps."""
    written = Written.of((piece.text, piece.reasoning) for step in steps for piece in step.pieces)
    return replace(written, tool_calls=tuple(call for step in steps for call in step.tool_calls))


def _call(call: ToolCall, context_used: int, strategy: str) -> Step:
    piece = Piece(f"<tool_call>{call.name} {call.arguments}</tool_call>", "plain")
    return Step(
        id=0,
        pieces=(),
        drafted=0,
        tested=0,
        accepted=0,
        emitted=1,
        draft_ms=0.0,
        verify_ms=VERIFY_MS,
        other_ms=OTHER_MS,
        context_used=context_used,
        strategy=strategy,
        tool_calls=(call,),
        call_deltas=(
            CallDelta(call.id, call.name, call.arguments[:1]),
            CallDelta(call.id, call.name, call.arguments[1:]),
        ),
        call_pieces=(piece,),
    )


def _drafts(taken: Sequence[str], places: int, strategy: str, candidates: int) -> tuple[Drafted, ...]:
    """The draft of a step that added `taken`, all but the last token of it drafted; copies have no probabilities."""
    kept = taken[:-1]
    sure, unsure = cycle(ACCEPTED), cycle(REJECTED)
    wrong = cycle(word for word in WRONG if word != taken[-1])
    drafts = [(text, next(sure), number - 1) for number, text in enumerate(kept)]
    last = len(kept) - 1
    for place in range(places):
        hit = place < len(kept)
        parent = place - 1 if hit else last
        last = last if hit else len(drafts)
        others = (word for word in wrong if not hit or word != kept[place])
        drafts += [(word, next(unsure), parent) for word in islice(others, candidates - hit)]
    return tuple(
        Drafted(text, None if strategy == COPIER else chance, parent if candidates > 1 else None)
        for text, chance, parent in drafts
    )
