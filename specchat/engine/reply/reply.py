"""One reply: the steps of a decoding as events, until the text ends."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from time import perf_counter
from typing import NamedTuple

from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.decoding.step import Decoding
from specchat.engine.decoding.yardstick import Measured, Yardstick
from specchat.engine.errors import EngineError
from specchat.engine.grammar.compiler import HeldReply
from specchat.engine.protocol.events import (
    Changed,
    Drafted,
    Event,
    Finished,
    FinishReason,
    PlainKnown,
    Step,
    TokenLogprob,
)
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.requests import Cancel, Generate
from specchat.engine.protocol.stats import Stats
from specchat.engine.protocol.step_tree import PENDING
from specchat.engine.protocol.tally import Tally
from specchat.engine.reply.control import Control
from specchat.engine.reply.pace import PREFERRED, ReplyPace
from specchat.engine.reply.pieces import ReplyText
from specchat.engine.reply.prompts import PromptTokens, written
from specchat.engine.reply.scoring import token_logprob
from specchat.engine.runners.runner import Runner
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from specchat.engine.text.tokenizer import Tokenizer


@dataclass
class Meter:
    """Statistics since the request of a reply. All times in milliseconds."""

    prompt_tokens: int
    started: float
    """When the reply was asked for, by `perf_counter`."""
    reused_tokens: int = 0
    """Prompt tokens that were cached."""
    ttft_ms: float = 0.0
    tally: Tally = field(default_factory=Tally)

    def stepped(self, now: float) -> None:
        """Note that a step has ended, in seconds of `perf_counter`."""
        self.ttft_ms = self.ttft_ms or 1e3 * (now - self.started)

    def other_ms(self, outcome: StepOutcome, elapsed_ms: float, ran_ms: float) -> tuple[float, float]:
        """Return the rest of the step that just ended, and its waits for a CPU, both in milliseconds.

        Since the first step began `elapsed_ms` have passed, `ran_ms` of them without waits. The tally lacks this step.
        """
        # From the start, not from the last step: on a device a step may begin before the last one ends.
        other_ms = max(0.0, ran_ms - self.tally.ran_ms - outcome.draft_ms - outcome.verify_ms)
        return other_ms, max(0.0, elapsed_ms - ran_ms - self.tally.waited_ms)

    def stats(self) -> Stats:
        """Return the statistics so far."""
        return self.tally.stats(
            prompt_tokens=self.prompt_tokens, reused_tokens=self.reused_tokens, ttft_ms=self.ttft_ms
        )


@dataclass
class ReplyProgress:
    """How far the decoding of a reply has come, alone or in company.

    Attributes:
        decoding: None while the prompt is read.
        joined: writes the same text in company, while the reply is there.
        compared: True if the speed is compared with plain decoding's, alone.
        ended: True after the last step.
        turn: number of the last turn, the reply's or the company's.
    """

    decoding: Decoding | None = None
    joined: Decoding | None = None
    compared: bool = True
    ended: bool = False
    turn: int = 0


class TokenRules(NamedTuple):
    """Tokens that end a reply, and the constraint of the others, which stands at the end of the prompt."""

    ends: Set[int]
    constraint: HeldReply | None = None


class ReplyInProgress:
    """The reply to a request, after `prompt`; its speculation may change between steps."""

    def __init__(
        self,
        request: Generate,
        runner: Runner,
        tokenizer: Tokenizer,
        rules: TokenRules,
        text: ReplyText,
        prompt: PromptTokens,
        started: float,
    ) -> None:
        """Initialise; `started` is when it was asked for, by `perf_counter`."""
        self.request, self.prompt, self.rules = request, prompt, rules
        self.speculation = request.speculation
        self.meter = Meter(len(prompt.tokens), started)
        self.progress = ReplyProgress()
        self.pace = ReplyPace(PREFERRED if request.chat else 1)
        self.seen: list[object] = []
        """Rows of the prompt's pictures, which stay as long as the reply."""
        self._runner, self._tokenizer, self._text = runner, tokenizer, text
        self._tokens: list[int] = []

    def steps(
        self, decoding: Decoding, yardstick: Yardstick, control: Control, again: Callable[[], bool]
    ) -> Iterator[Event]:
        """Decode to the end: Step and Changed events, then Finished.

        `again` is called after each event: True if other replies had their turn, whose time does not count.

        Raises:
            EngineError: "request": no token goes on with the grammar.
        """
        text, tokens, meter, constraint = self._text, self._tokens, self.meter, self.rules.constraint
        reason: FinishReason | None = "length" if self._left == 0 else None
        clock, sent_ms = self._runner.executor.costs.clock, 0.0
        begun, ran = perf_counter(), clock()
        while reason is None:
            if constraint is not None and (error := constraint.error):
                raise EngineError("request", error)
            left, joined, turned = self._left, self.progress.joined, text.turned
            outcome = self._step(joined or decoding, left)
            rejected = 0 if constraint is None else constraint.rejected
            taken, reason = self._take(outcome.tokens[: len(outcome.tokens) - rejected][:left], outcome)
            if not taken:
                continue
            tokens += outcome.tokens[:taken]
            reason = reason or self._limit(decoding.room)
            cancelled, changes = self.listen(control)
            reason = reason or ("cancelled" if cancelled else None)
            now = perf_counter()
            meter.stepped(now)
            ran_ms = 1e3 * (clock() - ran)
            other_ms, waited_ms = meter.other_ms(outcome, 1e3 * (now - begun), ran_ms)
            measured, known = Measured(), tuple[PlainKnown, ...]()
            if joined is None:
                # A strategy that chooses others has them draft otherwise than they do alone.
                measured = yardstick.add(f"{self.speculation.strategy} {outcome.strategy}", outcome, sent_ms)
                known = () if reason is None else _plain_known(yardstick, decoding, reason)
            self.progress.ended = reason is not None
            pieces = text.take() if reason is None else text.finish(complete=reason == "stop")
            called = text.take_calls()
            step = Step(
                id=self.request.id,
                pieces=pieces,
                drafted=outcome.drafted,
                tested=outcome.tested,
                accepted=min(outcome.accepted, taken),
                emitted=taken,
                draft_ms=outcome.draft_ms,
                verify_ms=outcome.verify_ms,
                other_ms=other_ms,
                context_used=len(self.prompt.tokens) + len(tokens),
                strategy=outcome.strategy,
                drafts=self._drafts(outcome),
                again=outcome.again,
                usual_ms=measured.usual_ms,
                plain_ms=measured.plain_ms * taken,
                plain_error=measured.plain_error,
                plain_known=known,
                turned=text.turned != turned,
                waited_ms=waited_ms,
                call_pieces=called.pieces,
                tool_calls=called.complete,
                call_deltas=called.deltas,
                logprobs=self._logprobs(outcome, taken),
                together=outcome.together,
            )
            meter.tally.add(step)
            self.pace.add(step.ran_ms, taken, self.speculation.draft_length > 0)
            sent = clock()
            yield step
            sent_ms = 1e3 * (clock() - sent)
            if reason is None:
                yield from changes
                cancelled, changes = self.listen(control)  # before the models read a text back that is to end
                if cancelled:
                    text.finish(complete=False)
                    break
                yield from changes
                if again():
                    begun, ran, sent_ms = begun + perf_counter() - now, ran + clock() - sent, 0.0
        yield self.finished(reason or "cancelled")

    @property
    def exact(self) -> bool:
        """True if no draft changes its text."""
        return self.speculation.acceptance == "coupled" or self.request.sampling.greedy

    @property
    def _left(self) -> int | None:
        """Tokens that are still wanted; None for no limit."""
        most = self.request.limits.max_tokens
        return None if most is None else most - len(self._tokens)

    def _limit(self, room: int) -> FinishReason | None:
        """The limit that its tokens have come to: theirs, or that of a context with `room` for more."""
        if self._left is not None and self._left <= 0:
            return "length"
        return "context" if room == 0 else None

    def _step(self, decoding: Decoding, left: int | None) -> StepOutcome:
        if decoding is self.progress.joined:
            return decoding.step(self._runner.drafters["plain"], 0, "coupled", left)
        speculation = self.speculation
        drafter = self._runner.drafters[speculation.strategy]
        return decoding.step(drafter, longest_draft(speculation), speculation.acceptance, left)

    def finished(self, reason: FinishReason) -> Finished:
        """The last event."""
        thought = self._text.reasoning_tokens
        stats = replace(self.meter.stats(), num_repeated_tokens=self._repeated(), reasoning_tokens=thought)
        ended = Finished.of(self.request.id, reason, written(self.request, self._text), tuple(self._tokens), stats)
        stopped_by = self._text.stopped_by if self._text.stopped_by in self.request.limits.stop else ""
        unreadable, cut = self._text.unreadable_calls, self._text.cut_calls
        return replace(ended, unreadable_calls=unreadable, cut_calls=cut, stopped_by=stopped_by)

    def listen(self, control: Control) -> tuple[bool, list[Changed]]:
        """Read control messages: True if cancelled, and events to send."""
        changes: list[Changed] = []
        while (message := control.poll()) is not None:
            if isinstance(message, Cancel):
                return True, changes
            if message.speculation.strategy in self._runner.drafters:
                self.speculation = message.speculation
                self.pace.forget()
            changes.append(Changed(self.request.id, self.speculation, len(self._tokens)))
        return False, changes

    def _take(self, tokens: Sequence[int], outcome: StepOutcome) -> tuple[int, FinishReason | None]:
        """Pass on a step's `tokens` until the reply ends; returns their number, and "stop" at its end."""
        for i, token in enumerate(tokens):
            if token in self.rules.ends or self._text.push(token, source(outcome, i), i):
                return i + 1, "stop"
        return len(tokens), None

    def _drafts(self, outcome: StepOutcome) -> tuple[Drafted, ...]:
        """Drafts with the accepted ones first; in a tree each names its parent."""
        drafts = [
            Drafted(self._tokenizer.text_of(token), probability, mark=token in self._tokenizer.hidden)
            for token, probability in zip_longest(outcome.drafts, outcome.confidence)
        ]
        if not outcome.parents:
            return tuple(drafts)
        others = [node for node in range(1, len(drafts) + 1) if node not in outcome.path]
        order = [*outcome.path, *others]
        place = {node: number for number, node in enumerate([0, *order], PENDING)}
        return tuple(replace(drafts[node - 1], parent=place[outcome.parents[node - 1]]) for node in order)

    def _logprobs(self, outcome: StepOutcome, taken: int) -> tuple[TokenLogprob, ...]:
        """Log-probabilities of the first `taken` tokens; an end-of-text token has one where the prompt has."""
        return tuple(
            token_logprob(one, self._tokenizer)
            for one in outcome.logprobs[:taken]
            if self.request.scored or one.token not in self.rules.ends
        )

    def _repeated(self) -> int:
        """Number of first tokens that equal an earlier reply's, if most were copied; 0 if there are few."""
        tokens = self._tokens
        if not tokens or 2 * self.meter.tally.copied < len(tokens):
            return 0
        repeated = self._runner.earlier.repeated(tokens)
        return repeated if 2 * repeated >= len(tokens) else 0


def _plain_known(yardstick: Yardstick, decoding: Decoding, reason: FinishReason) -> tuple[PlainKnown, ...]:
    """Speeds of plain decoding that a reply tells as it ends; some of its steps are repeated for that."""
    while reason in ("stop", "length") and decoding.repeatable and yardstick.repeats():
        yardstick.add_repeated(decoding.repeat())
    return yardstick.end()


def longest_draft(speculation: Speculation) -> int:
    """Largest number of draft tokens."""
    return min(speculation.draft_length, MAX_DRAFT_LENGTH)


def source(outcome: StepOutcome, index: int) -> str:
    """Source of token `index` of a step: a strategy, "target" for its correction, "bonus" or "plain"."""
    if index < outcome.accepted:
        return outcome.sources[index >= outcome.switch if outcome.switch else 0]
    if outcome.drafted == 0:
        return "plain"
    return "bonus" if outcome.tested == outcome.accepted else "target"
