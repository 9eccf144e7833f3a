"""How many responses are kept, and which ones go."""

from contextlib import suppress

import pytest

from specchat.engine.protocol.options import Message, Picture, ToolCall
from specchat.serve.errors import ApiError
from specchat.serve.kept_responses import KeptResponse, KeptResponses

SMALL = Message("user", "hi")


def response(name: str, *messages: Message) -> KeptResponse:
    return KeptResponse(messages or (SMALL,), {"id": name}, [])


def kept(responses: KeptResponses) -> str:
    """The names that are kept, of one letter each."""
    found = ""
    for name in "abcdef":
        with suppress(ApiError):
            found += responses.get("me", name).body["id"]
    return found


def test_those_that_were_used_least_lately_go_first() -> None:
    responses = KeptResponses(most=3)
    for name in "abc":
        responses.keep("me", response(name))
    responses.get("me", "a")
    responses.keep("me", response("d"))
    assert kept(responses) == "acd"
    with pytest.raises(ApiError, match="a is not kept"):
        responses.get("other", "a")


def test_an_item_is_told_to_its_client_alone() -> None:
    responses = KeptResponses()
    responses.keep("me", KeptResponse((SMALL,), {"id": "a", "output": [{"id": "out"}]}, [{"id": "in"}]))
    assert [responses.item("me", id, "")["id"] for id in ("in", "out")] == ["in", "out"]
    with pytest.raises(ApiError, match=r"^input\.1: the item out is not kept here"):
        responses.item("other", "out", "input.1")


def test_room_is_given_back() -> None:
    responses = KeptResponses(most=2, characters=4 * response("a").size)
    for name in "abcabc" * 4:
        responses.keep("me", response(name))
    assert kept(responses) == "bc"
    for _ in range(9):
        responses.delete("me", "b")
        responses.keep("me", response("b"))
    assert kept(responses) == "bc"


@pytest.mark.parametrize(
    "large",
    [
        Message("user", "x" * 999),
        Message("assistant", "", "x" * 999),
        Message("assistant", "", tool_calls=(ToolCall("1", "look", "x" * 999),)),
        Message("user", "", pictures=(Picture(b"x" * 999),)),
    ],
)
def test_one_that_takes_all_the_room_is_not_kept(large: Message) -> None:
    responses = KeptResponses(characters=1000)
    responses.keep("me", response("a"))
    responses.keep("me", response("b", large))
    assert kept(responses) == ""
    responses.keep("me", response("c"))
    assert kept(responses) == "c"
