"""A reply in the words of OpenAI's `/v1/responses`: output items, and the events that build them up."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar

from specchat.engine.protocol.events import Finished, Started, Step
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.stats import Stats
from specchat.serve import figures, sse
from specchat.serve.call_parts import CallPart, CallParts, calls_at_end, is_json
from specchat.serve.errors import ApiError
from specchat.serve.fields import Chat
from specchat.serve.logprobs import ChatLogprobs
from specchat.serve.runs import Runs

Keep = Callable[[dict[str, Any], Message], None]
"""Keeps a response and its reply."""
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
    "truncation": "disabled",
    "user": None,
}
"""Fields of a request that its response repeats, as they are where the request leaves them out."""
_PARTS = {
    "answer": ("content", "output_text"),
    "reasoning": ("content", "reasoning_text"),
    "summary": ("summary", "summary_text"),
}
"""The list of an item that holds its text, and the type of the part there."""


@dataclass
class OpenItem:
    """The output item that is being written.

    Attributes:
        kind: one of `_PARTS`, or the id of a call; empty where none is open.
        tokens: an answer's, with their log-probabilities.
    """

    kind: str = ""
    text: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)


class ResponseWriter:
    """Writes a reply as a response: reasoning, a message and calls are its output items."""

    alive: ClassVar[str] = sse.ALIVE
    media: ClassVar[str] = sse.MEDIA

    def __init__(self, body: Mapping[str, Any], chat: Chat, keep: Keep) -> None:
        """`body` is the request's; `keep` gets the reply once it has ended.

        Reasoning comes as its own summary where one is asked for: many clients show that alone.
        """
        self._head: dict[str, Any] = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body["model"],
            "error": None,
            "incomplete_details": None,
            **{name: usual if body.get(name) is None else body[name] for name, usual in _ECHOED.items()},
        }
        self._chat, self._keep = chat, keep
        self._runs = Runs()
        self._timings = figures.Timings()
        self._output: list[dict[str, Any]] = []
        self._reasoning = "summary" if (body.get("reasoning") or {}).get("summary") else "reasoning"
        self._open = OpenItem()
        self._logprobs = ChatLogprobs()
        self._calls = CallParts(chat.use)
        self._number = -1

    def begin(self, event: Started) -> str:
        self._timings.add(event)
        self._head["seed"] = event.seed
        begun = self._response("in_progress")
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def step(self, event: Step) -> str:
        self._timings.add(event)
        return "".join(self._of_step(event))

    def end(self, event: Finished) -> str:
        """Close what is open, with the text of a call that was cut; the reply is kept."""
        rest = calls_at_end(event, self._chat.use, whole=False)[1]
        parts = [*(self._written("answer", rest) if rest else ()), *self._close(event.reason == "stop")]
        if not self._output:
            self._output.append(_text_item("answer", "completed", [_part("answer", "")]))
        calls = self._chat.use.passed_on(event.written.tool_calls)
        body = self.body(event)
        self._keep(body, replace(event.written.message, tool_calls=calls))
        return "".join([*parts, self._event(f"response.{body['status']}", response=body)])

    def failed(self, error: ApiError) -> str:
        failed = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response={**self._response("failed"), "error": failed})

    def body(self, event: Finished) -> dict[str, Any]:
        response = self._response("completed" if event.reason == "stop" else "incomplete")
        if event.reason != "stop":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return {**response, "timings": self._timings.data(), "metrics": figures.metrics(event), **usage(event.stats)}

    def _of_step(self, step: Step) -> Iterator[str]:
        self._logprobs.add(step)
        for reasoning, text in self._runs.of(step):
            yield from self._written(self._reasoning if reasoning else "answer", text)
        for part in self._calls.of(step):
            if part.begins:
                yield from self._close()
                yield from self._begin_call(part)
            self._open.text.append(part.arguments)
            position = {"item_id": self._output[-1]["id"], "output_index": self._index}
            yield self._event("response.function_call_arguments.delta", **position, delta=part.arguments)

    def _written(self, kind: str, text: str) -> Iterator[str]:
        """Add text of a kind."""
        if kind != self._open.kind:
            yield from self._close()
            yield from self._begin(kind)
        self._open.text.append(text)
        more = self._logprobs_of(text) if kind == "answer" else {}
        yield self._event(f"response.{_event_of(kind)}.delta", **self._position(), delta=text, **more)

    def _logprobs_of(self, text: str) -> dict[str, Any]:
        """The log-probabilities of an answer's new tokens; those of reasoning before it are left out."""
        tokens = (self._logprobs.take() or {"content": []})["content"]
        if text and len(self._output) > 1 and not self._open.tokens:
            lengths = accumulate(len(token["token"]) for token in reversed(tokens))
            tokens = tokens[max(0, len(tokens) - 1 - sum(length < len(text) for length in lengths)) :]
        self._open.tokens += tokens
        return {"logprobs": tokens}

    def _begin(self, kind: str) -> Iterator[str]:
        """Begin an item of text."""
        self._open = OpenItem(kind)
        self._output.append(_text_item(kind, "in_progress", []))
        yield self._event("response.output_item.added", output_index=self._index, item=self._output[-1])
        yield self._event(f"response.{_part_event(kind)}.added", **self._position(), part=_part(kind, ""))

    def _close(self, whole: bool = True) -> Iterator[str]:
        """End the item that is open; the reply's end cut a text that is not `whole`."""
        kind, text, tokens = self._open.kind, "".join(self._open.text), self._open.tokens
        if not kind:
            return
        if kind not in _PARTS:
            self._open = OpenItem()
            yield from self._close_call(text)
            return
        if kind == "answer":
            self._logprobs_of("")
        position, part = self._position(), _part(kind, text, tokens)
        self._open = OpenItem()
        more = {"logprobs": tokens} if kind == "answer" else {}
        yield self._event(f"response.{_event_of(kind)}.done", **position, text=text, **more)
        yield self._event(f"response.{_part_event(kind)}.done", **position, part=part)
        status = "completed" if whole else "incomplete"
        self._output[-1] = {**self._output[-1], "status": status, _PARTS[kind][0]: [part]}
        yield self._event("response.output_item.done", output_index=self._index, item=self._output[-1])

    def _begin_call(self, part: CallPart) -> Iterator[str]:
        """Begin an item of a call."""
        self._open = OpenItem(part.id)
        item = {"id": item_id("fc"), "type": "function_call", "call_id": part.id, **self._chat.use.named(part.name)}
        self._output.append({**item, "arguments": "", "status": "in_progress"})
        yield self._event("response.output_item.added", output_index=self._index, item=self._output[-1])

    def _close_call(self, arguments: str) -> Iterator[str]:
        """End the item of a call; one that was cut has no JSON."""
        item = self._output[-1]
        status = "completed" if is_json(arguments) else "incomplete"
        position = {"item_id": item["id"], "output_index": self._index}
        done = {"arguments": arguments, "name": item["name"]}
        yield self._event("response.function_call_arguments.done", **position, **done)
        self._output[-1] = {**item, "arguments": arguments, "status": status}
        yield self._event("response.output_item.done", output_index=self._index, item=self._output[-1])

    @property
    def _index(self) -> int:
        return len(self._output) - 1

    def _position(self) -> dict[str, Any]:
        """The item and part of the text that is being written."""
        position = {"item_id": self._output[-1]["id"], "output_index": self._index}
        return {**position, f"{_PARTS[self._open.kind][0]}_index": 0}

    def _response(self, status: str) -> dict[str, Any]:
        return {**self._head, "status": status, "output": self._output}

    def _event(self, kind: str, **fields: Any) -> str:
        self._number += 1
        return sse.event({"type": kind, "sequence_number": self._number, **fields}, kind)


def item_id(kind: str) -> str:
    """A new id of an item or a response."""
    return f"{kind}_{uuid.uuid4().hex}"


def _event_of(kind: str) -> str:
    """The name of the events of a text."""
    return "reasoning_summary_text" if kind == "summary" else _PARTS[kind][1]


def _part_event(kind: str) -> str:
    return "reasoning_summary_part" if kind == "summary" else "content_part"


def _text_item(kind: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    if kind == "answer":
        return {"id": item_id("msg"), "type": "message", "role": "assistant", "content": content, "status": status}
    return {"id": item_id("rs"), "type": "reasoning", "summary": [], "content": content, "status": status}


def _part(kind: str, text: str, logprobs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    more = {"annotations": [], "logprobs": list(logprobs)} if kind == "answer" else {}
    return {"type": _PARTS[kind][1], "text": text, **more}


def usage(stats: Stats) -> dict[str, Any]:
    """The `usage` of a response."""
    return {
        "usage": {
            "input_tokens": stats.prompt_tokens,
            "input_tokens_details": {"cached_tokens": stats.reused_tokens, "cache_write_tokens": 0},
            "output_tokens": stats.completion_tokens,
            # Codex reads no response without the number, which servers elsewhere do not tell.
            "output_tokens_details": {"reasoning_tokens": stats.reasoning_tokens or 0},
            "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        }
    }
