"""Clients that are tried where they are installed: each has its tool called, gives the result back and is answered.

pip install litellm llm
npm install ai zod @ai-sdk/openai-compatible @ai-sdk/openai @ai-sdk/anthropic
NODE_PATH=$PWD/node_modules pytest tests/serve/test_installed_clients.py
"""

import asyncio
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specchat.engine.protocol.options import Message
from tests.fake import FakeEngine
from tests.serve.conftest import serving
from tests.serve.test_clients import requested
from tests.serve.test_tools import CALLING, CALLS, HI, OPENAI

LOOP = """
const { generateText, streamText, stepCountIs, tool } = require("ai");
const { z } = require("zod");
const [url] = process.argv.slice(1);
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const given = { baseURL: `${url}/v1`, apiKey: "x", name: "here" };
const models = [
  createOpenAICompatible(given)("demo"),
  require("@ai-sdk/openai").createOpenAI(given).responses("demo"),
  require("@ai-sdk/anthropic").createAnthropic(given)("demo"),
];
const look = tool({
  description: "Look into a file.",
  inputSchema: z.object({ path: z.string() }),
  execute: async ({ path }) => `text of ${path}`,
});
const asked = { prompt: "hi", tools: { look }, stopWhen: stepCountIs(3), maxOutputTokens: 99, maxRetries: 0 };
(async () => {
  for (const model of models) {
    console.log((await generateText({ model, ...asked })).text);
    console.log(await streamText({ model, ...asked, onError: ({ error }) => { throw error; } }).text);
  }
})();
"""
"""Vercel's AI SDK by each of its three ways to a server, whole and streamed."""
MESSAGES = (
    Message("user", "hi"),
    Message("assistant", "I look.", tool_calls=CALLS[:1]),
    Message("tool", "text of a.txt", tool_call_id=CALLS[0].id, tool_name="look"),
)
"""The last request of each loop."""


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine((replace(CALLING, tool_calls=CALLS[:1]), "Done."))


@pytest.mark.skipif(
    not shutil.which("node") or not (Path(os.environ.get("NODE_PATH") or "none") / "ai").is_dir(),
    reason="needs Node and the package ai in NODE_PATH",
)
async def test_ai_sdk_runs_tools_to_the_answer(engine: FakeEngine) -> None:
    async with serving(engine) as server:
        command = ["node", "-e", LOOP, server.url]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["Done."] * 6, ran.stderr
    assert requested(engine).messages == MESSAGES


async def test_litellm_runs_tools_to_the_answer(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm")
    async with serving(engine) as server:
        for model, base in (("openai/demo", f"{server.url}/v1"), ("anthropic/demo", server.url)):
            for stream in (False, True):
                kind: dict[str, Any] = {"model": model, "api_base": base, "api_key": "x", "tools": OPENAI}
                found = await litellm.acompletion(messages=HI, stream=stream, **kind)
                if stream:
                    found = litellm.stream_chunk_builder([chunk async for chunk in found], messages=HI)
                said = found.choices[0].message
                (call,) = said.tool_calls
                assert (said.content, json.loads(call.function.arguments)) == ("I look.", {"path": "a.txt"})
                result = {"role": "tool", "tool_call_id": call.id, "content": "text of a.txt"}
                last = await litellm.acompletion(messages=[*HI, said.model_dump(), result], **kind)
                assert last.choices[0].message.content == "Done."
                assert requested(engine).messages == MESSAGES


async def test_llm_runs_tools_to_the_answer(engine: FakeEngine) -> None:
    models = pytest.importorskip("llm.default_plugins.openai_models", reason="needs the package llm")

    def look(path: str) -> str:
        """Look into a file."""
        return f"text of {path}"

    async with serving(engine) as server:
        model = models.AsyncChat("demo", api_base=f"{server.url}/v1", supports_tools=True)
        for stream in (False, True):
            chain = model.chain("hi", tools=[look], stream=stream, key="x")
            assert [await response.text() async for response in chain.responses()] == ["I look.", "Done."]
            assert requested(engine).messages == MESSAGES
