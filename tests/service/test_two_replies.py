"""One prompt answered by two pairs: when the second reply begins, and what is as before once the first is kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from specchat.chat.store import Store
from specchat.chat.tool_results import ToolResult
from specchat.chat.turn import Reply, Turn
from specchat.engine.protocol.requests import Load
from specchat.service.two_replies import TwoReplies
from tests.fake import FakeEngine
from tests.service.made import CATALOG, flush, paced, ready
from tests.service.test_tools import ASKS, answer, asks, using
from tests.service.tool_servers import ScriptedServers

BIG = CATALOG.pairs[1]


def test_the_second_begins_once_when_nothing_else_runs() -> None:
    engine, clock = paced()
    service = ready(engine)
    service.send("hi")
    service.poll()
    two = TwoReplies(service, BIG)
    two.look()
    assert (len(two.replies), two.keep(1)) == (1, False)
    clock.now = 99
    service.poll()
    for _ in range(2):
        two.look()
    assert (len(two.replies), two.refusal, two.names) == (2, "", ("demo", BIG.spec.name))
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo", "big"]
    assert service.last_reply is two.replies[1]
    while service.at_work:
        clock.now += 99
        service.poll()
    two.look()
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo", "big"]
    assert two.keep(0)
    service.conversation.drop(service.conversation.turns[0], two.replies[1])
    assert not two.keep(1)


@pytest.mark.parametrize("loads", [False, True])
def test_the_first_kept_ends_what_is_done_for_the_second(loads: bool) -> None:
    engine, clock = paced()
    service = ready(engine)
    service.send("hi")
    clock.now = 99
    service.poll()
    two = TwoReplies(service, BIG)
    engine.holds_loads = loads
    two.look()
    service.poll()
    assert service.at_work
    assert two.keep(0)
    engine.holds_loads = False
    for _ in range(3):
        service.poll()
    assert not service.at_work
    assert service.loaded.id == ("demo" if loads else "big")
    assert service.pair_view["pair"] == "demo"


@pytest.mark.parametrize("number", [0, 1])
def test_settings_and_pair_are_those_of_the_reply_that_is_kept(number: int) -> None:
    service = ready(FakeEngine(("first", "second")))
    service.change(replace(service.settings, strategy="lookup", draft_length=7))
    before = service.settings
    service.send("hi")
    service.poll()
    two = TwoReplies(service, BIG)
    two.look()
    for _ in range(3):
        service.poll()
    service.change(replace(service.settings, draft_length=3))
    assert two.keep(number)
    assert (service.last_reply, service.pair_view["pair"]) == (two.replies[number], ("demo", "big")[number])
    assert (service.settings == before) == (number == 0)


def test_a_second_reply_that_is_refused_is_not_asked_for_again() -> None:
    engine = FakeEngine()
    service = ready(engine)
    service.send("hi")
    service.poll()
    two = TwoReplies(service, BIG)
    service.regenerate = lambda _: "No."  # type: ignore[method-assign]
    for _ in range(2):
        two.look()
    assert (two.refusal, two.keep(1)) == ("No.", False)
    assert [request.pair.id for request in engine.requests if isinstance(request, Load)] == ["demo", "big"]
    assert service.pair_view["pair"] == "big"
    service.poll()
    assert service.send("more") == ""
    assert two.keep(0)
    assert service.pair_view["pair"] == "demo"
    assert service.running is not None
    assert not service.running.stopping


def test_the_second_waits_for_calls_of_tools() -> None:
    service = using(engine := FakeEngine((ASKS, "Done.")), ScriptedServers())
    service.send("hi")
    assert asks(service)
    two = TwoReplies(service, BIG)
    two.look()
    assert (len(two.replies), sum(isinstance(request, Load) for request in engine.requests)) == (1, 1)
    answer(service)
    two.look()
    assert len(two.replies) == 2


def test_the_reply_that_is_kept_is_shown_when_the_chat_is_opened_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    service = ready(FakeEngine(("first", "second")), store=store)
    service.send("hi")
    service.poll()
    two = TwoReplies(service, BIG)
    two.look()
    for _ in range(3):
        service.poll()
    assert two.keep(0)
    flush(store)
    again = ready(FakeEngine(), store=Store(tmp_path / "chats.db"))
    assert again.chats.open(service.conversation.key) == ""
    assert again.last_reply is not None
    assert again.last_reply.text == "first"


def test_of_a_reply_that_called_tools_the_answer_after_the_results_counts() -> None:
    service = ready(FakeEngine())
    service.send("hi")
    service.poll()
    two = TwoReplies(service, BIG)
    (first,) = two.replies
    turn = service.conversation.add(Turn("", parent=first, results=(ToolResult("1", "look", "found"),)))
    assert two.replies == [first]
    service.conversation.answer(turn, last := Reply(9, "demo", first.sampling, first.speculation))
    assert two.replies == [last]
    more = service.conversation.add(Turn("more", parent=last))
    service.conversation.answer(more, Reply(10, "demo", first.sampling, first.speculation))
    assert two.replies == [last]
