"""Several prompts, tokens as prompts, repeated prompts with their log-probabilities, several replies, and suffixes."""

from dataclasses import replace

import openai

from specchat.engine.protocol.events import Finished, Started, TokenLogprob
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.protocol.requests import Generate
from specchat.engine.protocol.stats import Stats
from tests.fake import FakeEngine
from tests.fake_steps import steps
from tests.serve.conftest import serving
from tests.serve.test_clients import TEXT
from tests.serve.test_requests_of_clients import data, post

READ = (TokenLogprob(b"Once", None), TokenLogprob(b" there", -0.5, ((b" a", -0.25),)))
SCORED = (
    Started(1, 2, 0, 7, Speculation(), logprobs=READ),
    *(replace(step, logprobs=(TokenLogprob(b" was", -1.0, ((b" was", -1.0),)),)) for step in steps(" was", (0,))),
    Finished(1, "length", " was", (3,), Stats(2, 0, 1)),
)


def asked(engine: FakeEngine) -> list[Generate]:
    return [request for request in engine.requests if isinstance(request, Generate)]


async def test_prompts_are_scored_as_lm_eval_asks() -> None:
    engine = FakeEngine((SCORED,))
    body = {
        "prompt": [[1, 501], [5, 6, 7]],
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
        "temperature": 0,
    }
    async with serving(engine) as server:
        found = (await post(server, "completions", body)).json()
    assert [(one.raw, one.scored, one.logprobs, one.limits.max_tokens) for one in asked(engine)] == [
        ((1, 501), True, 1, 1),
        ((5, 6, 7), True, 1, 1),
    ]
    first, second = found["choices"]
    assert [first["text"], second["text"]] == [" 1 501 was", " 5 6 7 was"]
    assert [first["index"], second["index"]] == [0, 1]
    assert first["logprobs"] == {
        "tokens": ["Once", " there", " was"],
        "token_logprobs": [None, -0.5, -1.0],
        "top_logprobs": [None, {" a": -0.25}, {" was": -1.0}],
        "text_offset": [0, 0, 6],
    }
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (4, 2)


async def test_a_prompt_alone_is_scored(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        await client.completions.create(model="demo", prompt="Once", max_tokens=0, echo=True, logprobs=0)
        request = asked(engine)[-1]
        assert (request.raw, request.scored, request.logprobs, request.limits.max_tokens) == ("Once", True, 0, 0)
        told = await client.completions.create(model="demo", prompt="Once", echo=True)
        assert (told.choices[0].text, asked(engine)[-1].scored) == (f"Once{TEXT}", False)


async def test_several_prompts_and_replies_come_as_choices() -> None:
    engine = FakeEngine(("One.", "Two.", "Three.", "Four."))
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        whole = await client.completions.create(model="demo", prompt=["a", "b"], n=2, seed=5, logprobs=None)
        assert [(choice.index, choice.text) for choice in whole.choices] == list(
            enumerate(["One.", "Two.", "Three.", "Four."])
        )
        assert [(one.raw, one.sampling.seed) for one in asked(engine)] == [("a", 5), ("a", 6), ("b", 5), ("b", 6)]
        stream = await client.completions.create(model="demo", prompt=["a", "b"], n=2, echo=True, stream=True)
        texts = dict.fromkeys(range(4), "")
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
        assert texts == {0: "aOne.", 1: "aTwo.", 2: "bThree.", 3: "bFour."}


async def test_a_chat_has_several_replies() -> None:
    engine = FakeEngine(("One.", "Two two."))
    body = {"messages": [{"role": "user", "content": "hi you"}], "n": 2, "seed": 5}
    async with serving(engine) as server:
        whole = (await post(server, "chat/completions", body)).json()
        assert [choice["message"]["content"] for choice in whole["choices"]] == ["One.", "Two two."]
        assert [choice["index"] for choice in whole["choices"]] == [0, 1]
        assert [one.sampling.seed for one in asked(engine)] == [5, 6]
        used = whole["usage"]
        assert (used["prompt_tokens"], used["completion_tokens"], used["total_tokens"]) == (2, 5, 7)
        assert (whole["metrics"], whole["timings"]["predicted_n"]) == (None, 5)
        chunks = await data(server, "chat/completions", {**body, "stream_options": {"include_usage": True}})
    texts = {0: "", 1: ""}
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {0: "One.", 1: "Two two."}
    assert sum(bool(chunk["choices"] and chunk["choices"][0]["finish_reason"]) for chunk in chunks) == 2
    assert chunks[-1]["usage"] == used


async def test_a_suffix_has_the_place_before_it_filled_in(engine: FakeEngine) -> None:
    async with serving(engine) as server, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
        await client.completions.create(model="demo", prompt="def f(", suffix="):\n")
        assert asked(engine)[-1].raw == FillIn("def f(", "):\n")
        for more in ({"prompt": [[1, 2]]}, {"prompt": "a", "echo": True}):
            found = await post(server, "completions", {"suffix": "x", **more})
            assert (found.status_code, "suffix" in found.text) == (400, True)
