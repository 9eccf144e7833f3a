"""A reply that calls a tool of a real server, from the prompt to the answer, as updates arrive."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specchat.mcp_tools.servers import ToolServers
from specchat.mcp_tools.servers_file import ServerEntry
from specchat.remote.engine import RemoteEngine
from specchat.service.chat_service import ChatService
from tests.fake import FakeEngine
from tests.remote.conftest import spec
from tests.remote.server import CHAT, delta, serving
from tests.service.made import CATALOG, service_of
from tests.service.tool_servers import calling

pytest.importorskip("mcp", reason="needs the package mcp")
SERVER = str(Path(__file__).parents[1] / "mcp_tools" / "server.py")


async def follow(service: ChatService) -> None:
    """Allow every call that is asked for, until the prompt is answered."""
    async for _ in service.updates():
        if (calling := service.calling) is not None and calling.asked is not None:
            service.decide(calling.asked, "once")
        if service.conversation.turns and not service.at_work:
            return


async def test_updates_lead_from_the_prompt_to_the_answer() -> None:
    servers = ToolServers([ServerEntry("made", sys.executable, (SERVER, "good"))])
    engine = FakeEngine((calling(("add", '{"a": 40, "b": 2}')), "It is 42."))
    service = service_of(engine, servers=servers, uses_tools=True)
    engine.start()
    service.load(CATALOG.pairs[0])
    service.poll()
    service.send("what is 40 + 2?")
    try:
        await asyncio.wait_for(follow(service), 60)
    finally:
        servers.close()
    first, second = service.conversation.turns
    assert [result.content for result in second.results] == ["42"]
    assert second.results[0].server == "made"
    assert second.reply is not None
    assert second.reply.text == "It is 42."
    assert first.reply is not None
    assert first.reply.results["call_0"].seconds > 0


@pytest.fixture
def remote() -> Iterator[RemoteEngine]:
    engine = RemoteEngine(patience_s=20.0)
    yield engine
    engine.close()


async def test_a_model_on_a_server_calls_tools_of_this_machine(remote: RemoteEngine) -> None:
    """OpenAI's form on the wire both ways; the server is scripted, the engine's client and the tool are real."""
    call = {"id": "c7", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    choice = {"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}, "finish_reason": "tool_calls"}
    replies = iter([f"data: {json.dumps({'choices': [choice]})}\n\n", delta("It is 3.", ends="stop")])
    pages = {"v1__models": {"data": [{"id": "m"}]}, CHAT.strip("/").replace("/", "__"): lambda c: c.send(next(replies))}
    servers = ToolServers([ServerEntry("made", sys.executable, (SERVER, "good"))])
    with serving(**pages) as one:
        service = service_of(remote, servers=servers, uses_tools=True)
        service.load(replace(CATALOG.pairs[0], spec=spec(one.url)))
        service.send("what is 1 + 2?")
        try:
            await asyncio.wait_for(follow(service), 60)
        finally:
            servers.close()
        first, second = (request.body for request in one.of(CHAT)[-2:])
    assert service.last_reply is not None
    assert service.last_reply.text == "It is 3."
    assert "add" in [tool["function"]["name"] for tool in first["tools"]]
    assert second["messages"][1]["tool_calls"] == [call]
    assert second["messages"][2] == {"role": "tool", "content": "3", "tool_call_id": "c7"}


def test_the_package_is_imported_with_the_first_server_only() -> None:
    code = (
        "import sys\n"
        "import specchat.service.chat_service\n"
        "from specchat.mcp_tools.servers import ToolServers\n"
        "from specchat.mcp_tools.servers_file import ServerEntry\n"
        "ToolServers([ServerEntry('a', 'b')]).close()\n"
        "print([name for name in ('mcp', 'mcp_types', 'httpx2', 'anyio') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
