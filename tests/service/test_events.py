"""What a service makes of the engine's events: sentences, prompts that come back, and calls of tools."""

from dataclasses import replace
from pathlib import Path

import pytest

from specchat.chat.store import Store
from specchat.config.personas import Persona
from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.events import (
    AwaitingServer,
    Elsewhere,
    Event,
    Failed,
    Finished,
    Loaded,
    OtherClient,
    PromptProgress,
    Started,
)
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair_info import PairNotes
from specchat.engine.protocol.requests import Generate, Watch
from specchat.engine.protocol.stats import Stats
from specchat.mcp_tools.link import CallOutcome
from specchat.service.calls import DECLINED, STOPPED
from specchat.service.chat_service import ChatService
from specchat.service.dispatch import Update
from specchat.service.state import ServiceState
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG, paced, ready, service_of
from tests.service.test_tools import ASKS, answer, asks, take_all, using
from tests.service.tool_servers import READ, ScriptedServers, calling


def told(service: ChatService, engine: FakeEngine, event: Event) -> list[Update]:
    """What a service makes of an event."""
    service.poll()
    engine._ready.append(event)
    return service.poll()


def failing(kind: ErrorKind) -> FakeEngine:
    return FakeEngine(([Started(0, 1, 0, 0, Speculation()), Failed(0, kind, "It is too long.")],))


def test_a_sentence_of_a_server_or_a_pair_has_no_control_codes() -> None:
    service = ready(engine := FakeEngine())
    (said,) = told(service, engine, AwaitingServer(0, "The server is \x1b[2Jbusy."))
    assert (said.kind, said.message) == ("notice", "The server is \u241b[2Jbusy.")
    engine = FakeEngine(info=replace(INFO, notes=PairNotes("", warning="It is \x1b[2Jold.")))
    service = service_of(engine)
    engine.start()
    service.load(CATALOG.pairs[0])
    assert [update.message for update in service.poll() if update.kind == "loaded"] == ["It is \u241b[2Jold."]


def test_of_replies_for_others_their_beginnings_and_ends_are_told() -> None:
    service = service_of(engine := FakeEngine(), watches=True)
    engine.start()
    service.load(CATALOG.pairs[0])
    service.poll()
    assert engine.requests[-1] == Watch()
    begun, ended = OtherClient(7, "one", 9, "hello"), Finished(7, "stop", "", (), Stats())
    updates = [told(service, engine, Elsewhere(event)) for event in (begun, ended, ended)]
    assert [[update.kind for update in each] for each in updates] == [["elsewhere"], ["elsewhere"], []]
    told(service, engine, Elsewhere(begun))
    assert service.others.now is not None
    engine.die()
    service.poll()
    assert service.others.now is None


def test_a_chat_too_long_for_its_draft_is_told_once() -> None:
    service = ready(FakeEngine(info=replace(INFO, draft=replace(INFO.draft, context=1))))
    said = []
    for prompt in ("hi", "more"):
        service.send(prompt)
        said += [update.message for update in service.poll() if update.kind == "ended"]
    assert said == ["the draft model holds 1 tokens: in a longer chat it drafts nothing", ""]


def test_a_chat_is_told_when_it_becomes_too_long_for_its_draft() -> None:
    engine = FakeEngine(("one", "one " * 40), info=replace(INFO, draft=replace(INFO.draft, context=30)))
    service, said = ready(engine), list[bool]()
    for prompt in ("hi", "more"):
        service.send(prompt)
        said += ["in a longer chat" in update.message for update in service.poll() if update.kind == "ended"]
    assert said == [False, True]


def test_a_reply_that_another_pair_ends_is_told_without_words() -> None:
    """Its own pair is gone by then."""
    engine, clock = paced()
    engine.info = replace(INFO, draft=replace(INFO.draft, context=1))
    service = ready(engine)
    for seconds in (99.0, 99.5):
        service.send("hi")
        clock.now = seconds
        service.poll()
    engine.holds_loads = True
    service.load(CATALOG.pairs[1])
    clock.now = 200
    assert [update.message for update in service.poll() if update.kind == "ended"] == [""]


def test_of_a_request_besides_the_chats_the_end_is_told() -> None:
    service = ready(engine := FakeEngine())
    heard = list[Event]()
    request = service.listeners.new_id()
    service.listeners.add(request, heard.append)
    events = Started(request, 1, 0, 0, Speculation()), Failed(request, "request", "No.")
    updates = [told(service, engine, event) for event in events]
    assert [[update.kind for update in each] for each in updates] == [[], ["counted"]]
    assert (heard, service.busy) == ([*events], False)


def test_the_end_of_the_engine_is_that_of_requests_besides_the_chats() -> None:
    service = ready(engine := FakeEngine())
    heard = list[Event]()
    service.listeners.add(service.listeners.new_id(), heard.append)
    engine.die()
    service.poll()
    assert [type(event) for event in heard] == [Failed]


def test_an_engine_that_ends_twice_as_it_reads_is_left_alone() -> None:
    """A reply that began would have shown that it works."""
    service = ready(engine := FakeEngine())
    engine.die()
    service.poll()
    told(service, engine, PromptProgress(1, 5, 10))
    engine.die()
    assert [update.kind for update in service.poll()] == ["load-failed"]


def test_a_first_pair_that_cannot_be_loaded_leaves_its_reason_alone() -> None:
    service = service_of(engine := FakeEngine())
    engine.fail_load("config", "It is broken.")
    engine.start()
    service.load(CATALOG.pairs[0])
    assert [update.message for update in service.poll() if update.kind == "load-failed"] == ["It is broken."]


def test_a_reply_that_was_asked_for_is_not_asked_for_again_with_a_longer_context() -> None:
    engine, _ = paced()
    service = ready(engine)
    service.send("hi")
    told(service, engine, Loaded(INFO))
    assert sum(isinstance(request, Generate) for request in engine.requests) == 1


def test_calls_where_tools_are_off_by_then_are_told() -> None:
    service = using(FakeEngine((ASKS,)), ScriptedServers())
    service.send("hi")
    service.use_tools(False)
    (ended,) = [update for update in service.poll() if update.kind in ("ended", "called")]
    assert (ended.kind, ended.message) == ("ended", "the model called a tool, but tools are off in this chat")


@pytest.mark.parametrize(("left", "permitted"), [(False, False), (True, True), (True, False)])
def test_a_call_is_told_where_it_is_asked_for_in_a_chat_that_is_not_open(left: bool, permitted: bool) -> None:
    service = using(FakeEngine((ASKS,)), ScriptedServers(answers=None))
    service.send("hi")
    if permitted:
        service.tools.permit(service.conversation.key, READ)
    if left:
        service.chats.new()
    (called,) = [update.message for update in service.poll() if update.kind == "called"]
    assert called == ("“Hi” asks for a call of a tool" if left and not permitted else "")


def test_one_call_that_cannot_be_read_is_told_as_one() -> None:
    service = using(engine := FakeEngine(), ScriptedServers())
    service.send("hi")
    assert service.running is not None
    engine._ready.append(Finished(service.running.reply.id, "stop", "x", (), Stats(), unreadable_calls=1))
    assert "1 call of tools could not be read" in [update.message for update in service.poll()]


def test_calls_of_a_reply_that_was_cut_are_not_made() -> None:
    servers = ScriptedServers()
    service = using(engine := FakeEngine(), servers)
    service.send("hi")
    assert service.running is not None
    engine._ready.append(Finished.of(service.running.reply.id, "length", ASKS, (), Stats()))
    take_all(service)
    assert (service.calling, servers.made) == (None, [])


@pytest.mark.parametrize(("kind", "more"), [("context", " Or leave something out."), ("request", "")])
def test_a_prompt_that_fails_comes_back_with_the_way_out_where_it_is_too_long(
    kind: ErrorKind, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServiceState, "way_out", ". Or leave something out.")
    service = ready(failing(kind))
    service.send("my prompt")
    (ended,) = [update for update in service.poll() if update.kind == "ended"]
    assert (ended.message, ended.prompt) == (f"It is too long.{more}", "my prompt")


def test_a_beginning_that_was_set_meanwhile_stays() -> None:
    service = ready(failing("request"))
    service.prefill = "Well,"
    service.send("my prompt")
    service.prefill = "So,"
    service.poll()
    assert service.prefill == "So,"


def test_the_beginning_of_a_persona_is_not_set_by_a_reply_that_fails() -> None:
    service = service_of(failing("request"), personas=(Persona("pirate", "Be a pirate.", "Ahoy"),))
    service.engine.start()
    service.load(CATALOG.pairs[0])
    service.conversation.system = "Be a pirate."
    service.poll()
    service.send("my prompt")
    service.poll()
    assert (service.prefill, service.next_prefill) == ("", "Ahoy")


def test_a_failure_of_a_reply_that_is_gone_is_not_told() -> None:
    service = ready(engine := FakeEngine())
    assert told(service, engine, Failed(99, "request", "It is gone.")) == []


def test_an_answer_that_comes_twice_or_too_late_changes_nothing() -> None:
    servers = ScriptedServers(answers=None)
    service = using(FakeEngine((calling(("read", ""), ("write", "{}")), "Done.")), servers)
    service.send("hi")
    assert asks(service)
    assert service.calling is not None
    first = service.calling.asked
    assert first is not None
    service.decide(first, "once")
    service.decide(first, "no")
    assert servers.made == [("read", {})]
    second = service.calling.asked
    assert second is not None
    service.decide(second, "no")
    service.decide(second, "once")
    assert [name for name, _ in servers.made] == ["read"]
    assert [(one.call_id, one.content) for one in service.calling.in_order] == [("call_1", DECLINED)]


def test_always_makes_the_other_calls_of_the_tool_at_once() -> None:
    servers = ScriptedServers(answers=None)
    service = using(FakeEngine((calling(("read", "{}"), ("write", "{}"), ("read", "{}")), "Done.")), servers)
    service.send("hi")
    assert answer(service, "always") == "read"
    assert [name for name, _ in servers.made] == ["read", "read"]
    assert service.tools.permitted(service.conversation.key, READ)


def test_what_ends_a_call_wakes_the_one_that_waits_for_updates() -> None:
    servers = ScriptedServers(answers=None)
    service = using(FakeEngine((calling(("read", "{}"), ("write", "{}")), "Done.")), servers)
    woken = list[bool]()
    service.send("hi")
    take_all(service)
    service.calls.arrived = lambda: woken.append(True)
    for number, decision in enumerate(("no", "once")):
        assert service.calling is not None
        assert service.calling.asked is not None
        service.decide(service.calling.asked, decision)  # type: ignore[arg-type]
        assert len(woken) == 1
        assert number == len(servers.waiting)
    servers.waiting[0].set_result(CallOutcome(True, "done"))
    assert len(woken) == 2


def test_a_result_that_comes_after_a_stop_changes_nothing() -> None:
    """It may be on its way from another thread."""
    servers = ScriptedServers(answers=None)
    service = using(FakeEngine((ASKS, "Done.")), servers)
    service.send("hi")
    answer(service)
    (asking,) = service.calls.all
    (call,) = asking.pending
    service.stop()
    assert call.future is not None
    service.calls._outcomes.put((asking, call, call.future))
    service.calls.take()
    assert [one.content for one in asking.in_order] == [STOPPED]


def test_calls_of_a_chat_that_is_deleted_end_with_it(tmp_path: Path) -> None:
    servers = ScriptedServers(answers=None)
    service = using(FakeEngine((ASKS,)), servers, Store(tmp_path / "chats.db"))
    service.send("hi")
    answer(service)
    service.chats.delete(service.conversation.key)
    assert servers.waiting[0].cancelled()
    assert not service.busy
