"""Answers to a request, whole or as a stream, whatever API it speaks."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from specchat.serve import sse
from specchat.serve.generation import ReplyEvent, ReplyEvents
from specchat.serve.tools import NO_TOOLS, ToolUse

LEFT_OUT = "x-specchat-left-out-tools"


class ApiReply(Protocol):
    """A reply in an API's words."""

    async def whole(self, events: ReplyEvents) -> dict[str, Any]: ...
    def chunks(self, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]: ...


async def respond(
    request: Request, reply: ApiReply, events: ReplyEvents, use: ToolUse = NO_TOOLS, *, stream: bool
) -> Response:
    """Answer `request`; a header names the tools that the model does not see.

    A stream begins once the prompt was read, so that a refusal has its status, or after the wait of `Served.reply`.

    Raises:
        ApiError: it cannot be answered, or the client left.
    """
    headers = {LEFT_OUT: ", ".join(use.left_out)} if use.left_out else {}
    if not stream:
        return JSONResponse(await sse.while_connected(request, reply.whole(events)), headers=headers)
    first = await sse.while_connected(request, anext(events))
    headers |= sse.HEADERS
    return StreamingResponse(reply.chunks(first, events), media_type="text/event-stream", headers=headers)
