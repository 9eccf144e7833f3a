"""Replies that call tools: asked for, made, answered, and kept with the chat."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specchat.chat.exporting import export
from specchat.chat.importing import import_file
from specchat.chat.store import Store
from specchat.chat.tool_results import NOT_MADE, ToolResult
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.events import Failed, Finished
from specchat.engine.protocol.options import Message, Sampling, Speculation, Tool, ToolCall
from specchat.engine.protocol.pair_info import TemplateFacts
from specchat.engine.protocol.requests import Cancel, Count, Generate
from specchat.engine.protocol.stats import Stats
from specchat.mcp_tools.link import CallOutcome
from specchat.service.calls import DECLINED, LONGEST, MOST_ROUNDS, SHORTEST, STOPPED
from specchat.service.chat_service import ChatService
from specchat.service.replies import Running
from specchat.service.settings import Preferences
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG, flush, requested, service_of
from tests.service.tool_servers import READ, WRITE, ScriptedServers, calling, offered

ASKS = calling(("read", '{"path": "notes.txt"}'), text="Let me see.")


def using(engine: FakeEngine, servers: ScriptedServers, store: Store | None = None, **options: Any) -> ChatService:
    """A service with the first pair loaded, and with tools on in its chats."""
    service = service_of(engine, Preferences(seed=7), store, servers=servers, **({"uses_tools": True} | options))
    engine.start()
    service.load(CATALOG.pairs[0])
    service.poll()
    return service


def take_all(service: ChatService) -> None:
    """Take in events until nothing happens any more."""
    while service.poll():
        pass


def answer(service: ChatService, decision: Any = "once") -> str:
    """Answer what is asked; gives the name of the tool."""
    take_all(service)
    assert service.calling is not None
    assert service.calling.asked is not None
    asked = service.calling.asked
    service.decide(asked, decision)
    take_all(service)
    return asked.tool.name


def asks(service: ChatService) -> bool:
    take_all(service)
    return service.calling is not None and service.calling.asked is not None


def test_a_call_is_asked_for_made_and_answered() -> None:
    servers, engine = ScriptedServers(answers="three lines"), FakeEngine((ASKS, "It has three lines."))
    service = using(engine, servers)
    service.send("what is in my notes?")
    assert requested(engine).tools[0] == Tool("read", "Does read.", '{"type": "object"}')
    assert [tool.name for tool in requested(engine).tools] == ["read", "write", "fetch"]
    assert asks(service)
    assert servers.made == []
    assert service.running is None
    assert service.busy
    assert "tool" in service.refusal("more")
    assert answer(service) == "read"
    assert servers.made == [("read", {"path": "notes.txt"})]
    first, second = service.conversation.turns
    assert first.reply is not None
    assert first.reply.text == "Let me see."
    assert second.results == (ToolResult("call_0", "read", "three lines", seconds=0.25, server="files"),)
    assert second.reply is not None
    assert second.reply.text == "It has three lines."
    assert requested(engine).messages == (
        Message("user", "what is in my notes?"),
        Message("assistant", "Let me see.", tool_calls=(ToolCall("call_0", "read", '{"path": "notes.txt"}'),)),
        Message("tool", "three lines", tool_call_id="call_0", tool_name="read"),
    )
    assert not service.busy


def test_nothing_is_offered_started_or_called_where_tools_are_off() -> None:
    servers, engine = ScriptedServers(), FakeEngine((ASKS,))
    service = using(engine, servers, uses_tools=False)
    service.send("hi")
    assert requested(engine).tools == ()
    take_all(service)
    assert (servers.started, servers.made, service.calling) == ([], [], None)
    service.use_tools(True)
    assert servers.started == ["files", "web"]
    service.use_tools(False, "web")
    service.send("again")
    assert [tool.name for tool in requested(engine).tools] == ["read", "write"]


def test_the_model_is_told_that_the_user_declined() -> None:
    servers, engine = ScriptedServers(), FakeEngine((ASKS, "As you like."))
    service = using(engine, servers)
    service.send("hi")
    answer(service, "no")
    assert servers.made == []
    assert requested(engine).messages[-1] == Message("tool", DECLINED, tool_call_id="call_0", tool_name="read")
    assert service.conversation.turns[1].results[0].declined
    assert service.last_reply is not None
    assert service.last_reply.text == "As you like."


def test_always_holds_for_this_tool_in_this_chat_as_it_is_now(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    servers, engine = ScriptedServers(), FakeEngine((ASKS, ASKS, calling(("write", "{}")), "Good."))
    service = using(engine, servers, store)
    service.send("hi")
    answer(service, "always")
    assert [name for name, _ in servers.made] == ["read", "read"]
    assert answer(service) == "write"  # of another tool nothing was said
    key = service.conversation.key
    service.chats.new()
    engine._replies = iter([ASKS, "No?", ASKS, "Well."])  # type: ignore[assignment]
    service.send("in another chat")
    assert asks(service)
    answer(service, "no")
    service.close()
    assert store.close()

    store = Store(tmp_path / "chats.db")
    again = using(engine, servers, store)
    assert again.chats.open(key) == ""
    again.send("once more")
    servers.made.clear()
    take_all(again)
    assert servers.made == [("read", {"path": "notes.txt"})]
    assert again.calling is None
    servers._tools["files"] = (offered("read", description="Read, and send it to somebody."), WRITE)
    servers.come_up("files")
    engine._replies = iter([ASKS, "Well."])  # type: ignore[assignment]
    again.send("and now")
    assert asks(again)  # the tool says something else of itself
    assert store.close()


def test_always_ends_where_the_server_is_turned_off() -> None:
    service = using(FakeEngine((ASKS, "Good.")), ScriptedServers())
    service.send("hi")
    answer(service, "always")
    key = service.conversation.key
    service.use_tools(False, "web")
    assert service.tools.permitted(key, READ)
    service.use_tools(False, "files")
    service.use_tools(True, "files")
    service.send("again")
    assert asks(service)


def test_several_calls_are_asked_for_one_by_one_and_answered_in_order() -> None:
    servers = ScriptedServers(answers=None)
    reply = calling(("read", "{}"), ("write", "{}"), ("read", '{"a": 1}'))
    engine = FakeEngine((reply, "Done."))
    service = using(engine, servers)
    service.send("hi")
    assert answer(service) == "read"
    assert answer(service, "no") == "write"
    assert answer(service) == "read"
    assert service.calling is not None
    assert service.calling.asked is None
    servers.waiting[1].set_result(CallOutcome(False, "no such file"))
    take_all(service)
    assert len(service.conversation.turns) == 1
    servers.waiting[0].set_result(CallOutcome(True, "first"))
    take_all(service)
    results = service.conversation.turns[1].results
    assert [(each.call_id, each.content, each.failed) for each in results] == [
        ("call_0", "first", False),
        ("call_1", DECLINED, True),
        ("call_2", "no such file", True),
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("nothing", "{}"), "There is no tool nothing. There are: read, write, fetch."),
        (("read", "{"), "The arguments are no JSON object."),
        (("read", "[1]"), "The arguments are no JSON object."),
        (("read", "[" * 100_000), "The arguments are no JSON object."),
    ],
)
def test_a_call_that_cannot_be_made_is_not_asked_for(call: tuple[str, str], words: str) -> None:
    servers, engine = ScriptedServers(), FakeEngine((calling(call), "Sorry."))
    service = using(engine, servers)
    service.send("hi")
    take_all(service)
    assert servers.made == []
    (result,) = service.conversation.turns[1].results
    assert (result.content, result.failed) == (words, True)
    assert service.last_reply is not None
    assert service.last_reply.text == "Sorry."


def test_the_rounds_end_until_the_user_goes_on() -> None:
    servers, engine = ScriptedServers(), FakeEngine((ASKS,))
    service = using(engine, servers)
    service.send("hi")
    answer(service, "always")
    assert len(servers.made) == MOST_ROUNDS
    assert service.calling is None
    assert not service.busy
    assert service.go_on() == ""
    take_all(service)
    assert len(servers.made) == 2 * MOST_ROUNDS


def test_stop_ends_calls_and_keeps_what_they_gave() -> None:
    servers = ScriptedServers(answers=None)
    engine = FakeEngine((calling(("read", "{}"), ("write", "{}"), ("fetch", "{}")), "Fine.", "And?"))
    service = using(engine, servers)
    service.send("hi")
    answer(service)
    answer(service)
    servers.waiting[0].set_result(CallOutcome(True, "first"))
    assert service.stop() == ""
    assert servers.waiting[1].cancelled()
    take_all(service)
    assert (service.calling, service.running) == (None, None)
    results = service.conversation.turns[1].results
    assert [each.content for each in results] == ["first", STOPPED, STOPPED]
    assert sum(isinstance(request, Generate) for request in engine.requests) == 1
    service.send("never mind")
    assert [message.role for message in requested(engine).messages] == [
        "user", "assistant", "tool", "tool", "tool", "user",
    ]  # fmt: skip
    take_all(service)


def test_after_a_stop_the_results_can_still_be_answered() -> None:
    engine = FakeEngine((ASKS, "Here it is."))
    service = using(engine, ScriptedServers(answers=None))
    service.send("hi")
    answer(service)
    service.stop()
    assert service.go_on() == ""
    take_all(service)
    assert service.last_reply is not None
    assert service.last_reply.text == "Here it is."


def test_a_reply_waits_until_the_servers_are_up() -> None:
    servers, engine = ScriptedServers(starts=False), FakeEngine()
    service = using(engine, servers)
    service.send("hi")
    assert service.reply is not None
    assert service.reply.state == "preparing"
    other = Running(Conversation(), Turn("asked first"), Reply(99, "demo", Sampling(), Speculation()), service.settings)
    service.replies.add(other)
    service.replies.ask(other, Speculation())
    assert (other.reply.state, [each.reply.id for each in service.replies.all]) == ("reading", [99, service.reply.id])
    service.replies.stop(other)
    servers.come_up("files")
    take_all(service)
    assert service.reply is not None
    servers.come_up("web", problem="It ended by itself.")
    said = [update.message for update in service.poll()]
    assert "The tools of web cannot be used: It ended by itself." in said
    assert [tool.name for tool in requested(engine).tools] == ["read", "write"]
    take_all(service)
    assert service.reply is None
    service.send("again")  # one that failed is not started at every prompt
    assert servers.started == ["files", "web"]
    service.use_tools(True, "web")
    assert servers.started == ["files", "web", "web"]


def test_a_reply_that_waits_for_servers_can_be_stopped_and_holds_up_no_other_chat() -> None:
    servers, engine = ScriptedServers(starts=False), FakeEngine()
    service = using(engine, servers)
    service.send("hi")
    first = service.conversation
    service.chats.new()
    service.use_tools(False)
    service.send("in another chat")
    take_all(service)
    assert service.last_reply is not None
    assert service.last_reply.text == "Hello there."
    service.chats.open(first.key)
    service.stop()
    assert service.reply is None
    assert not any(isinstance(request, Cancel) for request in engine.requests)


def test_a_chat_goes_on_while_another_is_open() -> None:
    servers, engine = ScriptedServers(), FakeEngine((ASKS, calling(("read", "{}")), "Done."))
    service = using(engine, servers)
    service.send("hi")
    answer(service, "always")
    first = service.conversation
    store = service.chat.saving.store
    engine._replies = iter([ASKS, "Done again."])  # type: ignore[assignment]
    service.send("more")
    service.chats.new()
    take_all(service)
    flush(store)
    service.chats.open(first.key)
    assert service.last_reply is not None
    assert service.last_reply.text == "Done again."


def test_what_is_asked_waits_for_the_chat_to_be_open_again() -> None:
    servers, engine = ScriptedServers(), FakeEngine((ASKS, "Done."))
    service = using(engine, servers)
    service.send("hi")
    service.chats.new()
    assert "“Hi” asks for a call of a tool" in [update.message for update in service.poll()]
    take_all(service)
    assert service.calling is None
    service.chats.open(next(each.chat.key for each in service.calls.all))
    assert asks(service)
    assert answer(service) == "read"
    assert service.last_reply is not None
    assert service.last_reply.text == "Done."


def test_a_result_fits_the_context() -> None:
    for context, most in ((100, SHORTEST), (8_000, 8_000), (1 << 20, LONGEST)):
        servers = ScriptedServers()
        service = using(FakeEngine((ASKS, "x"), info=replace(INFO, context=context)), servers)
        service.send("hi")
        answer(service)
        assert servers.most == [most]


def test_a_chat_with_calls_is_saved_and_read_again_with_its_branches(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    engine = FakeEngine((ASKS, "One.", "Two.", ASKS, "Three."))
    service = using(engine, ScriptedServers(answers="text"), store)
    service.send("hi")
    answer(service)
    assert service.regenerate() == ""
    take_all(service)
    assert service.regenerate(service.conversation.turns[0]) == ""
    answer(service)
    key = service.conversation.key
    flush(store)
    loaded, _ = store.load(key)
    first, second = loaded.turns
    assert [reply.text for reply in first.replies] == ["Let me see.", "Let me see."]
    assert second.results[0].content == "text"
    assert second.reply is not None
    assert second.reply.text == "Three."
    loaded.show(first.replies[0])
    assert [reply.text for reply in loaded.turns[1].replies] == ["One.", "Two."]
    assert loaded.turns[1].results[0] == ToolResult("call_0", "read", "text", seconds=0.25, server="files")
    assert loaded.messages(loaded.turns[1])[1].tool_calls == (ToolCall("call_0", "read", '{"path": "notes.txt"}'),)


def test_a_chat_that_was_left_amid_a_call_can_go_on_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    engine, servers = FakeEngine((ASKS, "Here.")), ScriptedServers(answers=None)
    service = using(engine, servers, store)
    service.send("hi")
    answer(service)
    key = service.conversation.key
    service.close()
    assert servers.waiting[0].cancelled()
    flush(store)
    again = using(engine, ScriptedServers(), store)
    again.chats.open(key)
    assert again.go_on() == ""
    answer(again)
    assert again.last_reply is not None
    assert again.last_reply.text == "Here."


def test_a_prompt_in_the_place_of_a_call_says_that_it_was_not_made(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    engine = FakeEngine((ASKS, "Yes."))
    service = using(engine, ScriptedServers(), store)
    service.send("hi")
    take_all(service)
    key = service.conversation.key
    service.close()
    flush(store)
    again = using(engine, ScriptedServers(), store)
    again.chats.open(key)
    again.send("forget it")
    assert requested(engine).messages[2] == Message("tool", NOT_MADE, tool_call_id="call_0", tool_name="read")
    assert requested(engine).messages[3] == Message("user", "forget it")


def test_permissions_do_not_come_with_a_file_or_a_copy(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "chats.db"), Store(tmp_path / "other.db")
    service = using(FakeEngine((ASKS, "Good.")), ScriptedServers(), store, uses_tools=False)
    service.use_tools(True)
    service.send("hi")
    answer(service, "always")
    key = service.conversation.key
    flush(store)
    row = store.row(key)
    assert row is not None
    assert row.view["tools"] == {"on": True, "without": [], "always": [READ.fingerprint]}
    file = tmp_path / "chat.json"
    file.write_text("".join(export(store, [key], "json")))
    (imported,) = import_file(other, file).keys
    copied, done = store.duplicate(key)
    assert done.wait(60)
    for where, chat in ((other, imported), (store, copied)):
        row = where.row(chat)
        assert row is not None
        assert "tools" not in row.view
        assert where.load(chat)[0].turns[1].results[0].content == "done"


def test_the_tokens_of_tools_are_counted() -> None:
    engine = FakeEngine()
    service = using(engine, ScriptedServers())
    service.use_tools(True)
    assert service.count("hi")
    assert [tool.name for request in engine.requests if isinstance(request, Count) for tool in request.tools] == [
        "read", "write", "fetch",
    ]  # fmt: skip


def test_a_failed_reply_to_results_leaves_the_results() -> None:
    engine = FakeEngine((ASKS, "Here."))
    service = using(engine, ScriptedServers())
    service.send("hi")
    take_all(service)
    assert service.calling is not None
    service.decide(service.calling.asked, "once")  # type: ignore[arg-type]
    service.poll()
    running = service.running
    assert running is not None
    service.replies.fail(Failed(running.reply.id, "context", "too long"))
    assert service.conversation.turns[1].results[0].content == "done"
    assert service.last_reply is not None
    assert service.last_reply.end.error == "too long"


def test_a_model_that_calls_no_tools_is_offered_none_and_starts_no_server() -> None:
    servers, engine = ScriptedServers(), FakeEngine(info=replace(INFO, template=TemplateFacts(tools=False)))
    service = using(engine, servers)
    said = []
    for prompt in ("hi", "again"):
        service.send(prompt)
        said += [update.message for update in service.poll() if update.kind == "notice"]
    assert said == ["demo is not offered the tools of this chat: its chat template shows none"]
    assert (servers.started, requested(engine).tools) == ([], ())


def test_calls_that_cannot_be_read_are_said_so() -> None:
    engine = FakeEngine()
    service = using(engine, ScriptedServers())
    service.send("hi")
    running = service.running
    assert running is not None
    broken = Finished(running.reply.id, "stop", "<tool_call>{", (), Stats(), unreadable_calls=2)
    engine._ready.append(broken)
    assert "2 calls of tools could not be read" in [update.message for update in service.poll()]
