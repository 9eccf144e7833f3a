"""A reply that calls a tool of a real server, from the prompt to the answer, as updates arrive."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.engine.fake import FakeEngine
from specchat.mcp_tools.servers import ToolServers
from specchat.mcp_tools.servers_file import ServerEntry
from specchat.service.chat_service import ChatService
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
