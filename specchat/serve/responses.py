"""Answers to a request, whole or as a stream, whatever API it speaks."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from specchat.serve import sse
from specchat.serve.generation import ReplyEvent, ReplyEvents


class ApiReply(Protocol):
    """A reply in an API's words."""

    async def whole(self, events: ReplyEvents) -> dict[str, Any]: ...
    def chunks(self, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]: ...


async def respond(request: Request, reply: ApiReply, events: ReplyEvents, *, stream: bool) -> Response:
    """Answer `request`; a stream begins once the prompt was read, so that a refusal has its status.

    Raises:
        ApiError: it cannot be answered, or the client left.
    """
    if not stream:
        return JSONResponse(await sse.while_connected(request, reply.whole(events)))
    first = await sse.while_connected(request, anext(events))
    return StreamingResponse(reply.chunks(first, events), media_type="text/event-stream", headers=sse.HEADERS)
