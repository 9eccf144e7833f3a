"""Ollama's API, as its clients read it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from specchat.engine.protocol.events import Finished, TokenLogprob
from specchat.engine.protocol.options import Grammar, Message, ToolCall, Written
from specchat.engine.protocol.pair_info import TargetFacts, TemplateFacts
from specchat.engine.protocol.raw_prompt import FillIn
from specchat.engine.protocol.stats import Stats
from specchat.serve.ollama import OllamaWriter
from tests.fake import INFO, FakeEngine
from tests.fake_steps import steps
from tests.serve.conftest import serving
from tests.serve.test_clients import TEXT, requested
from tests.serve.test_llamacpp import page, post
from tests.serve.test_requests_of_clients import CHOICES, SCHEMA, STARTED, cut
from tests.serve.test_tools import OPENAI

HI = [{"role": "user", "content": "hi"}]


def lines(found: httpx2.Response) -> list[dict[str, Any]]:
    assert found.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in found.text.splitlines()]


async def test_chats_come_as_lines_and_whole() -> None:
    thought = Written.of([("hm\n", True), ("\n\nYes.", False)])
    async with serving(engine := FakeEngine((thought,))) as server:
        options = {"temperature": 0.5, "num_predict": 9, "stop": ["fin"], "seed": 3, "num_ctx": 4096}
        *parts, last = lines(await post(server, "api/chat", model="m", messages=HI, options=options))
        request = requested(engine)
        assert (request.limits.max_tokens, request.limits.stop, request.sampling.seed) == (9, ("fin",), 3)
        assert request.logprobs is None
        assert "".join(part["message"].get("thinking", "") for part in parts).strip() == "hm"
        assert "".join(part["message"]["content"] for part in parts) == "Yes."
        assert not any(part["done"] for part in parts)
        assert (last["done"], last["done_reason"], last["message"]) == (
            True,
            "stop",
            {"role": "assistant", "content": ""},
        )
        whole = (await post(server, "api/chat", messages=HI, stream=False, options={"num_predict": -2})).json()
        assert (requested(engine).limits.max_tokens, whole["message"]["content"]) == (None, "Yes.")
        assert whole["message"]["thinking"] == "hm"
        assert (whole["eval_count"], whole["prompt_eval_count"]) == (last["eval_count"], last["prompt_eval_count"])
        assert whole["total_duration"] >= whole["eval_duration"] > 0
        assert {part["model"] for part in (*parts, last, whole)} == {"demo"}
        for path, said in (("chat", {"message": {"role": "assistant", "content": ""}}), ("generate", {"response": ""})):
            loaded = (await post(server, f"api/{path}", messages=[])).json()
            assert loaded == {
                "model": "demo", "created_at": loaded["created_at"], **said, "done": True, "done_reason": "load"
            }  # fmt: skip
        thinking = (await post(server, "api/generate", prompt="hi", stream=False)).json()
        assert (thinking["response"], thinking["thinking"]) == ("Yes.", "hm")


async def test_calls_and_their_results_belong_together() -> None:
    call = ToolCall("abcdefgh1", "look", '{"path": "a"}')
    engine = FakeEngine((Written("Well.", tool_calls=(call,)),))
    said = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "look", "arguments": {"path": "ç"}}}],
    }
    shown = {"role": "tool", "content": "ok", "images": ["x"]}
    chat = [*HI, said, shown, {"role": "tool", "content": "no", "tool_name": "other"}]
    async with serving(engine) as server:
        *parts, _ = lines(await post(server, "api/chat", messages=chat, tools=OPENAI))
        called = [one for part in parts for one in part["message"].get("tool_calls", ())]
        assert called == [{"function": {"name": "look", "arguments": {"path": "a"}}}]
        _, second, third, fourth = requested(engine).messages
        assert second.tool_calls == (ToolCall(third.tool_call_id, "look", '{"path": "ç"}'),)
        assert third.content == "[image left out: it cannot be read here]\nok"
        assert (third.tool_name, fourth.tool_name) == ("look", "other")
        whole = (await post(server, "api/chat", messages=chat, tools=OPENAI, stream=False)).json()
        assert whole["message"]["tool_calls"] == called
    async with serving(FakeEngine((cut("<call>look: {", '{"pa'),))) as server:
        for stream in (False, True):
            found = await post(server, "api/chat", messages=HI, tools=OPENAI, stream=stream)
            said = lines(found) if stream else [found.json()]
            assert "".join(part["message"]["content"] for part in said) == "Well<call>look: {"
            assert said[-1]["done_reason"] == "length"
    async with serving(FakeEngine((cut("<call>look: {", '{"path": ', '"a"}'),))) as server:
        for stream in (False, True):
            found = await post(server, "api/chat", messages=HI, tools=OPENAI, stream=stream)
            said = (lines(found) if stream else [found.json()])[-1]["message"]
            assert said["tool_calls"] == called, "its mark alone is missing"


async def test_thinking_formats_and_log_probabilities() -> None:
    engine = FakeEngine(info=replace(INFO, template=TemplateFacts(choices=CHOICES)))
    async with serving(engine) as server:
        for think, expected in ((False, {"enable_thinking": False, "reasoning_effort": "low"}),
                                (True, {"enable_thinking": True}),
                                ("high", {"enable_thinking": True, "reasoning_effort": "high"})):  # fmt: skip
            assert (await post(server, "api/chat", messages=HI, think=think)).status_code == 200
            assert dict(requested(engine).template) == expected
        assert (await post(server, "api/chat", messages=HI, think="enormous")).status_code == 400
        for form, grammar in (("json", Grammar("json_object")), (SCHEMA, Grammar("json_schema", json.dumps(SCHEMA)))):
            assert (await post(server, "api/generate", prompt="hi", format=form)).status_code == 200
            assert requested(engine).grammar == grammar
        shown = (await post(server, "api/show", model="demo")).json()
        assert shown["capabilities"] == ["completion", "thinking"]
        assert shown["model_info"]["specchat.context_length"] == INFO.context
    step = replace(steps("Hi", (0,))[0], logprobs=(TokenLogprob(b"Hi", -0.5),))
    ends = replace(step, pieces=(), logprobs=(TokenLogprob(b"</s>", -0.1),))
    began, ended = replace(STARTED, prompt_ms=3.0), Finished(1, "stop", "Hi", (1,), Stats(3, 0, 1))
    async with serving(engine := FakeEngine(((began, step, ends, ended),))) as server:
        for stream in (False, True):
            top = {"top_logprobs": 2} if stream else {}
            found = await post(server, "api/chat", messages=HI, logprobs=True, **top, stream=stream)
            assert requested(engine).logprobs == (2 if stream else 0)
            said = [json.loads(line) for line in found.text.splitlines()]
            logprobs = [one for line in said for one in line.get("logprobs", ())]
            assert [(one["token"], one["logprob"]) for one in logprobs] == [("Hi", -0.5), ("</s>", -0.1)]
            assert [len(one.get("logprobs", ())) for one in said] == ([1, 1] if stream else [2])
            read, wrote, total = (said[-1][f"{name}_duration"] for name in ("prompt_eval", "eval", "total"))
            assert (read, total) == (3_000_000, 3_000_000 + wrote)
    assert json.loads(OllamaWriter("m", "response").alive).items() >= {"response": "", "done": False}.items()


async def test_prompts_are_answered_filled_in_or_taken_as_they_are(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        *parts, last = lines(await post(server, "api/generate", prompt="hi", system="Be brief."))
        assert ("".join(part["response"] for part in parts), last["response"]) == (TEXT, "")
        assert requested(engine).messages == (Message("system", "Be brief."), Message("user", "hi"))
        whole = (await post(server, "api/generate", prompt="hi", raw=True, stream=False)).json()
        assert (whole["response"], whole["done"], requested(engine).raw) == (TEXT, True, "hi")
        await post(server, "api/generate", prompt="def f(", suffix=")")
        assert requested(engine).raw == FillIn("def f(", ")")
        await post(server, "api/generate", suffix=")")
        assert requested(engine).raw == FillIn("", ")")
        for wrong in ({"images": ["x"]}, {"template": "x"}, {"context": [1]}, {"options": {"mirostat": 1}}):
            found = await post(server, "api/generate", **{"prompt": "hi", **wrong})
            assert (found.status_code, list(found.json())) == (400, ["error"])
        for wrong in ({"mirostat": 1}, {"messages": [{"role": "critic"}]}):
            assert (await post(server, "api/chat", **{"messages": HI, **wrong})).status_code == 400


async def test_pictures_are_named_where_a_chat_goes_on(engine: FakeEngine) -> None:
    shown = {"role": "user", "content": "This?", "images": ["x"]}
    async with serving(engine) as server:
        assert (await post(server, "api/chat", messages=[shown])).status_code == 400
        assert (
            await post(server, "api/chat", messages=[shown, {"role": "assistant", "content": "No."}, *HI])
        ).is_success
        assert requested(engine).messages[0].content == "[image left out: it cannot be read here]\nThis?"


async def test_a_failure_is_the_last_line(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        engine.fail_reply("memory", "out of memory")
        assert lines(await post(server, "api/chat", messages=HI))[-1] == {"error": "out of memory"}


@pytest.mark.parametrize(("parameters", "size"), [(10_000_000, "10M"), (1_000_000_000, "1.0B")])
async def test_the_pair_is_listed(parameters: int, size: str) -> None:
    details = {"format": "safetensors", "family": "specchat", "parameter_size": size, "quantization_level": ""}
    async with serving(FakeEngine(info=replace(INFO, target=TargetFacts(parameters)))) as server:
        for path in ("tags", "ps"):
            (listed,) = (await page(server, f"api/{path}"))["models"]
            assert (listed["name"], listed["model"], listed["details"]) == ("demo", "demo", details)
            assert (listed["size"], listed["size_vram"]) == (INFO.load.memory, INFO.load.memory)
            began = datetime.fromtimestamp(server.served.begun, UTC)
            assert (
                datetime.fromisoformat(listed["modified_at"]) == began <= datetime.fromisoformat(listed["expires_at"])
            )
        assert "version" in await page(server, "api/version")
