"""An engine that plays prepared replies: for the app's tests, its screenshots and the replay of recorded traces."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle

from specchat.engine.api import (
    Cancel,
    Change,
    Changed,
    Count,
    Counted,
    Event,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Load,
    Loaded,
    Loading,
    PairInfo,
    Piece,
    Request,
    Shutdown,
    Speculation,
    Started,
    Stats,
    Step,
    StrategyStatus,
)
from specchat.engine.errors import ErrorKind
from specchat.engine.strategies import STRATEGIES

INFO = PairInfo(
    id="fake",
    name="Fake pair",
    device="none",
    context=1024,
    vocab_size=3072,
    target_parameters=10_000_000,
    draft_parameters=1_000_000,
    memory=64 << 20,
    strategies=tuple(StrategyStatus(name, True) for name in STRATEGIES),
    plain_tokens_per_second=100.0,
    draft_cost=0.13,
    load_seconds=0.5,
    exactness="nothing is computed",
    note="",
)
DRAFT_MS, VERIFY_MS, OTHER_MS = 1.0, 10.0, 0.2
ReplyEvent = Started | Step | Changed | Finished | Failed
_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


def steps(
    text: str, accepted: Sequence[int] = (3, 0, 5, 1), strategy: str = "draft", length: int = 5, used: int = 0
) -> list[Step]:
    """`text` as verify steps that accept `accepted[0]`, `accepted[1]`, ... drafted tokens, over and over.

    A token is a word with the space before it; `used` tokens were in the context before. `plain` accepts nothing.
    """
    tokens = _TOKEN.findall(text)
    made: list[Step] = []
    counts = cycle([0] if strategy == "plain" else [min(n, length) for n in accepted])
    done = 0
    while done < len(tokens):
        kept = min(next(counts), len(tokens) - done - 1)
        taken = tokens[done : done + kept + 1]
        last = "plain" if strategy == "plain" else "bonus" if kept == length else "target"
        done += len(taken)
        drafted = 0 if strategy == "plain" else length
        made.append(
            Step(
                id=0,
                pieces=(*(Piece(token, strategy) for token in taken[:-1]), Piece(taken[-1], last)),
                drafted=drafted,
                tested=min(kept + 1, drafted),
                accepted=kept,
                emitted=len(taken),
                draft_ms=drafted * DRAFT_MS,
                verify_ms=VERIFY_MS,
                other_ms=OTHER_MS,
                context_used=used + done,
                strategy=strategy,
                rejected=" or so" if kept < drafted else "",
            )
        )
    return made


def stats(reply: Sequence[Step], prompt_tokens: int, plain_tokens_per_second: float) -> Stats:
    """The figures of a reply made of these steps."""
    speculative = [step for step in reply if step.drafted]
    tokens = sum(step.emitted for step in reply)
    tested, accepted = (sum(getattr(step, name) for step in reply) for name in ("tested", "accepted"))
    draft_ms, verify_ms, other_ms = (sum(getattr(s, f"{n}_ms") for s in reply) for n in ("draft", "verify", "other"))
    seconds = (draft_ms + verify_ms + other_ms) / 1e3
    speed = tokens / seconds if seconds else 0.0
    histogram = [0] * (1 + max((step.accepted for step in speculative), default=-1))
    for step in speculative:
        histogram[step.accepted] += 1
    return Stats(
        prompt_tokens=prompt_tokens,
        completion_tokens=tokens,
        ttft_ms=reply[0].draft_ms + reply[0].verify_ms if reply else 0.0,
        tokens_per_second=speed,
        speedup_vs_plain=speed / plain_tokens_per_second if plain_tokens_per_second else None,
        num_steps=len(reply),
        num_spec_steps=len(speculative),
        num_draft_tokens=sum(step.drafted for step in reply),
        num_tested_draft_tokens=tested,
        num_accepted_draft_tokens=accepted,
        mean_acceptance_length=sum(s.emitted for s in speculative) / len(speculative) if speculative else 1.0,
        draft_acceptance_rate=accepted / tested if tested else 0.0,
        acceptance_histogram=tuple(histogram),
        per_step_accepted=tuple(step.accepted for step in speculative),
        draft_ms=draft_ms,
        verify_ms=verify_ms,
        other_ms=other_ms,
    )


class FakeEngine:
    """An `EnginePort` that answers with `replies` in turn, over and over.

    A reply is a text, or the recorded events of one (`trace.replies`). With `tokens_per_second` its steps arrive at
    that pace by `clock` (seconds); with None all of it arrives with the next poll. `requests` keeps what was sent.
    """

    def __init__(
        self,
        replies: Sequence[str | Sequence[Event]] = ("Hello there.",),
        *,
        tokens_per_second: float | None = None,
        info: PairInfo = INFO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests: list[Request] = []
        self.info = info
        self._replies = cycle(replies)
        self._tokens_per_second = tokens_per_second
        self._clock = clock
        self._alive = False
        self._pair: Load | None = None
        self._failures: deque[tuple[ErrorKind, str]] = deque()
        self._load_failures: deque[tuple[ErrorKind, str]] = deque()
        self._ready: deque[Event] = deque()
        self._timed: deque[tuple[float, ReplyEvent]] = deque()
        self._reply: Started | None = None
        self._speculation = Speculation()
        self._steps: list[Step] = []

    @property
    def alive(self) -> bool:
        return self._alive

    def fail_load(self, kind: ErrorKind, message: str) -> None:
        """Let the next load fail."""
        self._load_failures.append((kind, message))

    def fail_reply(self, kind: ErrorKind, message: str) -> None:
        """Let the next reply fail after its first step."""
        self._failures.append((kind, message))

    def die(self) -> None:
        """Die now, in the middle of a reply if one is running."""
        if self._alive:
            self._alive = False
            reply = self._reply.id if self._reply else None
            self._timed.clear()
            self._reply = None
            self._ready.append(Failed(reply, "died", "The engine process was killed by SIGKILL."))

    def start(self) -> None:
        self._alive = True

    def send(self, request: Request) -> None:
        self.requests.append(request)
        if isinstance(request, Load):
            self._pair = request
        if not self._alive:
            if isinstance(request, Load | Generate | Count):
                self._ready.append(Failed(getattr(request, "id", None), "died", "The engine is not running."))
            return
        match request:
            case Load():
                self._load(request)
            case Generate():
                self._generate(request)
            case Change() if self._running(request.id):
                self._change(request)
            case Cancel() if self._running(request.id):
                self._timed.clear()
                self._ready.append(self._finished("cancelled"))
            case Count():
                tokens = sum(len(_TOKEN.findall(message.content)) for message in request.messages)
                self._ready.append(Counted(request.id, tokens, self.info.context))
            case Shutdown():
                self.close()

    def poll(self) -> list[Event]:
        return list(iter(self._next, None))

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """As the port says, except that an idle engine ends it at once: nothing could arrive."""
        while self._ready or self._timed:
            if (event := self._next()) is None:
                wait = self._timed[0][0] - self._clock()
                if timeout is not None and wait > timeout:
                    time.sleep(timeout)
                    return
                time.sleep(max(0.0, wait))
                continue
            yield event
            if isinstance(event, Failed) and event.kind == "died":
                return

    def restart(self) -> None:
        self.close()
        self.start()
        if self._pair is not None:
            self._load(self._pair)

    def close(self) -> None:
        self._alive = False
        self._reply = None
        self._ready.clear()
        self._timed.clear()

    def _running(self, reply: int) -> bool:
        return self._reply is not None and self._reply.id == reply

    def _load(self, request: Load) -> None:
        self._ready.append(Loading(f"reading {request.pair.target.label}", 0.1))
        if self._load_failures:
            self._ready.append(Failed(None, *self._load_failures.popleft()))
        else:
            self._ready.append(Loaded(replace(self.info, id=request.pair.id, name=request.pair.name)))

    def _generate(self, request: Generate) -> None:
        prompt = sum(len(_TOKEN.findall(message.content)) for message in request.messages)
        reply = next(self._replies)
        if isinstance(reply, str):
            speculation = request.speculation
            made = steps(reply, strategy=speculation.strategy, length=speculation.draft_length or 5, used=prompt)
            started = Started(request.id, prompt, 0, request.sampling.seed, speculation)
            own = (replace(step, id=request.id) for step in made)
            script: list[ReplyEvent] = [started, *own, Finished(request.id, "stop", reply, (), Stats())]
        else:
            script = [replace(event, id=request.id) for event in reply if isinstance(event, ReplyEvent)]
        if self._failures:
            first = next(i for i, event in enumerate(script) if isinstance(event, Step))
            script = [*script[: first + 1], Failed(request.id, *self._failures.popleft())]
        started = next(event for event in script if isinstance(event, Started))
        self._reply, self._steps, self._speculation = started, [], started.speculation
        self._schedule(script)

    def _schedule(self, script: Sequence[ReplyEvent]) -> None:
        begin, pace = self._clock(), self._tokens_per_second
        due = accumulate(event.emitted if isinstance(event, Step) else 0 for event in script)
        self._timed.clear()
        for event, tokens in zip(script, due, strict=True):
            self._timed.append((begin + tokens / pace if pace else begin, event))

    def _change(self, request: Change) -> None:
        """Draft the rest of the running reply as asked for."""
        speculation = request.speculation
        waiting = [event for _, event in self._timed]
        text = "".join(piece.text for event in waiting if isinstance(event, Step) for piece in event.pieces)
        used = next((event.context_used - event.emitted for event in waiting if isinstance(event, Step)), 0)
        made = steps(text, strategy=speculation.strategy, length=speculation.draft_length or 5, used=used)
        before = [event for event in waiting if isinstance(event, Started)]
        after = [event for event in waiting if isinstance(event, Failed | Finished)]
        self._speculation = speculation
        changed = Changed(request.id, speculation, sum(step.emitted for step in self._steps))
        self._schedule([*before, changed, *(replace(step, id=request.id) for step in made), *after])

    def _next(self) -> Event | None:
        if self._ready:
            return self._ready.popleft()
        if not self._timed or self._timed[0][0] > self._clock():
            return None
        event = self._timed.popleft()[1]
        match event:
            case Step():
                self._steps.append(event)
            case Finished() if not event.stats.num_steps:
                return self._finished(event.reason)
            case Finished() | Failed():
                self._reply = None
        return event

    def _finished(self, reason: FinishReason) -> Finished:
        assert self._reply is not None
        text = "".join(piece.text for step in self._steps for piece in step.pieces)
        figures = stats(self._steps, self._reply.prompt_tokens, self.info.plain_tokens_per_second)
        tokens = tuple(range(figures.completion_tokens))
        reply, self._reply = self._reply.id, None
        return Finished(reply, reason, text, tokens, figures)
