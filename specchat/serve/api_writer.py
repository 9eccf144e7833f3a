"""Answers to a request, whole or as a stream, whatever API they are in."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Protocol, runtime_checkable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from specchat.engine.protocol.events import Finished, PromptProgress, Started, Step
from specchat.serve import sse
from specchat.serve.errors import ApiError
from specchat.serve.generation import ReplyEvent, ReplyEvents
from specchat.serve.tools import NO_TOOLS, ToolUse

LEFT_OUT = "x-specchat-left-out-tools"


class ApiWriter(Protocol):
    """Writes replies in an API's words: parts of a stream as they grow, and their body once all have ended."""

    @property
    def alive(self) -> str:
        """A part that keeps a client waiting which gets nothing else."""
        ...

    @property
    def media(self) -> str:
        """The type of a stream."""
        ...

    def begin(self, event: Started) -> str: ...
    def step(self, event: Step) -> str: ...
    def end(self, event: Finished) -> str: ...
    def failed(self, error: ApiError) -> str: ...

    def body(self, event: Finished) -> Any:
        """All replies as JSON, after the `end` of the last one."""
        ...


@runtime_checkable
class ShowsProgress(Protocol):
    """A writer that tells how far a prompt is read."""

    def progress(self, event: PromptProgress) -> str: ...


async def respond(
    request: Request, writer: ApiWriter, events: ReplyEvents, use: ToolUse = NO_TOOLS, *, stream: bool
) -> Response:
    """Answer `request`; a header names the tools that the model does not see.

    A stream begins once the prompt was read, so that a refusal has its status, or after the wait of `Served.reply`.

    Raises:
        ApiError: it cannot be answered, or the client left.
    """
    headers = {LEFT_OUT: ", ".join(use.left_out)} if use.left_out else {}
    if not stream:
        return JSONResponse(await sse.while_connected(request, whole(writer, events)), headers=headers)
    first = await sse.while_connected(request, anext(events))
    headers |= sse.HEADERS
    return StreamingResponse(chunks(writer, first, events), media_type=writer.media, headers=headers)


async def whole(writer: ApiWriter, events: ReplyEvents) -> Any:
    """The body of all replies, as JSON; raises ApiError if the engine fails."""
    async with aclosing(events):
        last = None
        async for some in events:
            _written(writer, some)
            last = next((event for event in some if isinstance(event, Finished)), last)
    assert last is not None
    return writer.body(last)


async def chunks(writer: ApiWriter, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]:
    """The replies as a stream; events that come together are sent together."""
    async with aclosing(events):
        try:
            yield _written(writer, first) or writer.alive
            async for some in events:
                yield _written(writer, some) or writer.alive
        except ApiError as error:
            yield writer.failed(error)


def _written(writer: ApiWriter, events: Iterable[ReplyEvent]) -> str:
    parts = []
    for event in events:
        match event:
            case PromptProgress() if isinstance(writer, ShowsProgress):
                parts.append(writer.progress(event))
            case Started():
                parts.append(writer.begin(event))
            case Step():
                parts.append(writer.step(event))
            case Finished():
                parts.append(writer.end(event))
    return "".join(parts)
