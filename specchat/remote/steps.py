"""Makes verify steps of the chunks of a stream."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import regex

from specchat.engine.protocol.events import Drafted, Piece, Step
from specchat.engine.protocol.options import Span, ToolCall, Written, all_reasoning
from specchat.engine.protocol.stats import Stats
from specchat.engine.protocol.tally import Tally
from specchat.engine.strategies import SERVER
from specchat.remote.openai import Chunk, ServerFigures

_GRAPHEMES = regex.compile(r"\uFFFD+|\X")
"""Replacement characters stand together: at the end they are bytes of a character that the server did not finish."""
_UNDRAFTED = "plain"
TOGETHER_MS = 0.5
"""Mean milliseconds between arrivals below which they came out of a buffer, such as a proxy's, and tell no speed."""


@dataclass
class StepUnderWay:
    """A step that is not complete.

    Attributes:
        parts: its texts: the index of the token that completes each, the text, and True for reasoning.
        calling: True if it has a part of a tool call, which has no text.
        turned: True if it tells that all text before was reasoning.
    """

    parts: list[tuple[int, str, bool]] = field(default_factory=list)
    calling: bool = False
    turned: bool = False


class StepClock:
    """Times steps, by the server's clock or else from arrival to arrival."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._arrival: float | None = None
        self._before_ms: float | None = None

    def took(self, ms: float | None, *, first: bool) -> float:
        """Milliseconds of a step, `ms` the server's of all steps so far."""
        now, last = self._clock(), self._arrival
        before, self._before_ms, self._arrival = self._before_ms, ms, now
        if ms is not None and (before is not None or first):
            return max(0.0, ms - (before or 0.0))
        return 0.0 if last is None else 1e3 * (now - last)


class Steps:
    """Gathers the chunks of each verify step; a step is complete once it wrote one token more than it accepted."""

    def __init__(self, reply: int, begun: Written, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._reply = reply
        self._begun = begun
        self._clock = StepClock(clock)
        self._before = Chunk()
        """The totals at the end of the last complete step."""
        self._now = Chunk()
        self._under_way = StepUnderWay()
        self._held = Piece("", _UNDRAFTED)
        self._first = 0
        """Tokens of the first step, whose time is that of the prompt."""
        self._spans: list[Span] = []
        self._calls: tuple[ToolCall, ...] = ()
        self.tally = Tally()

    @property
    def written(self) -> Written:
        """The text so far, with the beginning that it was given."""
        thinking = bool(self._spans) and self._spans[-1][1]
        written = Written.of([*self._begun.spans, *self._spans], thinking=thinking)
        return replace(written, tool_calls=self._calls)

    @property
    def counted(self) -> int:
        """Tokens so far."""
        return self._now.tokens

    def turn(self) -> None:
        """Make reasoning of all text so far."""
        self._spans = all_reasoning(self._spans)
        self._under_way.parts = [(at, text, True) for at, text, _ in self._under_way.parts]
        self._held = replace(self._held, reasoning=True)
        self._under_way.turned = True

    def add(self, chunk: Chunk) -> list[Step]:
        """The steps that a chunk completes."""
        steps = []
        if self._open and _totals(chunk) != _totals(self._now) and chunk.tokens > self._now.tokens:
            steps += self._step()
        self._under_way.calling = self._under_way.calling or chunk.calling
        self._now = replace(chunk, tokens=max(chunk.tokens, self._now.tokens))
        for text, reasoning in ((chunk.reasoning, True), (chunk.text, False)):
            if text:
                self._under_way.parts.append((self._now.tokens - self._before.tokens - 1, text, reasoning))
        emitted = self._now.tokens - self._before.tokens
        if self._open and emitted > self._now.accepted - self._before.accepted:
            steps += self._step()
        return steps

    @property
    def _open(self) -> bool:
        """True if the step has something to tell."""
        return bool(self._under_way.parts) or self._under_way.calling

    def finish(self, calls: tuple[ToolCall, ...] = (), end: Chunk | None = None) -> list[Step]:
        """The last steps, with text that was held back and the `calls` of the reply.

        `end` has the server's totals, which may count tokens without text, first of all the one that ends the reply.
        """
        steps = [] if end is None else self.add(replace(end, text="", reasoning="", calling=False))
        if self._open or self._now.tokens > self._before.tokens:
            steps += self._step()
        held, self._held = self._held, Piece("", _UNDRAFTED)
        if held.text.strip("\ufffd"):
            self._spans.append((held.text, held.reasoning))
            if steps:
                steps[-1] = replace(steps[-1], pieces=(*steps[-1].pieces, held))
            else:
                steps = [self._made((held,), 0, 0, 0, ())]
        if calls and not self._calls:
            self._calls = calls
            steps = steps or [self._made((), 0, 0, 0, ())]
            steps[-1] = replace(steps[-1], tool_calls=calls)
        return steps

    def _step(self) -> list[Step]:
        now, before, parts = self._now, self._before, self._under_way.parts
        emitted = now.tokens - before.tokens
        drafted = now.drafted - before.drafted
        accepted = max(0, min(now.accepted - before.accepted, drafted, emitted))
        self._before = now
        pieces, drafts = [], []
        for at, text, reasoning in parts:
            one = len(parts) == emitted
            if not drafted:
                source = _UNDRAFTED
            elif one and at >= accepted:
                source = "bonus" if accepted == drafted else "target"
            else:
                source = SERVER
            pieces.append(Piece(text, source, reasoning, at if one else None))
            if one and at < accepted:
                drafts.append(Drafted(text))
        return [self._made(self._whole(pieces), drafted, accepted, emitted, tuple(drafts))]

    def _made(
        self, pieces: tuple[Piece, ...], drafted: int, accepted: int, emitted: int, drafts: tuple[Drafted, ...]
    ) -> Step:
        step = Step(
            id=self._reply,
            pieces=pieces,
            drafted=drafted,
            tested=min(accepted + 1, drafted),
            accepted=accepted,
            emitted=emitted,
            draft_ms=0.0,
            verify_ms=self._clock.took(self._now.ms, first=not self._first),
            other_ms=0.0,
            context_used=(self._now.prompt_tokens or 0) + self._now.tokens,
            strategy=SERVER if drafted else _UNDRAFTED,
            drafts=drafts,
            turned=self._under_way.turned,
        )
        self._under_way = StepUnderWay()
        self._first = self._first or emitted
        self.tally.add(step)
        return step

    def _whole(self, pieces: list[Piece]) -> tuple[Piece, ...]:
        """The pieces without a last grapheme that the next chunk may go on with, and with the one of the last step."""
        found: list[Piece] = []
        for piece in [self._held, *pieces] if self._held.text else pieces:
            if found and found[-1].reasoning == piece.reasoning and not found[-1].text[-1].isascii():
                *done, last = _GRAPHEMES.findall(found[-1].text)
                if _GRAPHEMES.findall(last + piece.text)[0] != last:  # it belongs to the token that completes it
                    found[-1:] = [replace(found[-1], text="".join(done))] if done else []
                    piece = replace(piece, text=last + piece.text)
            found.append(piece)
        self._held = Piece("", _UNDRAFTED)
        if found and not found[-1].text[-1].isascii():
            *done, last = _GRAPHEMES.findall(found[-1].text)
            self._held = replace(found[-1], text=last, position=None)
            found[-1:] = [replace(found[-1], text="".join(done))] if done else []
        self._spans += [(piece.text, piece.reasoning) for piece in found]
        return tuple(found)

    def stats(
        self,
        prompt_tokens: int,
        reused: int,
        ttft_ms: float,
        tokens: int | None,
        own: ServerFigures | None,
        decoding_ms: float | None,
    ) -> Stats:
        """The reply's figures; `tokens` and `own` are the server's counts at the end, which count more than the steps.

        The speed is that after the first step, whose time is the prompt's; by the server's `decoding_ms` if known. It
        is 0 where nothing tells it.
        """
        found = self.tally.stats(prompt_tokens=prompt_tokens, reused_tokens=reused, ttft_ms=ttft_ms)
        total = tokens if tokens is not None else found.completion_tokens
        after = total - self._first
        took = decoding_ms or found.milliseconds
        timed = decoding_ms or self._now.ms is not None or took >= TOGETHER_MS * (found.num_steps - 1)
        speed = 1e3 * after / took if timed and took > 0 and after > 0 else 0.0
        found = replace(found, completion_tokens=total, tokens_per_second=speed)
        return found if own is None else counted(found, own)


def counted(stats: Stats, own: ServerFigures) -> Stats:
    """The figures with the server's own counts of drafts."""
    steps = own.all_steps or max(stats.num_steps, own.steps)
    told = tuple(n for n, steps in enumerate(own.histogram) for _ in range(steps)) if own.histogram else own.per_step
    tested = stats.num_tested_draft_tokens
    if told and own.steps and own.drafted % own.steps == 0:
        tested = sum(min(accepted + 1, own.drafted // own.steps) for accepted in told)
    return replace(
        stats,
        num_steps=steps,
        num_spec_steps=own.steps,
        num_draft_tokens=own.drafted,
        num_accepted_draft_tokens=own.accepted,
        num_tested_draft_tokens=tested,
        mean_acceptance_length=1 + own.accepted / steps if steps else 1.0,
        draft_acceptance_rate=own.accepted / own.drafted if own.drafted else 0.0,
        tested_acceptance_rate=min(1.0, own.accepted / tested) if tested else 0.0,
        acceptance_histogram=own.histogram or stats.acceptance_histogram,
        per_step_accepted=own.per_step or (() if own.steps != stats.num_spec_steps else stats.per_step_accepted),
    )


def _totals(chunk: Chunk) -> tuple[int, int, float | None]:
    return chunk.drafted, chunk.accepted, chunk.ms
