"""The calls that replies make: shown and asked for, made, and gathered until all of a reply's have a result."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import field, replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Literal

from specchat.chat.tool_results import ToolResult
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.options import ToolCall
from specchat.mcp_tools.served import ServedTool
from specchat.service.chat_tools import ChatTools
from specchat.service.settings import ChatSettings

MOST_ROUNDS = 10
"""Replies with calls that follow each other at most, until the user says to go on."""
DECLINED = "The user declined this call."
STOPPED = "The user stopped this call."
Decision = Literal["once", "always", "no"]
LONGEST, SHORTEST = 30_000, 1_000
"""Characters of a result."""


@dataclass(eq=False)
class PendingCall:
    """A call without a result yet; `arguments` are those of `call`, read."""

    call: ToolCall
    tool: ServedTool
    arguments: dict[str, Any]
    future: "Future[Any] | None" = None
    """Set once it is made."""
    began: float = 0.0
    """`monotonic()` then."""


@dataclass(eq=False)
class CallRound:
    """The calls of one reply; number `number` after a prompt."""

    chat: Conversation
    reply: Reply
    settings: ChatSettings
    number: int
    most: int
    """Characters of a result at most."""
    pending: list[PendingCall] = field(default_factory=list)
    results: dict[str, ToolResult] = field(default_factory=dict)
    """By the calls' ids."""

    @property
    def asked(self) -> PendingCall | None:
        """The first call that waits for the user's answer."""
        return next((pending for pending in self.pending if pending.future is None), None)

    @property
    def in_order(self) -> tuple[ToolResult, ...]:
        """The results in the order of their calls."""
        return tuple(self.results[call.id] for call in self.reply.tool_calls if call.id in self.results)


class Calls:
    """At most one round a chat. Call all methods from one thread; `arrived` is called, from another, for `take`."""

    def __init__(self, tools: ChatTools) -> None:
        self._tools = tools
        self._rounds: list[CallRound] = []
        self._outcomes: SimpleQueue[tuple[CallRound, PendingCall, Future[Any]]] = SimpleQueue()
        self.arrived: Callable[[], object] = lambda: None

    def __bool__(self) -> bool:
        return bool(self._rounds)

    @property
    def all(self) -> tuple[CallRound, ...]:
        return tuple(self._rounds)

    def of(self, chat: str) -> CallRound | None:
        """The round of the chat with this key."""
        return next((each for each in self._rounds if each.chat.key == chat), None)

    def begin(self, chat: Conversation, reply: Reply, settings: ChatSettings, number: int, context: int) -> CallRound:
        """Begin a round with the calls of `reply`; a result may have as many characters as `context` has tokens."""
        most = max(SHORTEST, min(LONGEST, context))
        self._rounds.append(begun := CallRound(chat, reply, settings, number, most))
        offered = self._tools.offered(chat.key)
        for call in reply.tool_calls:
            tool, arguments = offered.get(call.name), _read(call.arguments)
            if tool is None:
                self._fail(begun, call, f"There is no tool {one_line(call.name, 60)}. There are: {', '.join(offered)}.")
            elif arguments is None:
                self._fail(begun, call, "The arguments are no JSON object.")
            else:
                begun.pending.append(PendingCall(call, tool, arguments))
        self._make_permitted(begun)
        return begun

    def decide(self, asking: CallRound, call: PendingCall, decision: Decision) -> None:
        """Take the user's answer for a call that is asked for."""
        if call not in asking.pending or call.future is not None:
            return
        if decision == "no":
            asking.pending.remove(call)
            asking.results[call.call.id] = replace(_failed(call, DECLINED), declined=True)
            self.arrived()
            return
        if decision == "always":
            self._tools.permit(asking.chat.key, call.tool)
        self._make(asking, call)
        self._make_permitted(asking)

    def take(self) -> list[CallRound]:
        """Take in what arrived; gives the rounds that have all results, which end with this."""
        self._gather()
        complete = [each for each in self._rounds if not each.pending]
        self._rounds = [each for each in self._rounds if each.pending]
        return complete

    def stop(self, asking: CallRound) -> None:
        """End a round now; what has no result gets one that says so."""
        self._gather()
        for call in asking.pending:
            if call.future is not None:
                call.future.cancel()
            asking.results[call.call.id] = _failed(call, STOPPED)
        asking.pending = []
        self._rounds.remove(asking)

    def drop(self, chat: str) -> None:
        """Forget the round of a chat that is deleted."""
        if (asking := self.of(chat)) is not None:
            self.stop(asking)

    def close(self) -> None:
        """Stop all calls."""
        for asking in list(self._rounds):
            self.stop(asking)

    def _gather(self) -> None:
        """Take in the outcomes that arrived."""
        while True:
            try:
                asking, call, future = self._outcomes.get_nowait()
            except Empty:
                return
            if call in asking.pending:
                asking.pending.remove(call)
                asking.results[call.call.id] = _result(call, future)

    def _make_permitted(self, asking: CallRound) -> None:
        for call in asking.pending:
            if call.future is None and self._tools.permitted(asking.chat.key, call.tool):
                self._make(asking, call)

    def _make(self, asking: CallRound, call: PendingCall) -> None:
        future = self._tools.servers.call(call.tool, call.arguments, asking.most)
        call.future, call.began = future, monotonic()

        def ended(future: "Future[Any]") -> None:
            self._outcomes.put((asking, call, future))
            self.arrived()

        future.add_done_callback(ended)

    def _fail(self, asking: CallRound, call: ToolCall, why: str) -> None:
        asking.results[call.id] = ToolResult(call.id, call.name, why, failed=True)


def _read(arguments: str) -> dict[str, Any] | None:
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _result(call: PendingCall, future: "Future[Any]") -> ToolResult:
    try:
        outcome = future.result(0)
    except Exception as error:
        return _failed(call, f"The call failed ({type(error).__name__}).")
    made, seconds = call.call, round(outcome.seconds, 3)
    return ToolResult(made.id, made.name, outcome.text, not outcome.ok, seconds, call.tool.server)


def _failed(call: PendingCall, why: str) -> ToolResult:
    return ToolResult(call.call.id, call.call.name, why, failed=True, server=call.tool.server)
