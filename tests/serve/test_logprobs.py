"""Log-probabilities in replies, as OpenAI's client reads them."""

from collections.abc import Sequence
from dataclasses import replace

import openai
import pytest

from specchat.engine.protocol.events import Event, Finished, Started, Step, TokenLogprob
from specchat.engine.protocol.options import Speculation, Written
from specchat.engine.protocol.stats import Stats
from tests.fake import FakeEngine
from tests.fake_steps import steps
from tests.serve.conftest import serving
from tests.serve.test_clients import ASK, requested
from tests.serve.test_requests_of_clients import post

TOP = ((b"Once", -0.5), (b"\xf0\x9f", -1.5))
NAMED = [("Once", -0.5), ("\ufffd", -1.5)]
TEXT = "Once there was"
STARTED = Started(1, 5, 0, 7, Speculation())


def recorded() -> Sequence[Event]:
    """A reply in steps of two tokens, one of which is held back as text, and tells no text of its own."""
    first, second = steps(TEXT, accepted=(1, 0))
    told = [TokenLogprob(text, -0.25 * at, TOP) for at, text in enumerate((b"Once", b" there", b" was"), 1)]
    held = replace(second, pieces=())
    return (
        STARTED,
        replace(first, logprobs=tuple(told[:2])),
        replace(held, logprobs=tuple(told[2:])),
        Finished(1, "stop", TEXT, (1, 2, 3), Stats(5, 0, 3)),
    )


@pytest.fixture
def telling() -> FakeEngine:
    return FakeEngine((recorded(),))


async def test_a_chats_tokens_have_theirs(telling: FakeEngine) -> None:
    async with serving(telling) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        create = client.chat.completions.create
        whole = await create(model="demo", messages=ASK, logprobs=True, top_logprobs=2)  # type: ignore[call-overload]
        assert requested(telling).logprobs == 2
        stream = await create(model="demo", messages=ASK, logprobs=True, stream=True)  # type: ignore[call-overload]
        chunks = [chunk.choices[0] async for chunk in stream if chunk.choices]
        assert requested(telling).logprobs == 0
        await create(model="demo", messages=ASK)  # type: ignore[call-overload]
        assert requested(telling).logprobs is None
    content = whole.choices[0].logprobs.content
    assert [(one.token, one.logprob) for one in content] == [("Once", -0.25), (" there", -0.5), (" was", -0.75)]
    assert content[0].bytes == list(b"Once")
    assert [(top.token, top.logprob) for top in content[0].top_logprobs] == NAMED
    assert content[0].top_logprobs[1].bytes == [0xF0, 0x9F]
    assert chunks[0].logprobs is None
    assert [len(chunk.logprobs.content) for chunk in chunks if chunk.logprobs] == [2, 1]
    assert chunks[-1].logprobs.content[0].token == " was", "those of text that is held back come at the end"


async def test_an_answers_tokens_have_theirs_without_those_of_reasoning() -> None:
    begun, second = steps(Written.of([("Hm.", True), ("Once there", False)]), accepted=(9,), length=9)[0], recorded()[2]
    assert isinstance(second, Step)
    first = tuple(TokenLogprob(text, -1.0) for text in (b"Hm", b".", b"Once", b" there"))
    reply = [STARTED, replace(begun, logprobs=first), second, Finished(1, "stop", TEXT, (1, 2, 3), Stats(5, 0, 3))]
    async with (
        serving(FakeEngine((reply,))) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client,
    ):
        asked = {"model": "demo", "input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
        whole = await client.responses.create(**asked)  # type: ignore[call-overload]
        async with client.responses.stream(**asked) as stream:
            deltas = [event.logprobs async for event in stream if event.type == "response.output_text.delta"]
            streamed = await stream.get_final_response()
    for found in (whole, streamed):
        told = found.output[1].content[0].logprobs
        assert [one.token for one in told] == ["Once", " there", " was"]
        assert len(told[2].top_logprobs) == 2
    assert [one.token for delta in deltas for one in delta] == ["Once", " there"]


async def test_a_completions_tokens_have_lists(telling: FakeEngine) -> None:
    async with serving(telling) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        whole = await client.completions.create(model="demo", prompt="Once", logprobs=2)
        assert requested(telling).logprobs == 2
        stream = await client.completions.create(model="demo", prompt="Once", logprobs=2, stream=True)
        chunks = [chunk.choices[0].logprobs async for chunk in stream if chunk.choices]
        with pytest.raises(openai.BadRequestError, match="logprobs"):
            await client.completions.create(model="demo", prompt="Once", logprobs=21)
    found = whole.choices[0].logprobs
    assert found.tokens == ["Once", " there", " was"]
    assert found.token_logprobs == [-0.25, -0.5, -0.75]
    assert found.top_logprobs[0] == {"Once": -0.5, "bytes:\\xf0\\x9f": -1.5}
    assert found.text_offset == [4, 8, 14], "after the prompt, as OpenAI has them"
    assert [chunk.text_offset for chunk in chunks if chunk] == [[4, 8], [14]]


PARTS = [b" a", b"\xf0\x9f", b"\xa6", b"\x8a", "é".encode(), b"</s>", b"."]
"""A fox is three tokens here, and the text shows no end."""


def parted(prompt: Sequence[bytes] = ()) -> Sequence[Event]:
    step = steps(" a\U0001f98aé.", accepted=(9,), length=9)[0]
    told = tuple(TokenLogprob(part, -1.0, shown=part != b"</s>") for part in PARTS)
    read = tuple(TokenLogprob(part, -1.0 if at else None) for at, part in enumerate(prompt))
    first = replace(STARTED, logprobs=read)
    return first, replace(step, logprobs=told), Finished(1, "stop", " a\U0001f98aé.", (1,), Stats(5, 0, 7))


async def test_parts_of_a_character_have_its_place_and_their_bytes() -> None:
    async with serving(FakeEngine((parted(),))) as server:
        body = {"prompt": "Ü", "logprobs": 0}
        (whole,) = (await post(server, "completions", body)).json()["choices"]
        chat = {"messages": ASK, "logprobs": True}
        content = (await post(server, "chat/completions", chat)).json()["choices"][0]["logprobs"]["content"]
    assert whole["logprobs"]["tokens"] == [" a", "bytes:\\xf0\\x9f", "bytes:\\xa6", "bytes:\\x8a", "é", "</s>", "."]
    assert whole["logprobs"]["text_offset"] == [1, 3, 3, 3, 4, 5, 5]
    assert [one["token"] for one in content[:4]] == [" a", "\ufffd", "\ufffd", "\ufffd"]
    assert [one["bytes"] for one in content] == [list(part) for part in PARTS]


@pytest.mark.parametrize(
    ("tokens", "prompt", "offsets"),
    [
        ([b"<s>", b" \xc3\x9c", b"b"], "Üb", [0, 0, 1, 2]),
        ([b"b", b"\xc3", b"\x9c", b"b"], "bÜb", [0, 1, 1, 2]),
        ([b"\xc3\x9c", b"<s>", b"b"], "Ü<s>b", [0, 1, 4, 5]),
    ],
)
async def test_tokens_of_a_prompt_have_their_places_in_it(tokens: list[bytes], prompt: str, offsets: list[int]) -> None:
    """A token that the tokenizer puts first, and the space of a first word, are not in it."""
    async with serving(FakeEngine((parted(tokens),))) as server:
        body = {"prompt": prompt, "logprobs": 0, "echo": True}
        (found,) = (await post(server, "completions", body)).json()["choices"]
    assert found["text"].startswith(prompt)
    assert found["logprobs"]["text_offset"][: len(offsets)] == offsets
