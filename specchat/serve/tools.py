"""Tools of a request, in the forms of OpenAI's and Anthropic's APIs."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from specchat.engine.options import Message, Tool, ToolCall, ToolChoice
from specchat.serve.errors import ApiError
from specchat.serve.lenient import Lenient

MAX_TOOLS = 2000
_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
CHOICES = ("auto", "none", "required")


@dataclass(frozen=True)
class ToolUse:
    """The tools of a request, and what may be done with them; `parallel` allows several calls in one reply."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = "auto"
    parallel: bool = True

    def passed_on(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls of a whole reply that the client gets: without `parallel` the first alone."""
        return tuple(calls) if self.parallel else tuple(calls[:1])


NO_TOOLS = ToolUse()


class FunctionFields(Lenient):
    """OpenAI's function, as a part of a tool or, in responses, the tool itself."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicTool(Lenient):
    type: str | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicChoice(Lenient):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool = False


def of_chat(tools: Sequence[Any] | None, choice: Any, parallel: bool | None) -> ToolUse:
    """Tools as `/v1/chat/completions` takes them.

    Raises:
        ApiError: a tool or the choice cannot be used.
    """
    found = [_function(_inner(tool, n), n) for n, tool in enumerate(tools or ())]
    return _use(found, _choice(choice, lambda given: given.get("function")), parallel is not False)


def of_responses(tools: Sequence[Any] | None, choice: Any, parallel: bool | None) -> ToolUse:
    """Tools as `/v1/responses` takes them; raises as `of_chat` does."""
    for n, tool in enumerate(tools or ()):
        _of_type(tool, n, "function")
    found = [_function(tool, n) for n, tool in enumerate(tools or ())]
    return _use(found, _choice(choice, lambda given: given), parallel is not False)


def of_anthropic(tools: Sequence[Any] | None, choice: AnthropicChoice | None) -> ToolUse:
    """Tools as `/v1/messages` takes them; raises as `of_chat` does."""
    found = []
    for n, given in enumerate(tools or ()):
        if isinstance(given, dict) and given.get("type") not in (None, "custom"):
            _of_type(given, n, "custom")
        tool = _validated(AnthropicTool, given, n)
        schema = json.dumps(tool.input_schema or {}, ensure_ascii=False)
        found.append(Tool(tool.name, tool.description or "", schema, bool(tool.strict)))
    if choice is None:
        return _use(found, "auto", True)
    named = {"any": "required", "tool": choice.name}.get(choice.type, choice.type)
    return _use(found, named, not choice.disable_parallel_tool_use)


def with_names(messages: Iterable[Message]) -> list[Message]:
    """The messages, results with the names of the functions that they come from."""
    names: dict[str, str] = {}
    made = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        if message.role == "tool":
            message = replace(message, tool_name=message.tool_name or names.get(message.tool_call_id, ""))
        made.append(message)
    return made


def _inner(tool: Any, n: int) -> Any:
    _of_type(tool, n, "function")
    return tool.get("function")


def _of_type(tool: Any, n: int, wanted: str) -> None:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != wanted:
        words = (
            f"type {kind} is not supported by specchat serve; {wanted} is." if kind else f"its type is not {wanted}."
        )
        raise ApiError(400, f"tools.{n}: {words}", f"tools.{n}")


def _function(given: Any, n: int) -> Tool:
    function = _validated(FunctionFields, given, n)
    parameters = json.dumps(function.parameters or {}, ensure_ascii=False)
    return Tool(function.name, function.description or "", parameters, bool(function.strict))


def _validated(kind: Any, given: Any, n: int) -> Any:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(("tools", str(n), *(str(part) for part in first["loc"])))
        raise ApiError(400, f"{name}: {first['msg']}", name) from None


def _choice(choice: Any, function: Any) -> ToolChoice:
    """A choice in OpenAI's form; `function` gets the part that names one."""
    if choice is None or (isinstance(choice, str) and choice in CHOICES):
        return choice or "auto"
    named = function(choice) if isinstance(choice, dict) and choice.get("type") == "function" else None
    if not isinstance(named, dict) or not isinstance(named.get("name"), str):
        words = f"tool_choice: {', '.join(CHOICES)} or one function can be chosen."
        raise ApiError(400, words, "tool_choice")
    return str(named["name"])


def _use(tools: list[Tool], choice: ToolChoice, parallel: bool) -> ToolUse:
    if len(tools) > MAX_TOOLS:
        raise ApiError(400, f"tools: at most {MAX_TOOLS:,} can be given.", "tools")
    for n, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            words = f"tools.{n}.name: 1 to 128 letters, digits and the signs _ . : / - make a name."
            raise ApiError(400, words, f"tools.{n}.name")
    names = {tool.name for tool in tools}
    if choice not in CHOICES and choice not in names:
        raise ApiError(400, f"tool_choice: there is no tool {choice}.", "tool_choice")
    if choice == "required" and not tools:
        raise ApiError(400, "tool_choice: there are no tools.", "tool_choice")
    return ToolUse(tuple(tools), choice, parallel)
