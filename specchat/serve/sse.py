"""Server-sent events, and clients that leave."""

import asyncio
import json
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request

from specchat.serve.errors import ApiError

HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
MEDIA = "text/event-stream"
DONE = "data: [DONE]\n\n"
ALIVE = ":\n\n"
"""A comment, so that no client gives up while a long call is written."""
LEFT = 499
"""Status for a client that left, which only logs see."""
Result = TypeVar("Result")


def event(data: dict[str, Any], name: str = "") -> str:
    """One event of a stream."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n" if name else f"data: {json.dumps(data)}\n\n"


async def while_connected(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled if the client leaves.

    Raises:
        ApiError: the client left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ApiError(LEFT, "The client left.")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
            with suppress(asyncio.CancelledError, ApiError):
                await task


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
