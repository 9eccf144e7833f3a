"""The state of a service: what runs where, the pair that a chat waits for, and settings that stay."""

import sys
from dataclasses import replace

import pytest

from specchat.chat.turn import Turn
from specchat.engine.protocol.pair_info import StrategyStatus, TemplateFacts
from specchat.engine.protocol.requests import Change, Generate
from tests.fake import INFO, FakeEngine
from tests.service.made import CATALOG, paced, ready, service_of, start
from tests.service.test_tools import ASKS, asks, using
from tests.service.tool_servers import ScriptedServers

THIRD = replace(CATALOG.pairs[0], spec=replace(CATALOG.pairs[0].spec, id="third"))


def test_a_chat_of_no_pair_has_the_loaded_one_answer() -> None:
    service = ready(FakeEngine())
    service.bind({})
    assert (service.chat_pair, service.wanted) == ("", "")


def test_files_have_room_where_a_server_does_not_tell_its_context() -> None:
    assert ready(FakeEngine(info=replace(INFO, context=0))).room_for_files == sys.maxsize


def test_a_chat_whose_calls_wait_is_at_work() -> None:
    service = using(FakeEngine((ASKS,)), ScriptedServers())
    service.send("hi")
    assert asks(service)
    assert (service.running, service.at_work) == (None, True)


def test_a_reply_is_elsewhere_where_its_chat_is_not_open() -> None:
    service = ready(paced()[0])
    assert service.elsewhere is None
    service.send("hi")
    first = service.conversation
    assert service.elsewhere is None
    service.chats.new()
    assert service.elsewhere is first


def test_the_last_reply_is_the_running_one_or_else_the_latest_there_is() -> None:
    engine, clock = paced()
    service = ready(engine)
    service.send("hi")
    clock.now = 99
    service.poll()
    first = service.last_reply
    assert first is not None
    service.regenerate()
    assert service.last_reply is service.reply
    service.conversation.show(first)
    assert service.last_reply is service.reply is not first
    clock.now = 200
    service.poll()
    service.conversation.add(Turn("without an answer", parent=first))
    assert service.last_reply is first


@pytest.mark.parametrize(("meanwhile", "wanted"), [("", "big"), ("other", "other")])
def test_a_chat_that_waits_for_its_pair_keeps_that_and_its_settings(meanwhile: str, wanted: str) -> None:
    """After another pair could not be loaded."""
    service = ready(engine := FakeEngine())
    service.bind({"pair": "big"})
    engine.fail_load("model", "no such folder")
    service.load(THIRD, chosen := replace(service.settings, draft_length=9))
    if meanwhile:
        service.bind({"pair": meanwhile})
    service.poll()
    service.poll()
    assert (service.loaded.id, service.wanted, service.settings) == ("demo", wanted, chosen)


def test_replies_that_wait_for_the_pair_draft_as_is_set_by_then_where_their_chat_is_open() -> None:
    service = start(engine := FakeEngine())
    for later in ("suffix", "ngram"):
        service.change(replace(service.settings, strategy="lookup", draft_length=None))
        service.send("hi")
        service.change(replace(service.settings, strategy=later))
        if later == "suffix":
            service.chats.new()
    service.poll()
    assert not any(isinstance(request, Change) for request in engine.requests)
    begun = [request for request in engine.requests if isinstance(request, Generate)]
    assert [request.speculation.strategy for request in begun] == ["lookup", "ngram"]


def test_a_strategy_that_the_pair_cannot_have_is_refused() -> None:
    statuses = StrategyStatus("plain", True), StrategyStatus("draft", False, "the tokenizers differ")
    service = ready(FakeEngine(info=replace(INFO, strategies=statuses)))
    assert "the tokenizers differ" in service.choose_strategy("draft")
    assert service.settings.strategy == "plain"


def test_a_model_that_calls_no_tools_is_counted_without_them() -> None:
    servers = ScriptedServers()
    service = using(FakeEngine(info=replace(INFO, template=TemplateFacts())), servers)
    servers.start(["files"])
    assert service.tools.for_model(service.conversation.key)
    assert service.tools_for(service.conversation.key) == ()


def test_there_is_a_way_out_of_a_chat_that_is_refused() -> None:
    """A first prompt alone has to be shorter."""
    service = ready(FakeEngine())
    service.change(replace(service.settings, limits=replace(service.settings.limits, context="refuse")))
    assert service.way_out == ""
    service.send("hi")
    assert "/new starts a new chat" in service.way_out
    service.change(replace(service.settings, limits=replace(service.settings.limits, context="drop-oldest")))
    assert service.way_out == ""


@pytest.mark.parametrize("saves", [False, True])
def test_settings_are_kept_with_a_chat_where_that_is_wanted(saves: bool) -> None:
    assert ("settings" in service_of(FakeEngine(), saves_settings=saves)._view()) == saves
