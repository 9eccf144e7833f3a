"""Tools and choices of requests as they are read."""

from typing import Any

import pytest

from specchat.engine.protocol.options import Message, ToolCall
from specchat.serve.errors import ApiError
from specchat.serve.tools import MAX_TOOLS, AnthropicChoice, of_anthropic, of_chat, of_responses, with_names

LOOK = {"name": "look", "description": "Look into a file.", "strict": True}
CHAT = {"type": "function", "function": LOOK}


def test_what_a_provider_runs_is_left_out_within_a_namespace_too() -> None:
    inner = [{"type": "function", **LOOK}, {"type": "web_search_2026"}]
    use = of_responses([{"type": "namespace", "name": "files", "tools": inner}, {"type": "mcp"}], "auto", None)
    assert ([tool.name for tool in use.tools], use.left_out) == (["files.look"], ("mcp", "web_search_2026"))
    with pytest.raises(ApiError, match=r"tools\.0\.tools\.1: type apply_patch is not supported"):
        of_responses([{"type": "namespace", "name": "files", "tools": [inner[0], {"type": "apply_patch"}]}], None, None)


@pytest.mark.parametrize(
    ("tools", "choice", "words"),
    [
        ([{"type": "mcp.files"}], None, r"tools\.0: type mcp\.files is not supported"),
        ([{"name": "look"}], None, r"tools\.0: its type is not function"),
        (["look"], None, r"tools\.0: its type is not function"),
        ([CHAT], {"type": "custom", "function": {"name": "look"}}, "one function or allowed_tools can be chosen"),
        ([CHAT], {"type": "function", "function": {"name": 5}}, "one function or allowed_tools can be chosen"),
        ([CHAT], "any", "one function or allowed_tools can be chosen"),
        ([CHAT] * (MAX_TOOLS + 1), None, "at most 2,000"),
    ],
)
def test_what_is_no_tool_or_choice_is_named(tools: list[Any], choice: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        of_chat(tools, choice, None)


def test_all_that_a_tool_says_goes_to_the_model() -> None:
    (chat,) = of_chat([CHAT] * MAX_TOOLS, None, None).tools[:1]
    use = of_anthropic([{**LOOK, "input_schema": {}}], AnthropicChoice(type="any"))
    assert use.tools == (chat,)
    assert (chat.description, chat.strict, use.choice) == ("Look into a file.", True, "required")


def test_a_result_keeps_the_name_that_it_has() -> None:
    call = Message("assistant", "", tool_calls=(ToolCall("1", "look", "{}"),))
    results = [Message("tool", "x", tool_call_id="1", tool_name=name) for name in ("", "see")]
    assert [message.tool_name for message in with_names([call, *results])] == ["", "look", "see"]
