"""An engine that plays prepared replies, for the app's tests, screenshots and replays of traces."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle
from threading import Thread
from typing import Any

from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.events import (
    AwaitingClient,
    Changed,
    Counted,
    Event,
    Failed,
    Finished,
    FinishReason,
    Loaded,
    Loading,
    PromptProgress,
    Started,
    Step,
)
from specchat.engine.protocol.options import Message, Speculation, Written
from specchat.engine.protocol.pair_info import (
    DraftFacts,
    LoadFacts,
    PairInfo,
    PairNotes,
    PlainFacts,
    StrategyStatus,
    TargetFacts,
    TemplateFacts,
)
from specchat.engine.protocol.raw_prompt import text_of
from specchat.engine.protocol.requests import Cancel, Change, Count, Generate, Load, Request, Shutdown
from specchat.engine.protocol.stats import Stats
from specchat.engine.reply.context_policy import fit
from specchat.engine.strategies import STRATEGIES
from tests.fake_steps import compared, count, stats, steps, written_in

INFO = PairInfo(
    id="fake",
    name="Fake pair",
    context=1024,
    strategies=tuple(StrategyStatus(name, True) for name in STRATEGIES),
    load=LoadFacts("none", memory=64 << 20, seconds=0.5),
    notes=PairNotes("nothing is computed"),
    target=TargetFacts(10_000_000, vocabulary=3072),
    draft=DraftFacts(1_000_000, cost=0.13),
    plain=PlainFacts(100.0),
    template=TemplateFacts(tools=True),
)
ReplyEvent = PromptProgress | Started | Step | Changed | AwaitingClient | Finished | Failed
LOOK_S = 0.005


class FakeEngine:
    """An `EnginePort` that answers with `replies` in a cycle.

    A reply is a text, with or without reasoning and calls, or its recorded events (`trace.replies`). With
    `tokens_per_second` steps arrive at that pace by `clock` (seconds); with None they all arrive at the next poll.
    `requests` records what was sent. While `holds_loads` is set no load ends. Several `candidates` per position make
    drafts of texts trees.
    """

    def __init__(
        self,
        replies: Sequence[str | Written | Sequence[Event]] = ("Hello there.",),
        *,
        tokens_per_second: float | None = None,
        candidates: int = 1,
        info: PairInfo = INFO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests: list[Request] = []
        self.info = info
        self._replies = cycle(replies)
        self.tokens_per_second = tokens_per_second
        self._candidates = candidates
        self._clock = clock
        self.holds_loads = False
        self._alive = False
        self._pair: Load | None = None
        self._failures: deque[tuple[ErrorKind, str]] = deque()
        self._load_failures: deque[tuple[ErrorKind, str]] = deque()
        self._ready: deque[Event] = deque()
        self._timed: deque[tuple[float, ReplyEvent]] = deque()
        self._waiting: deque[Generate] = deque()
        self._cancelled: set[int] = set()
        self._reply: Started | None = None
        self._beginning = Written()
        self._speculation = Speculation()
        self._steps: list[Step] = []
        self._arrived: Callable[[Any], object] | None = None
        self._ticking = False

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
            self._waiting.clear()
            self._reply = None
            self._ready.append(Failed(reply, "died", "The engine process was killed by SIGKILL."))
            self._notify()

    def start(self) -> None:
        self._alive = True

    def listen(self, arrived: Callable[[Any], object]) -> None:
        """Like `EnginePort.listen`; during replies at a pace it is called every `LOOK_S`, due or not."""
        self._arrived = arrived

    def _notify(self) -> None:
        if self._arrived is not None:
            self._arrived(None)
            if self._timed and self.tokens_per_second and not self._ticking:
                self._ticking = True
                Thread(target=self._tick, daemon=True).start()

    def _tick(self) -> None:
        while self._timed and self._arrived is not None:
            self._arrived(None)
            time.sleep(LOOK_S)
        self._ticking = False

    def send(self, request: Request) -> None:
        self._send(request)
        self._notify()

    def _send(self, request: Request) -> None:
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
                self._waiting.append(request)
                self._begin()
            case Count():
                self._ready.append(self._counted(request))
            case Change() if self._running(request.id):
                self._change(request)
            case Cancel() if self._running(request.id):
                self._timed.clear()
                self._ready.append(self._finished("cancelled"))
            case Cancel():
                self._cancelled.add(request.id)
            case Shutdown():
                self.close()

    def poll(self) -> list[Event]:
        return list(iter(self._next, None))

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as `EnginePort.events` gives them, but it ends at once if the engine is idle."""
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
        self._notify()

    def close(self) -> None:
        self._alive = False
        self._reply = None
        self._ready.clear()
        self._timed.clear()
        self._waiting.clear()

    def _begin(self) -> None:
        """Start the next reply: one at a time."""
        while self._waiting and self._reply is None:
            request = self._waiting.popleft()
            if request.id in self._cancelled:
                self._ready.append(Finished.unbegun(request))
            else:
                self._generate(request)

    def _running(self, reply: int) -> bool:
        return self._reply is not None and self._reply.id == reply

    def _load(self, request: Load) -> None:
        self._ready.append(Loading(f"reading {request.pair.target.short}", 0.1))
        if self.holds_loads:
            return
        if self._load_failures:
            self._ready.append(Failed(None, *self._load_failures.popleft()))
        else:
            self._ready.append(Loaded(replace(self.info, id=request.pair.id, name=request.pair.name)))

    def _counted(self, request: Count) -> Counted:
        tokens, dropped = self._prompt(request)
        counted = Counted(request.id, tokens, self.info.context, dropped)
        if not request.tokens:
            return counted
        raw, shown = request.raw, "".join(f"<{message.role}>{message.content}" for message in request.messages)
        if isinstance(raw, tuple):
            return replace(counted, tokens=len(raw), token_ids=raw, text="".join(f" {token}" for token in raw))
        tokens = count(raw) if isinstance(raw, str) and raw else tokens
        return replace(counted, tokens=tokens, token_ids=tuple(range(tokens)), text=shown or text_of(raw))

    def _prompt(self, request: Generate | Count) -> tuple[int, int]:
        """Tokens of the prompt, and messages dropped; a prompt that is still too long is not refused."""

        def tokens(messages: Sequence[Message]) -> int:
            return sum(count(message.content) for message in messages) + count(request.prefill)

        kept = fit(request.messages, request.limits, self.info.context, tokens)
        return tokens(kept.messages), kept.dropped

    def _generate(self, request: Generate) -> None:
        prompt, dropped = self._prompt(request)
        reply = next(self._replies)
        if isinstance(reply, str | Written):
            speculation = request.speculation
            made = self._made(reply, speculation, prompt)
            prefill = request.prefill
            started = Started(request.id, prompt, 0, request.sampling.seed, speculation, prefill, dropped)
            own = (replace(step, id=request.id) for step in made)
            script: list[ReplyEvent] = [started, *own, Finished(request.id, "stop", "", (), Stats())]
        else:
            script = [replace(event, id=request.id) for event in reply if isinstance(event, ReplyEvent)]
        if self._failures:
            first = next(i for i, event in enumerate(script) if isinstance(event, Step))
            script = [*script[: first + 1], Failed(request.id, *self._failures.popleft())]
        started = next(event for event in script if isinstance(event, Started))
        self._reply, self._steps, self._speculation = started, [], started.speculation
        self._beginning = request.beginning
        self._schedule(script)

    def _made(self, text: str | Written, speculation: Speculation, used: int) -> list[Step]:
        length = speculation.draft_length or 5
        made = steps(text, strategy=speculation.strategy, length=length, used=used, candidates=self._candidates)
        return compared(made, self.info.plain.tokens_per_second)

    def _schedule(self, script: Sequence[ReplyEvent]) -> None:
        begin, pace = self._clock(), self.tokens_per_second
        due = accumulate(event.emitted if isinstance(event, Step) else 0 for event in script)
        self._timed.clear()
        for event, tokens in zip(script, due, strict=True):
            self._timed.append((begin + tokens / pace if pace else begin, event))

    def _change(self, request: Change) -> None:
        speculation = request.speculation
        waiting = [event for _, event in self._timed]
        text = written_in([event for event in waiting if isinstance(event, Step)])
        used = next((event.context_used - event.emitted for event in waiting if isinstance(event, Step)), 0)
        made = self._made(text, speculation, used)
        before = [event for event in waiting if isinstance(event, Started)]
        after = [event for event in waiting if isinstance(event, Failed | Finished)]
        self._speculation = speculation
        changed = Changed(request.id, speculation, sum(step.emitted for step in self._steps))
        self._schedule([*before, changed, *(replace(step, id=request.id) for step in made), *after])

    def _next(self) -> Event | None:
        self._begin()
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
        added = written_in(self._steps)
        written = Written.of([*self._beginning.spans, *added.spans])
        last = [piece for step in self._steps for piece in step.pieces][-1:]
        thinking = any(piece.reasoning for piece in last)
        figures = stats(self._steps, self._reply.prompt_tokens, self.info.plain.tokens_per_second)
        tokens = tuple(range(figures.completion_tokens))
        reply, self._reply = self._reply.id, None
        written = replace(written, thinking=thinking, tool_calls=added.tool_calls)
        return Finished.of(reply, reason, written, tokens, figures)
