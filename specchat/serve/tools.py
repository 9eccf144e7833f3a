"""Tools of a request, in the forms of OpenAI's and Anthropic's APIs."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field, ValidationError

from specchat.engine.protocol.options import Message, Tool, ToolCall, ToolChoice
from specchat.serve.errors import ApiError
from specchat.serve.lenient import Lenient

MAX_TOOLS = 2000
_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
CHOICES = ("auto", "none", "required")
_PROVIDED = re.compile(
    r"(?:web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation|tool_search|mcp)\w*",
    re.ASCII,
)
"""Types of tools that run at the provider of a model."""


@dataclass(frozen=True)
class ToolUse:
    """The tools of a request, and what may be done with them.

    Attributes:
        parallel: several calls in one reply are allowed.
        namespaces: namespace and name of functions that stand in one, by the name that the model knows.
        left_out: types of tools that run at a provider, which the model does not see.
    """

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = "auto"
    parallel: bool = True
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def passed_on(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls of a whole reply that the client gets: without `parallel` the first alone."""
        return tuple(calls) if self.parallel else tuple(calls[:1])

    def named(self, name: str) -> dict[str, str]:
        """The fields that name a function to the client."""
        if name not in self.namespaces:
            return {"name": name}
        namespace, own = self.namespaces[name]
        return {"name": own, "namespace": namespace}


NO_TOOLS = ToolUse()


class FunctionFields(Lenient):
    """OpenAI's function, as a part of a tool or, in responses, the tool itself."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamespaceFields(Lenient):
    """Functions under a common name, as Codex gives the tools of a server."""

    name: str
    tools: list[Any] = Field(default_factory=list)


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
    own, left_out = _own(tools, "function")
    found = [_function(tool.get("function"), where) for where, tool in own]
    use = _chosen(found, choice, lambda given: given.get("function"), parallel)
    return replace(use, left_out=left_out)


def of_responses(tools: Sequence[Any] | None, choice: Any, parallel: bool | None) -> ToolUse:
    """Tools as `/v1/responses` takes them; raises as `of_chat` does."""
    own, left_out = _own(tools, "function", "namespace")
    found: list[Tool] = []
    namespaces: dict[str, tuple[str, str]] = {}
    for where, tool in own:
        if tool["type"] == "function":
            found.append(_function(tool, where))
            continue
        namespace = _validated(NamespaceFields, tool, where)
        inner, others = _own(namespace.tools, "function", where=f"{where}.tools")
        left_out += others
        for place, one in inner:
            function = _function(one, place)
            shown = full_name(namespace.name, function.name)
            namespaces[shown] = namespace.name, function.name
            found.append(replace(function, name=shown))
    use = _chosen(found, choice, lambda given: given, parallel)
    return replace(use, namespaces=namespaces, left_out=left_out)


def full_name(namespace: str, name: str) -> str:
    """The name by which the model knows a function."""
    return f"{namespace}.{name}" if namespace else name


def of_anthropic(tools: Sequence[Any] | None, choice: AnthropicChoice | None) -> ToolUse:
    """Tools as `/v1/messages` takes them; raises as `of_chat` does."""
    found = []
    own, left_out = _own(tools, "custom", None)
    for where, given in own:
        tool = _validated(AnthropicTool, given, where)
        schema = json.dumps(tool.input_schema or {}, ensure_ascii=False)
        found.append(Tool(tool.name, tool.description or "", schema, bool(tool.strict)))
    choice = choice or AnthropicChoice(type="auto")
    named = {"any": "required", "tool": choice.name}.get(choice.type, choice.type)
    return replace(_use(found, named, not choice.disable_parallel_tool_use), left_out=left_out)


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


def _own(
    tools: Sequence[Any] | None, *wanted: str | None, where: str = "tools"
) -> tuple[list[tuple[str, Any]], tuple[str, ...]]:
    """The tools of the `wanted` types with their places, and the types of those that run at a provider.

    Raises:
        ApiError: one is of another type.
    """
    own, left_out = [], []
    for n, tool in enumerate(tools or ()):
        kind = tool.get("type") if isinstance(tool, dict) else ""
        if isinstance(kind, str) and _PROVIDED.fullmatch(kind):
            left_out.append(kind)
        elif kind in wanted:
            own.append((f"{where}.{n}", tool))
        else:
            words = f"type {kind} is not supported by specchat serve; {wanted[0]} is."
            words = words if kind else f"its type is not {wanted[0]}."
            raise ApiError(400, f"{where}.{n}: {words}", f"{where}.{n}")
    return own, tuple(left_out)


def _function(given: Any, where: str) -> Tool:
    function = _validated(FunctionFields, given, where)
    parameters = json.dumps(function.parameters or {}, ensure_ascii=False)
    return Tool(function.name, function.description or "", parameters, bool(function.strict))


def _validated(kind: Any, given: Any, where: str) -> Any:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join((where, *(str(part) for part in first["loc"])))
        raise ApiError(400, f"{name}: {first['msg']}", name) from None


def _chosen(tools: list[Tool], choice: Any, function: Any, parallel: bool | None) -> ToolUse:
    """The use of tools by a choice in OpenAI's form; of `allowed_tools` the model sees these alone."""
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        nested = choice.get("allowed_tools")
        allowed = nested if isinstance(nested, dict) else choice
        listed = allowed.get("tools") or []
        if not isinstance(listed, list):
            raise ApiError(400, "tool_choice: the tools of allowed_tools have to be a list.", "tool_choice")
        names = [_choice(one, function) for one in listed]
        if unknown := set(names) - {tool.name for tool in tools}:
            raise ApiError(400, f"tool_choice: there is no tool {min(unknown)}.", "tool_choice")
        tools, choice = [tool for tool in tools if tool.name in names], allowed.get("mode")
    return _use(tools, _choice(choice, function), parallel is not False)


def _choice(choice: Any, function: Any) -> ToolChoice:
    """A choice in OpenAI's form; `function` gets the part that names one."""
    if choice is None or (isinstance(choice, str) and choice in CHOICES):
        return choice or "auto"
    named = function(choice) if isinstance(choice, dict) and choice.get("type") == "function" else None
    if not isinstance(named, dict) or not isinstance(named.get("name"), str):
        words = f"tool_choice: {', '.join(CHOICES)}, one function or allowed_tools can be chosen."
        raise ApiError(400, words, "tool_choice")
    return full_name(str(named.get("namespace") or ""), str(named["name"]))


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
