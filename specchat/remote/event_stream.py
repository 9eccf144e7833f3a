"""Reads server-sent events, with limits on what a server may send."""

import json
from collections.abc import AsyncIterator
from typing import Any

from specchat.remote.errors import ServerError

MAX_LINE_BYTES = 16 << 20
"""vLLM's first event lists the prompt's tokens: a megabyte of a long prompt."""
DONE = "[DONE]"


async def lines(chunks: AsyncIterator[bytes], url: str) -> AsyncIterator[str]:
    """Lines of a body; bytes that are no UTF-8 become U+FFFD.

    Raises:
        ServerError: a line is longer than `MAX_LINE_BYTES`.
    """
    held = bytearray()
    async for chunk in chunks:
        begin = len(held)
        held += chunk
        start = 0
        while (end := held.find(b"\n", max(start, begin))) >= 0:
            yield held[start:end].rstrip(b"\r").decode("utf-8", "replace")
            start = end + 1
        del held[:start]
        if len(held) > MAX_LINE_BYTES:
            raise ServerError(f"{url} sent a line of more than {MAX_LINE_BYTES >> 20} MiB: the reply ends here.")
    if held:
        yield held.decode("utf-8", "replace")


async def events(chunks: AsyncIterator[bytes], url: str) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a stream, up to its [DONE] or its end; comments and other fields are left out.

    Raises:
        ServerError: something else than JSON objects came.
    """
    async for line in lines(chunks, url):
        if not line.startswith("data:"):
            continue
        text = line.removeprefix("data:").strip()
        if text == DONE:
            return
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise ServerError(f"{url} sent an event that is no JSON object: the reply ends here.")
        yield data
