"""Writes one reply: the stream of a server becomes events."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from specchat.clean import one_line
from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.events import AwaitingServer, Event, Finished, FinishReason, Started
from specchat.engine.protocol.options import Message, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.reply.context_policy import KeptMessages, fit
from specchat.engine.strategies import SERVER
from specchat.remote.connection import ServerConnection
from specchat.remote.errors import BUSY, ServerError, error_in
from specchat.remote.kinds import Found
from specchat.remote.openai import Chunk, EventReader, ServerFigures
from specchat.remote.steps import Steps
from specchat.remote.thoughts import ThoughtSplitter

MAX_CHARS = 16 << 20
"""Characters of a reply; a server that writes more is stopped."""
UNANSWERED = (0, 401, 403, *BUSY)
"""Statuses of a server that will not answer the chat either; 0 stands for no answer."""
MIN_REPEATED_CHARS = 32
"""A token of a reply is shorter than this; what is longer and equals the beginning is no token."""


class _Uncounted(Exception):
    """The tokens of `messages` are not known yet."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        super().__init__()
        self.messages = messages


class RemoteReply:
    """A reply that a server writes; `put` takes its events."""

    def __init__(
        self, connection: ServerConnection, found: Found, request: Generate, put: Callable[[Event], None]
    ) -> None:
        self._connection = connection
        self._found = found
        self._request = request
        self._put = put
        self._reader: EventReader = found.dialect.reader(found.known)
        self._thoughts = ThoughtSplitter(found.known.thinks)
        if request.beginning.text:
            self._thoughts.leave()
        self._steps = Steps(request.id, request.beginning, time.monotonic)
        self._begun = time.monotonic()
        self._prompt_ms = 0.0
        self._started = False
        self._prompt: int | None = None
        self._dropped = 0
        self._chars = 0
        self._figures: ServerFigures | None = None
        self._held: Chunk | None = None
        """The last chunk with text, which may be held back."""
        self._last = Chunk()
        """The last chunk, with or without text."""
        self._unreadable = 0
        self._unread = ""
        """The type of a content that was no text, once there was one."""

    async def write(self) -> None:
        """Ask the server, and put the reply's events up to its end.

        Raises:
            ServerError: the server failed or refused; the text so far has been put.
        """
        ends, number = "", self._request.id
        self._connection.waiting = lambda words: self._put(AwaitingServer(number, words))
        try:
            await self._fit()
            dialect = self._found.dialect
            before = await self._totals(dialect.totals_before)
            self._reader.known = replace(self._reader.known, always=dialect.always, draft_length=self._longest)
            ends = await self._read()
            self._figures = self._reader.figures or self._difference(before, await self._totals(dialect.totals))
        except asyncio.CancelledError:
            if not self._started and self._held is None:
                self._put(Finished.unbegun(self._request))
            else:
                self._put_rest()
                self._end("cancelled")
            return
        except ServerError:
            self._put_rest()
            raise
        if not ends:
            self._put_rest()
            raise ServerError(f"{self._connection.root} ended its answer before the reply was complete.")
        if self._unread and not self._started and self._held is None:
            raise ServerError(
                f"{self._connection.root} answered with content of the type {self._unread}, not with text."
            )
        self._start(Chunk())
        self._put_rest(complete=True)
        self._end(self._reason(ends))

    async def _fit(self) -> None:
        """Leave out the messages that the context does not hold, as far as the server counts them."""
        context, request = self._found.known.context, self._request
        if not context:
            return
        try:
            kept = await self._kept(context)
        except ServerError as error:
            if error.status in UNANSWERED:
                raise
            return  # it does not count this chat, but may answer it
        limits = request.limits
        if self._prompt is not None:
            if self._prompt >= context:
                words = f"The prompt has {self._prompt:,} tokens, and the server's context holds {context:,}."
                raise ServerError(words, "context")
            if limits.max_tokens is not None:
                limits = replace(limits, max_tokens=min(limits.max_tokens, context - self._prompt))
        self._dropped = kept.dropped
        self._request = replace(request, messages=kept.messages, limits=limits)

    async def _kept(self, context: int) -> KeptMessages:
        """The messages that fit; `fit` is called again with each count that it asks for."""
        known: dict[tuple[Message, ...], int] = {}

        def count(messages: Sequence[Message]) -> int:
            if tuple(messages) not in known:
                raise _Uncounted(tuple(messages))
            return known[tuple(messages)]

        while True:
            try:
                kept = fit(self._request.messages, self._request.limits, context, count)
                self._prompt = count(kept.messages) or None
                return kept
            except _Uncounted as missing:
                part = replace(self._request, messages=missing.messages)
                tokens = await self._found.count(self._connection, part)
                known[missing.messages] = tokens or 0

    async def _read(self) -> str:
        """Read the stream; returns the server's word for the reply's end, empty if there was none."""
        dialect = self._found.dialect
        body = dialect.body(self._request, self._found.model)
        if self._request.undrafted:
            body |= dialect.undrafted
        events = self._connection.stream(dialect.path(self._found.model), body)
        ends = "stop" if dialect.ends_with_body else ""
        async with contextlib.aclosing(events):
            async for event in events:
                if words := error_in(event):
                    raise ServerError(f"{self._connection.root} ended the reply with an error: {words}.", _kind(words))
                self._compare_model(event.get("model"))
                chunk = self._reader.read(event)
                self._note_unread(chunk.unread)
                self._chars += len(chunk.text) + len(chunk.reasoning)
                if self._chars > MAX_CHARS:
                    raise ServerError(f"{self._connection.root} wrote more than {MAX_CHARS:,} characters.")
                ends = chunk.ends or ends
                self._last = chunk
                if chunk.text or chunk.reasoning or chunk.calling:
                    self._take(chunk if self._started or self._held else self._unrepeated(chunk))
        return ends

    def _compare_model(self, named: object) -> None:
        """Say once if another model answers; gateways add versions to a name, and leave out folders."""
        dialect, asked = self._found.dialect, self._found.model
        if not isinstance(named, str) or not named or named == dialect.answered_as or named in asked or asked in named:
            return
        dialect.answered_as = named
        words = f'{self._connection.root} answers as "{one_line(named, 60)}", not as "{one_line(asked, 60)}"'
        self._put(AwaitingServer(self._request.id, words))

    def _note_unread(self, kind: str) -> None:
        """Say once if content came that is no text."""
        if kind and not self._unread:
            self._unread = one_line(kind, 40)
            words = f"{self._connection.root} sent content of the type {self._unread}, which is left out"
            self._put(AwaitingServer(self._request.id, words))

    def _take(self, chunk: Chunk) -> None:
        """Put the steps that a chunk with text completes."""
        if chunk.reasoning:
            self._thoughts.leave()
        found = self._thoughts.split(chunk.text)
        self._held = chunk
        if found.turned:
            self._steps.turn()
        self._add(replace(chunk, reasoning=chunk.reasoning + found.thought, text=found.answer))

    def _add(self, chunk: Chunk) -> None:
        if chunk.text or chunk.reasoning or chunk.calling:
            self._start(chunk)
            for step in self._steps.add(chunk):
                self._put(step)

    def _unrepeated(self, chunk: Chunk) -> Chunk:
        """The first chunk, without the beginning that some versions of llama.cpp repeat."""
        beginning = self._request.beginning.text
        if len(beginning) < MIN_REPEATED_CHARS or not chunk.text.startswith(beginning):
            return chunk
        return replace(chunk, text=chunk.text.removeprefix(beginning))

    @property
    def _longest(self) -> int:
        """The server's draft length, as far as it is known."""
        return max(self._found.known.draft_length, self._found.dialect.longest)

    async def _totals(self, ask: Callable[[ServerConnection], Awaitable[ServerFigures | None]]) -> ServerFigures | None:
        """The server's counts of all replies, where it may draft and does not tell each reply's."""
        if self._found.known.drafts is False or self._reader.figures is not None:
            return None
        with contextlib.suppress(ServerError):
            return await ask(self._connection)
        return None

    def _difference(self, before: ServerFigures | None, after: ServerFigures | None) -> ServerFigures | None:
        """The server's counts of this time; None if it was not for this reply alone, by the accepted tokens.

        The last step may have accepted tokens after the reply's end.
        """
        if before is None or after is None or after.steps == before.steps:
            return None
        accepted, tally = after.accepted - before.accepted, self._steps.tally
        beyond = accepted - tally.accepted
        if not 0 <= beyond <= self._longest:
            return None
        drafts = after.steps - before.steps
        if drafts == tally.speculative:
            return ServerFigures(drafts, after.drafted - before.drafted, accepted)
        some = tally.histogram[1:]  # steps of one token do not tell whether they had a draft
        histogram = (max(0, drafts - sum(some)), *some)
        return ServerFigures(drafts, after.drafted - before.drafted, accepted, histogram)

    def _start(self, chunk: Chunk) -> None:
        if self._started:
            return
        self._started = True
        self._prompt_ms = 1e3 * (time.monotonic() - self._begun)
        drafts = False if self._request.undrafted else self._found.known.drafts
        self._put(
            Started(
                self._request.id,
                self._prompt_tokens(chunk.prompt_tokens),
                chunk.reused,
                self._request.sampling.seed,
                Speculation() if drafts is False else Speculation(SERVER),
                self._request.prefill,
                self._dropped,
                self._prompt_ms,
            )
        )

    def _prompt_tokens(self, told: int | None) -> int:
        return told if told is not None else self._prompt or 0

    def _put_rest(self, *, complete: bool = False) -> None:
        """Put the text that was held back, the calls of a complete reply, and the last step."""
        found, held = self._thoughts.finish(), self._held
        calls, unreadable = self._reader.calls.read() if complete else ((), ())
        self._unreadable = len(unreadable)
        if held is not None:
            text = found.answer + "".join(unreadable)
            self._add(replace(held, reasoning=found.thought, text=text, calling=False))
        for step in self._steps.finish(calls, self._counted_end if complete else None):
            self._put(step)

    @property
    def _counted_end(self) -> Chunk | None:
        """The last chunk where it counts tokens that no chunk with text did; else None.

        Of servers that do not count along, a difference of more than the token that ends a reply is no step.
        """
        beyond = self._last.tokens - self._steps.counted
        return self._last if beyond == 1 or (beyond > 1 and self._reader.counts_tokens) else None

    def _end(self, reason: FinishReason) -> None:
        reader = self._reader
        stats = self._steps.stats(
            self._prompt_tokens(reader.prompt_tokens),
            reader.reused,
            self._prompt_ms,
            reader.completion_tokens if reason != "cancelled" else None,
            self._figures,
            reader.decoding_ms,
        )
        ended = Finished.of(self._request.id, reason, self._steps.written, (), stats)
        self._put(replace(ended, unreadable_calls=self._unreadable))

    def _reason(self, ends: str) -> FinishReason:
        if ends != "length":
            return "stop"
        used = self._prompt_tokens(self._reader.prompt_tokens) + self._steps.tally.tokens
        full = self._found.known.context and used >= self._found.known.context - 1
        return "context" if full else "length"


def _kind(words: str) -> ErrorKind:
    return "context" if "context" in words.lower() else "server"
