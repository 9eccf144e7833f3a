"""Servers of MCP's own package, each in a process: what they offer, and what becomes of a call."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from specchat.installing import install_command
from specchat.mcp_tools.served import ServedTool, by_name, served
from specchat.mcp_tools.servers import PACKAGE, ToolServers, ToolServerStatus
from specchat.mcp_tools.servers_file import ServerEntry

pytest.importorskip("mcp", reason="needs the package mcp")
ROOT = Path(__file__).parents[2]
SERVER = str(Path(__file__).with_name("server.py"))
HANDMADE = str(Path(__file__).with_name("handmade.py"))
OLDER = str(Path(__file__).with_name("older_server.py"))


def entry(kind: str = "good", name: str = "made", **more: object) -> ServerEntry:
    return ServerEntry(name, sys.executable, (SERVER, kind), **more)  # type: ignore[arg-type]


def older(name: str = "made", **more: object) -> ServerEntry:
    return ServerEntry(name, sys.executable, ("-S", OLDER), **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the names of tools that were called."""
    return tmp_path_factory.mktemp("called") / "called"


@pytest.fixture(scope="module")
def servers(called: Path) -> Iterator[ToolServers]:
    """One good server, which runs on from test to test."""
    env = {"CALLED": str(called), "FOR_IT": "${GIVEN}", "OTHER": "${NOT_THERE:-no}"}
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SECRET_KEY", "hidden")
        environ.setenv("GIVEN", "yes")
        made = ToolServers([entry(env=env)])
        yield made
    made.close()


def until(true: Callable[[], object]) -> None:
    """Wait for what another thread or process does."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def settled(servers: ToolServers, name: str = "made") -> ToolServerStatus:
    """The server's state once it has started, or has not."""
    servers.start([name])
    until(lambda: servers.statuses[name].state != "starting")
    return servers.statuses[name]


def tool(servers: ToolServers, name: str) -> ServedTool:
    return next(tool for tool in settled(servers).tools if tool.name == name)


def call(servers: ToolServers, called: str, most: int = 1000, **arguments: object) -> tuple[bool, str]:
    outcome = servers.call(tool(servers, called), arguments, most).result(60)
    return outcome.ok, outcome.text


def is_running(pid: int) -> bool:
    """True for a process that has not ended; nobody may have waited for one that has."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


def children() -> set[int]:
    """The processes below this one."""
    with subprocess.Popen(["ps", "-eo", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as ps:
        listed = ps.communicate()[0]
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found, grown = {os.getpid()}, True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        grown = bool(new)
        found |= new
    return found - {os.getpid(), ps.pid}


def test_nothing_runs_before_it_is_asked_for() -> None:
    before = children()
    idle = ToolServers([entry()])
    assert idle.statuses["made"] == ToolServerStatus(entry())
    assert children() <= before
    idle.close()


def test_a_server_offers_its_tools_and_is_called(servers: ToolServers) -> None:
    status = settled(servers)
    assert (status.state, status.problem) == ("ready", "")
    add = tool(servers, "add")
    assert (add.server, add.description) == ("made", "Add two numbers.")
    assert '"integer"' in add.schema
    outcome = servers.call(add, {"a": 2, "b": 40}, 1000).result(60)
    assert (outcome.ok, outcome.text) == (True, "42")
    assert outcome.seconds > 0


def test_a_server_sees_no_more_of_the_environment_than_it_is_given(servers: ToolServers) -> None:
    assert call(servers, "environment", name="SECRET_KEY") == (True, "(not set)")
    assert call(servers, "environment", name="FOR_IT") == (True, "yes")
    assert call(servers, "environment", name="OTHER") == (True, "no")


def test_a_long_result_is_cut_with_a_note_and_cleaned(servers: ToolServers) -> None:
    ok, text = call(servers, "wide", 100, size=500_000)
    assert ok
    assert text == "word " * 20 + "\n[cut: the first 100 of 500,000 characters]"
    assert call(servers, "codes") == (True, "a␛]52;c;aGk=bcd")


def test_a_failure_is_told_in_the_tools_words(servers: ToolServers) -> None:
    ok, text = call(servers, "fails")
    assert not ok
    assert "there is no such file" in text
    ok, text = call(servers, "add", a="no number")
    assert not ok
    assert "integer" in text


def test_a_request_for_a_secret_is_declined(servers: ToolServers) -> None:
    ok, text = call(servers, "asks")
    assert not ok
    assert "password=" not in text
    assert call(servers, "add", a=1, b=1) == (True, "2")


def test_a_server_gets_nothing_of_what_it_asks_the_client_for() -> None:
    servers = ToolServers([older()])
    assert call(servers, "asks") == (True, "refused, refused, refused")
    servers.close()


def test_a_server_that_dies_in_a_call_is_started_again_at_the_next(servers: ToolServers, called: Path) -> None:
    ok, text = call(servers, "dies")
    assert not ok
    assert text.startswith("The server ended before it answered. It ended by itself: ")
    assert text.endswith("killed by the test")
    assert servers.statuses["made"].state == "ended"
    assert called.read_text().count("dies") == 1  # it may have done something: it is not called again
    assert call(servers, "add", a=1, b=1) == (True, "2")


def test_a_tool_that_hangs_is_ended_with_its_server_and_the_next_call_finds_another() -> None:
    servers = ToolServers([entry()], seconds=1)
    before = children()
    ok, text = call(servers, "hangs")
    hung = children() - before
    assert (ok, text) == (False, "The tool gave no answer within 1 s, and its server was ended.")
    add = next(tool for tool in servers.statuses["made"].tools if tool.name == "add")
    servers._links["made"]._seconds = 60.0  # a busy machine may need more than one
    assert servers.call(add, {"a": 1, "b": 1}, 100).result(60).text == "2"
    assert not any(map(is_running, hung))
    servers.close()


def ended(before: set[int]) -> None:
    """Wait until no process is left but those."""
    until(lambda: not any(map(is_running, children() - before)))


@pytest.mark.parametrize("name", ["floods", "chatters"])
def test_a_flood_ends_the_server(servers: ToolServers, name: str) -> None:
    ok, text = call(servers, name)
    assert not ok
    assert "It wrote more than" in text
    assert call(servers, "add", a=1, b=1) == (True, "2")


def test_a_call_is_cancelled_and_all_processes_end_with_the_app(tmp_path: Path) -> None:
    servers, before = ToolServers([older(env={"CALLED": str(tmp_path / "called")})]), children()
    pid = int(call(servers, "starts_child")[1])
    waiting: Future[object] = servers.call(tool(servers, "hangs"), {}, 1000)  # type: ignore[assignment]
    until((tmp_path / "called").exists)
    assert waiting.cancel()
    assert is_running(pid)
    assert len(children() - before) >= 3  # the guard, the server, its child
    servers.close()
    ended(before | {pid})
    assert not is_running(pid)


def test_a_server_that_cannot_start_says_why() -> None:
    missing = ServerEntry("missing", "/no/such/program")
    unset = entry(name="unset", env={"A": "${NOT_SET_ANYWHERE}"})
    crashing = ServerEntry("made", sys.executable, ("-S", "-c", "import sys; sys.exit('no database \\x1b[31mhere')"))
    servers = ToolServers([crashing, missing, unset])
    status = settled(servers)
    assert (status.state, status.problem) == ("ended", "It ended by itself: no database ␛[31mhere")
    assert "/no/such/program cannot be started (No such file or directory)" in settled(servers, "missing").problem
    assert settled(servers, "unset").problem == "The environment variable NOT_SET_ANYWHERE is not set."
    servers.close()


def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.mcp_tools.link.START_S", 0.5)
    silent = ServerEntry("made", sys.executable, ("-c", "import time; time.sleep(1000)"))
    servers = ToolServers([silent])
    assert settled(servers).problem == "It was not ready within 0.5 s."
    servers.close()


def test_a_tool_with_a_huge_schema_is_left_out() -> None:
    servers = ToolServers([entry("huge")])
    status = settled(servers)
    servers.close()
    assert "big" not in [tool.name for tool in status.tools]
    assert status.left_out[0].startswith("big is left out: its schema has 40,")
    assert "add" in [tool.name for tool in status.tools]


@contextmanager
def by_hand(*pages: dict[str, Any], result: str = "{}") -> Iterator[ToolServers]:
    command = ServerEntry("made", sys.executable, ("-S", HANDMADE, json.dumps(pages), result))
    made = ToolServers([command])
    yield made
    made.close()


def listed(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names], **more}


ENDLESS = "The server's list of tools does not end; those that came are offered."


@pytest.mark.parametrize(
    ("pages", "names", "notes"),
    [
        ([listed("f", "g", nextCursor="same")], ["f", "g"], (ENDLESS,)),
        (
            [listed("f", nextCursor="a"), listed("g", nextCursor="b"), listed("h", nextCursor="a")],
            ["f", "g", "h"],
            (ENDLESS,),
        ),
        ([listed("f", nextCursor="a"), listed(nextCursor="b"), listed("f", "g")], ["f", "g"], ()),
        ([listed("f", nextCursor="")], ["f"], ()),
    ],
)
def test_a_list_of_tools_ends(pages: list[dict[str, Any]], names: list[str], notes: tuple[str, ...]) -> None:
    with by_hand(*pages) as servers:
        status = settled(servers)
    assert ([tool.name for tool in status.tools], status.left_out) == (names, notes)


@pytest.mark.parametrize(
    "bad",
    [
        {"inputSchema": {}},
        {},
        {"inputSchema": None, "description": 5, "annotations": 7, "title": None},
        {"inputSchema": {"type": "string"}},
        {"inputSchema": {"type": None, "properties": None, "required": "a"}},
        {"inputSchema": {"type": "object", "properties": {"a": "text"}, "required": [5]}, "outputSchema": 5},
    ],
)
def test_a_tool_with_a_mistake_does_no_harm_to_others(bad: dict[str, Any]) -> None:
    page = listed("f", "h")
    page["tools"].insert(1, {"name": "g", **bad})
    page["tools"] += [{"name": 5}, "tool"]
    with by_hand(page, result='{"content": [{"type": "text", "text": "done"}]}') as servers:
        status = settled(servers)
        assert [tool.name for tool in status.tools] == ["f", "g", "h"]
        schema = json.loads(status.tools[1].schema)
        assert {"properties": {}, "required": [], **schema} == {"type": "object", "properties": {}, "required": []}
        assert status.left_out == ("A tool is left out: it has no usable name.",)
        assert call(servers, "g") == (True, "done")


def test_an_answer_that_is_none_of_mcp_is_told_in_a_sentence() -> None:
    with by_hand(listed("f"), result='{"content": null}') as servers:
        ok, words = call(servers, "f")
    assert not ok
    assert words == "The server's answer does not follow MCP (content: Input should be a valid list)."


def test_half_a_character_is_passed_on_as_its_substitute(servers: ToolServers) -> None:
    assert call(servers, "environment", name="\ud83d") == (True, "(not set)")
    text = r'"a \ud83d \\ud83d \ude00 \ud83d\ude00"'
    with by_hand(listed("f"), result=f'{{"content": [{{"type": "text", "text": {text}}}]}}') as made:
        assert call(made, "f") == (True, "a \ufffd \\ud83d \ufffd \U0001f600")


def test_a_server_can_be_stopped_and_started_again(servers: ToolServers) -> None:
    settled(servers)
    servers.stop("made")
    until(lambda: servers.statuses["made"].state != "ready")
    assert (servers.statuses["made"].state, servers.statuses["made"].problem) == ("ended", "")
    assert settled(servers).state == "ready"


def test_a_changed_file_ends_what_changed_and_keeps_the_rest() -> None:
    servers, before = ToolServers([older(), older("other")]), children()
    servers.start(["made", "other"])
    until(lambda: {status.state for status in servers.statuses.values()} == {"ready"})
    running = children() - before
    servers.update([older(), ServerEntry("other", "/no/such/program"), older("third")])
    assert {name: status.state for name, status in servers.statuses.items()} == {
        "made": "ready", "other": "off", "third": "off",
    }  # fmt: skip
    until(lambda: sum(map(is_running, running)) == len(running) // 2)
    assert call(servers, "says") == (True, "said")
    assert "cannot be started" in settled(servers, "other").problem
    says = tool(servers, "says")
    servers.update([])
    assert servers.call(says, {}, 100).result(60).text == "There is no server made any more."
    until(lambda: not any(map(is_running, running)))
    assert servers.statuses == {}
    servers.close()


def test_what_cannot_be_used_is_never_started() -> None:
    servers = ToolServers([entry(disabled=True), ServerEntry("wrong", problem="It needs a command or a url.")])
    servers.start(["made", "wrong", "unknown"])
    assert {status.state for status in servers.statuses.values()} == {"unusable"}
    servers.close()


def test_without_the_package_the_command_for_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specchat.mcp_tools.servers.find_spec", lambda _: None)
    status = ToolServers([entry()]).statuses["made"]
    assert (status.state, status.problem) == ("unusable", f"It needs the package mcp: {install_command(PACKAGE)}")


def test_a_package_that_cannot_be_imported_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "specchat.mcp_tools.link", None)
    servers = ToolServers([entry()])
    status = settled(servers)
    servers.close()
    assert status.state == "unusable"
    assert status.problem.startswith("The package mcp cannot be used (")


def test_words_about_a_tool_are_cleaned_and_its_schema_stays_json() -> None:
    from mcp.types import Tool

    hostile = "a\u2028b\x1b[31m\u202ec"
    schema = {"type": "object", "properties": {hostile: {"description": hostile, "enum": [hostile, 1]}}}
    named = [Tool(name=hostile, input_schema={"type": "object"}), Tool(name="n" * 129, input_schema={"type": "object"})]
    tools, left_out = served(entry(), [Tool(name="read", description=hostile, input_schema=schema), *named])
    (tool,) = tools
    cleaned = "a\nb␛[31mc"
    assert tool.description == cleaned
    assert json.loads(tool.schema)["properties"] == {cleaned: {"description": cleaned, "enum": [cleaned, 1]}}
    assert not set(tool.schema) & set("\x1b\u2028\u202e\n")
    assert [words.partition(" is left out: it has no usable name.")[1] != "" for words in left_out] == [True, True]


def test_a_fingerprint_is_of_the_server_and_of_what_it_says() -> None:
    from mcp.types import Tool

    def fingerprint(entry: ServerEntry, **about: object) -> str:
        tool = Tool(name="read", description="Read.", input_schema={"type": "object"})
        ((one,), _) = served(entry, [tool.model_copy(update=about)])
        return one.fingerprint

    base = ServerEntry("files", "serve", ("a",))
    same = ServerEntry("files", "serve", ("a",), {"KEY": "k"})
    assert fingerprint(base) == fingerprint(same)
    others = {
        fingerprint(ServerEntry("files", "serve", ("b",))),
        fingerprint(ServerEntry("other", "serve", ("a",))),
        fingerprint(ServerEntry("files", "serve", ("a",), cwd="/x")),
        fingerprint(base, description="Read, and send."),
        fingerprint(base, input_schema={"type": "object", "properties": {"to": {}}}),
        fingerprint(base, name="write"),
    }
    assert len(others) == 6
    assert fingerprint(base) not in others
    assert {each.partition("/")[0] for each in others} == {"files", "other"}


def test_names_are_for_every_model_and_unique() -> None:
    def offered(server: str, name: str) -> ServedTool:
        return ServedTool(server, name, "", "{}", "")

    tools = [offered("a", "read"), offered("b b", "read"), offered("a", "x.y/z"), offered("b", "ü"), offered("c", "é")]
    assert list(by_name(tools)) == ["a_read", "b_b_read", "x_y_z", "b", "c"]
    assert by_name([offered("a", "n" * 90)]) == {"n" * 64: offered("a", "n" * 90)}


def test_servers_end_with_a_killed_app(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from specchat.mcp_tools.servers import ToolServers\n"
        "from specchat.mcp_tools.servers_file import ServerEntry\n"
        f"env = {{'CALLED': {str(tmp_path / 'called')!r}}}\n"
        f"servers = ToolServers([ServerEntry('made', sys.executable, ('-S', {OLDER!r}), env)])\n"
        "servers.start(['made'])\n"
        "while servers.statuses['made'].state == 'starting':\n    time.sleep(0.01)\n"
        "tools = {tool.name: tool for tool in servers.statuses['made'].tools}\n"
        "pid = servers.call(tools['starts_child'], {}, 99).result(60).text\n"
        "servers.call(tools['hangs'], {}, 99)\n"
        "print(pid, flush=True)\ntime.sleep(1000)\n"
    )
    app = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert app.stdout is not None
    pid = int(app.stdout.readline())
    assert is_running(pid)
    app.kill()
    app.wait()
    until(lambda: not is_running(pid))
