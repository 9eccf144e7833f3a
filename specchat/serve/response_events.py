"""A reply in the words of OpenAI's `/v1/responses`: output items, and the events that build them up."""

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from specchat.engine.events import Finished, Started, Step
from specchat.engine.options import Message
from specchat.engine.stats import Stats
from specchat.serve import figures, sse
from specchat.serve.call_parts import CallPart, CallParts
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat
from specchat.serve.generation import ReplyEvent, ReplyEvents, each
from specchat.serve.runs import Runs

Keep = Callable[[str, Message], None]
"""Keeps a reply under the id of its response."""
_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "store": True,
    "text": {"format": {"type": "text"}},
    "user": None,
}
"""Fields of a request that its response repeats, as they are where the request leaves them out."""
_PARTS = {True: "reasoning_text", False: "output_text"}


class ResponseReply:
    """A reply as a response: reasoning, a message and calls are its output items."""

    def __init__(self, body: Mapping[str, Any], chat: Chat, keep: Keep) -> None:
        """`body` is the request's; `keep` gets the reply once it has ended."""
        self._head: dict[str, Any] = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body["model"],
            "error": None,
            "incomplete_details": None,
            "truncation": "disabled",
            **{name: usual if body.get(name) is None else body[name] for name, usual in _ECHOED.items()},
        }
        self._chat, self._keep = chat, keep
        self._runs = Runs()
        self._timings = figures.Timings()
        self._output: list[dict[str, Any]] = []
        self._open: bool | str | None = None
        """The kind of the item that is being written: True for reasoning, False for an answer, the id of a call."""
        self._text: list[str] = []
        self._calls = CallParts(chat.use)
        self._number = -1

    async def whole(self, events: ReplyEvents) -> dict[str, Any]:
        """The whole reply."""
        async for event in each(events):
            self._take(event)
            if isinstance(event, Finished):
                return self._ended(event)
        raise ApiError(503, "The engine ended.")

    async def chunks(self, first: list[ReplyEvent], events: ReplyEvents) -> AsyncIterator[str]:
        """The reply as server-sent events; those that come together are sent together."""
        async with aclosing(events):
            try:
                begun = self._response("in_progress")
                start = self._event("response.created", response=begun)
                start += self._event("response.in_progress", response=begun)
                yield start + "".join(self._take(event) for event in first)
                async for some in events:
                    yield "".join(self._take(event) for event in some) or sse.ALIVE
            except ApiError as error:
                failed = {"code": error.code or "server_error", "message": error.message}
                yield self._event("response.failed", response={**self._response("failed"), "error": failed})

    def _take(self, event: ReplyEvent) -> str:
        """The server-sent events of an event."""
        self._timings.add(event)
        if isinstance(event, Started):
            self._head["seed"] = event.seed
            return ""
        return "".join(self._of_step(event) if isinstance(event, Step) else self._of_end(event))

    def _of_step(self, step: Step) -> Iterator[str]:
        for reasoning, text in self._runs.of(step):
            if reasoning is not self._open:
                yield from self._close()
                yield from self._begin(reasoning)
            self._text.append(text)
            kind = f"response.{_PARTS[reasoning]}.delta"
            yield self._event(kind, **self._place(), delta=text, **({} if reasoning else {"logprobs": []}))
        for part in self._calls.of(step):
            if part.begins:
                yield from self._close()
                yield from self._begin_call(part)
            self._text.append(part.arguments)
            place = {"item_id": self._output[-1]["id"], "output_index": self._index}
            yield self._event("response.function_call_arguments.delta", **place, delta=part.arguments)

    def _of_end(self, event: Finished) -> Iterator[str]:
        yield from self._close()
        ended = self._ended(event)
        yield self._event(f"response.{ended['status']}", response=ended)

    def _begin(self, reasoning: bool) -> Iterator[str]:
        """Begin an item of text."""
        self._open, self._text = reasoning, []
        self._output.append(_text_item(reasoning, "in_progress", []))
        yield self._event("response.output_item.added", output_index=self._index, item=self._output[-1])
        yield self._event("response.content_part.added", **self._place(), part=_part(reasoning, ""))

    def _close(self) -> Iterator[str]:
        """End the item that is open."""
        if self._open is None:
            return
        reasoning, text, self._open = self._open, "".join(self._text), None
        if isinstance(reasoning, str):
            yield from self._close_call(text)
            return
        place, part = self._place(), _part(reasoning, text)
        more: dict[str, Any] = {} if reasoning else {"logprobs": []}
        yield self._event(f"response.{_PARTS[reasoning]}.done", **place, text=text, **more)
        yield self._event("response.content_part.done", **place, part=part)
        self._output[-1] = {**self._output[-1], "status": "completed", "content": [part]}
        yield self._event("response.output_item.done", output_index=self._index, item=self._output[-1])

    def _begin_call(self, part: CallPart) -> Iterator[str]:
        """Begin an item of a call."""
        self._open, self._text = part.id, []
        item = {"id": _id("fc"), "type": "function_call", "call_id": part.id, "name": part.name}
        self._output.append({**item, "arguments": "", "status": "in_progress"})
        yield self._event("response.output_item.added", output_index=self._index, item=self._output[-1])

    def _close_call(self, arguments: str) -> Iterator[str]:
        """End the item of a call; one that was cut has no JSON."""
        item = self._output[-1]
        status = "completed" if _is_json(arguments) else "incomplete"
        place = {"item_id": item["id"], "output_index": self._index}
        done = {"arguments": arguments, "name": item["name"]}
        yield self._event("response.function_call_arguments.done", **place, **done)
        self._output[-1] = {**item, "arguments": arguments, "status": status}
        yield self._event("response.output_item.done", output_index=self._index, item=self._output[-1])

    def _ended(self, event: Finished) -> dict[str, Any]:
        """The response once the reply has ended; it is kept."""
        for _ in self._close():
            pass
        if not self._output:
            self._output.append(_text_item(False, "completed", [_part(False, "")]))
        said = event.written
        calls = self._chat.use.passed_on(said.tool_calls)
        self._keep(self._head["id"], replace(said.message, tool_calls=calls))
        made = self._response("completed" if event.reason == "stop" else "incomplete")
        if event.reason != "stop":
            made["incomplete_details"] = {"reason": "max_output_tokens"}
        return {**made, "timings": self._timings.data(), "metrics": figures.metrics(event), **_usage(event.stats)}

    @property
    def _index(self) -> int:
        return len(self._output) - 1

    def _place(self) -> dict[str, Any]:
        """The place of the text that is being written."""
        return {"item_id": self._output[-1]["id"], "output_index": self._index, "content_index": 0}

    def _response(self, status: str) -> dict[str, Any]:
        return {**self._head, "status": status, "output": self._output}

    def _event(self, kind: str, **fields: Any) -> str:
        self._number += 1
        return sse.event({"type": kind, "sequence_number": self._number, **fields}, kind)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex}"


def _text_item(reasoning: bool, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    if reasoning:
        return {"id": _id("rs"), "type": "reasoning", "summary": [], "content": content, "status": status}
    return {"id": _id("msg"), "type": "message", "role": "assistant", "content": content, "status": status}


def _part(reasoning: bool, text: str) -> dict[str, Any]:
    return {"type": _PARTS[reasoning], "text": text, **({} if reasoning else {"annotations": [], "logprobs": []})}


def _usage(stats: Stats) -> dict[str, Any]:
    return {
        "usage": {
            "input_tokens": stats.prompt_tokens,
            "input_tokens_details": {"cached_tokens": stats.reused_tokens, "cache_write_tokens": 0},
            "output_tokens": stats.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        }
    }
