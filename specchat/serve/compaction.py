"""OpenAI's `/v1/responses/compact`: a long chat becomes its user's messages and the model's summary of the rest."""

import time
from base64 import b64encode
from dataclasses import replace
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Message
from specchat.serve import sse
from specchat.serve.api_writer import respond
from specchat.serve.errors import ApiError
from specchat.serve.generation import Served
from specchat.serve.openai_responses import read, with_items
from specchat.serve.response_events import item_id, usage

ASK = (
    "Sum up this chat for somebody who goes on with it: what was asked, what was done and found out, what was decided, "
    "and what is left to do. Give names of files, commands and values exactly. Write the summary alone."
)


async def compact(served: Served, client: str, request: Request, body: Any) -> Response:
    """Answer a request; raises as `responses` does."""
    wanted, said, chat = read(served, client, with_items(served, client, body), ask=ASK)
    make = served.request(wanted, replace(chat, use=replace(chat.use, tools=(), choice="auto")))
    return await respond(request, CompactionWriter(said), served.reply(client, make), stream=False)


class CompactionWriter:
    """Writes a summary as the item that stands for a chat; requests give it back in their input."""

    alive: ClassVar[str] = sse.ALIVE
    media: ClassVar[str] = sse.MEDIA

    def __init__(self, said: tuple[Message, ...]) -> None:
        self._said = said

    def begin(self, event: Started) -> str:
        return ""

    def step(self, event: Step) -> str:
        return ""

    def end(self, event: Finished) -> str:
        return ""

    def failed(self, error: ApiError) -> str:
        return sse.event(error.openai())

    def body(self, event: Finished) -> dict[str, Any]:
        summary = b64encode(event.written.answer.encode()).decode()
        asked = [_parts(message) for message in self._said if message.role == "user"]
        kept = [
            {"type": "message", "id": item_id("msg"), "role": "user", "status": "completed", "content": parts}
            for parts in asked
        ]
        item = {"type": "compaction", "id": item_id("cmp"), "encrypted_content": summary}
        head = {"id": item_id("resp"), "object": "response.compaction", "created_at": int(time.time())}
        return {**head, "output": [*kept, item], **usage(event.stats)}


def _parts(message: Message) -> list[dict[str, str]]:
    """A message's text with its pictures in it, as a request has them."""
    parts = list[dict[str, str]]()
    for part in message.parts:
        if isinstance(part, str):
            parts.append({"type": "input_text", "text": part})
        else:
            url = f"data:application/octet-stream;base64,{b64encode(part.data).decode()}"
            parts.append({"type": "input_image", "detail": "auto", "image_url": url})
    return parts
