"""The routing port: each pair goes to where it runs, and the other engine is not started for it."""

from contextlib import closing
from pathlib import Path

import pytest

from specchat.chat.store import Store
from specchat.config.catalog import Pair
from specchat.engine.protocol.events import Event, Failed, Finished, Loaded
from specchat.engine.protocol.options import Limits, Message, Picture
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.port import EnginePort
from specchat.engine.protocol.requests import Count, Generate, Load
from specchat.remote import routing
from specchat.remote.engine import RemoteEngine
from specchat.remote.routing import RoutingEngine
from specchat.service import loading
from specchat.service.chat_service import ChatService
from specchat.service.dispatch import Update
from specchat.service.settings import Preferences
from specchat.service.state import ServiceOptions
from tests.fake import FakeEngine
from tests.remote.conftest import PATIENCE_S, QUESTION, spec
from tests.remote.server import CHAT, Call, delta, serving
from tests.remote.test_steps import CHAT_KEY, LLAMA
from tests.service.made import paced

LOCAL = PairSpec("here", "Here", ModelSource(path="/models/here"))
PAGES = {**LLAMA, "slots": "llamacpp-draft-slots.json", CHAT_KEY: "llamacpp-draft-stream.txt"}


class Routed:
    """A routing engine, and the engines that it made."""

    def __init__(self, first: PairSpec) -> None:
        self.local: list[FakeEngine] = []
        self.remote: list[RemoteEngine] = []
        self.engine: EnginePort = RoutingEngine(self._here, self._there, first)

    def _here(self) -> EnginePort:
        self.local.append(FakeEngine(["From here."]))
        return self.local[-1]

    def _there(self) -> EnginePort:
        self.remote.append(RemoteEngine())
        return self.remote[-1]

    def answered(self, pair: PairSpec) -> str:
        """The text of a reply by `pair`, loaded before."""
        self.engine.send(Load(pair))
        loaded = self._until(Loaded)
        assert isinstance(loaded, Loaded)
        assert loaded.info.id == pair.id
        self.engine.send(Generate(1, QUESTION, limits=Limits(48)))
        finished = self._until(Finished)
        assert isinstance(finished, Finished)
        return finished.text

    def _until(self, kind: type[Event]) -> Event:
        return next(e for e in self.engine.events(PATIENCE_S) if isinstance(e, kind | Failed))


def test_a_pair_goes_to_where_it_runs() -> None:
    with serving(**PAGES) as one:
        there = spec(one.url)
        routed = Routed(there)
        routed.engine.start()
        assert routed.answered(there).startswith("Once upon a time")
        assert routed.local == []
        assert routed.answered(LOCAL) == "From here."
        assert not routed.remote[0].alive
        assert routed.answered(there).startswith("Once upon a time")
        assert not routed.local[0].alive
        assert (len(routed.local), len(routed.remote)) == (1, 1)
        routed.engine.close()
        assert not routed.engine.alive


def test_pictures_that_cannot_be_sent_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MOST_PICTURES", 8)

    def answer(routed: Routed, size: int) -> Event:
        asked = (Message("user", "What?", pictures=(Picture(bytes(size)),)),)
        routed.engine.send(Generate(7, asked, limits=Limits(48)))
        return next(e for e in routed.engine.events(PATIENCE_S) if isinstance(e, Finished | Failed))

    here = Routed(LOCAL)
    heard: list[Event] = []
    here.engine.listen(heard.append)
    here.engine.start()
    assert here.answered(LOCAL) == "From here."
    assert isinstance(answer(here, 8), Finished)
    refused = answer(here, 9)
    assert isinstance(refused, Failed)
    assert (refused.id, refused.kind, "over 0 MiB" in refused.message) == (7, "request", True)
    assert refused in heard


def test_a_pair_of_this_machine_starts_its_engine_at_once() -> None:
    routed = Routed(LOCAL)
    assert not routed.engine.alive
    routed.engine.start()
    assert routed.local[0].alive
    assert routed.remote == []


def test_an_engine_that_was_not_needed_is_not_made_to_give_way() -> None:
    with serving() as one:
        routed = Routed(LOCAL)
        routed.engine.send(Load(spec(one.url)))
        assert (routed.local, len(routed.remote)) == ([], 1)
        routed.engine.close()


def ended(service: ChatService) -> Update:
    while True:
        for update in service.wait(PATIENCE_S):
            if update.kind in ("ended", "load-failed"):
                return update


def test_the_chat_service_keeps_a_chat_with_a_server(store: Store, tmp_path: Path) -> None:
    with serving(**PAGES) as one:
        pair = Pair(spec(one.url), strategy="plain")
        routed = Routed(pair.spec)
        service = ChatService(routed.engine, store, Preferences(limits=Limits(48)), ServiceOptions(saves_settings=True))
        loading.load(service, pair, lambda *_: None, lambda: False)
        assert service.send("Tell me a story about a cat.") == ""
        assert ended(service).event is not None
        service.close()
        routed.engine.close()
    store.close()
    with closing(Store(tmp_path / "chats.db")) as reopened:
        again = ChatService(FakeEngine(), reopened, Preferences())
        (found,) = reopened.chats()
        again.chats.open(found.key)
        reply = again.last_reply
        assert reply is not None
        assert reply.text.startswith("Once upon a time there was a cat")
        assert reply.speculation.strategy == "server"
        assert (reply.tally.drafted, reply.tally.accepted) == (43, 35)
        assert reply.speedup is None


def test_a_server_that_fails_leaves_the_pair_before_in_use(store: Store) -> None:
    with serving() as one:
        gone = Pair(spec(one.url), strategy="plain")
    routed = Routed(LOCAL)
    service = ChatService(routed.engine, store, Preferences())
    loading.load(service, Pair(LOCAL), lambda *_: None, lambda: False)
    service.load(gone)
    update = ended(service)
    assert update.message.startswith(f"{one.url} cannot be reached")
    assert update.message.endswith("Still using Here.")
    while service.loaded.info is None:
        service.wait(PATIENCE_S)
    assert service.loaded.info.id == "here"


def test_a_reply_ends_as_its_engine_gives_way_to_the_other(store: Store) -> None:
    def endless(call: Call) -> None:
        call.send(delta("Once "))
        call.left()

    with serving(v1__models={"data": [{"id": "m"}]}) as one:
        one.pages[CHAT] = endless
        there = Pair(spec(one.url), strategy="plain")
        routed = Routed(there.spec)
        service = ChatService(routed.engine, store, Preferences())
        loading.load(service, there, lambda *_: None, lambda: False)
        assert service.count("more")
        assert service.send("Tell me a story.") == ""
        while not (service.last_reply and service.last_reply.text):
            service.wait(PATIENCE_S)
        service.load(Pair(LOCAL))
        while service.loaded.info is None:
            service.wait(PATIENCE_S)
        reply = service.last_reply
        assert (reply.text, reply.outcome, reply.end.reason) == ("Once ", "stopped", "cancelled")
        assert not service.replies
        assert not service.prompt_count.waiting
        assert service.send("more") == ""
        routed.engine.close()


def test_a_reply_that_does_not_end_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "END_S", 0.01)
    engine, _ = paced()
    routed = RoutingEngine(lambda: engine, RemoteEngine, LOCAL)
    routed.start()
    routed.send(Load(LOCAL))
    routed.send(Generate(7, QUESTION))
    monkeypatch.setattr(engine, "send", lambda _: None)
    routed.send(Count(8, QUESTION))
    monkeypatch.setattr(engine, "events", lambda _: iter(()))
    with serving() as one:
        routed.send(Load(spec(one.url)))
        ends = [event for event in routed.poll() if isinstance(event, Failed) and event.id]
        stopped = "Stopped: another model was chosen."
        assert ends == [Failed(id, "internal", stopped) for id in (7, 8)]
        routed.close()


@pytest.mark.parametrize("how", ["restart", "death"])
def test_replies_lost_before_are_not_waited_for(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = paced()
    routed = RoutingEngine(lambda: engine, RemoteEngine, LOCAL)
    routed.start()
    routed.send(Load(LOCAL))
    routed.send(Generate(7, QUESTION))
    if how == "restart":
        routed.restart()
    else:
        monkeypatch.setattr(engine, "poll", lambda: [Failed(None, "died", "gone")])
        routed.poll()
    monkeypatch.setattr(engine, "poll", list)
    monkeypatch.setattr(engine, "events", lambda _: iter(()))
    sent: list[object] = []
    monkeypatch.setattr(engine, "send", sent.append)
    with serving() as one:
        routed.send(Load(spec(one.url)))
        assert not sent
        assert not [event for event in routed.poll() if isinstance(event, Failed) and event.id == 7]
        routed.close()


def test_what_the_service_is_told_while_a_server_is_busy(store: Store) -> None:
    left = [1]

    def busy(call: object) -> None:
        if left.pop() if left else 0:
            call.json({}, "503 Service Unavailable", "Retry-After: 0\r\n")  # type: ignore[attr-defined]
        else:
            call.send(delta("Yes.") + delta("", "stop"))  # type: ignore[attr-defined]

    with serving(v1__models={"data": [{"id": "m"}]}) as one:
        one.pages[CHAT] = busy
        pair = Pair(spec(one.url), strategy="plain")
        routed = Routed(pair.spec)
        service = ChatService(routed.engine, store, Preferences())
        loading.load(service, pair, lambda *_: None, lambda: False)
        service.send("Well?")
        said: list[str] = []
        while not service.last_reply or not service.last_reply.ended:
            said += [update.message for update in service.wait(PATIENCE_S) if update.kind == "notice"]
        assert said == [f"{one.url} is busy (503): trying again in 1 s"]
        routed.engine.close()
