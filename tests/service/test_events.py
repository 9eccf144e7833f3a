"""What a service makes of the engine's events: sentences, prompts that come back, and calls of tools."""

from dataclasses import replace

import pytest

from specchat.engine.errors import ErrorKind
from specchat.engine.protocol.events import (
    AwaitingServer,
    Elsewhere,
    Event,
    Failed,
    Finished,
    OtherClient,
    Started,
)
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair_info import PairNotes
from specchat.engine.protocol.requests import Watch
from specchat.engine.protocol.stats import Stats
from specchat.service.calls import DECLINED
from specchat.service.chat_service import ChatService
from specchat.service.dispatch import Update
from specchat.service.state import ServiceState
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG, ready, service_of
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
