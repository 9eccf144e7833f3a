"""Replies without drafting: by the server that a pair names as plain, or by its own where it can turn drafting off."""

import pytest

from specchat.engine.protocol.events import Failed, Finished, Started
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair import Server
from tests.remote.conftest import Chatting
from tests.remote.server import CHAT, delta, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
MODELS = {"data": [{"id": "m"}]}


def answering(text: str, **pages: object) -> dict[str, object]:
    stream = delta(text) + delta("", "stop")
    return {"v1__models": MODELS, CHAT_KEY: lambda call: call.send(stream), **pages}


def test_the_other_server_writes_it(chatting: Chatting) -> None:
    with serving(**answering("Fast.")) as one, serving(**answering("Slow.")) as other:
        info = chatting.load(one.url, undrafted=Server(other.url))
        assert info.plain.server == other.url
        assert other.calls == []
        for number, (undrafted, text) in enumerate(((True, "Slow."), (False, "Fast."), (True, "Slow."))):
            events = chatting.ask(number, undrafted=undrafted)
            started, last = events[0], events[-1]
            assert isinstance(started, Started)
            assert isinstance(last, Finished)
            assert (last.text, started.speculation == Speculation()) == (text, undrafted)
        assert len(other.of("/v1/models")) == 1


def test_a_server_may_turn_drafting_off_itself(chatting: Chatting) -> None:
    models = {"data": [{"id": "m", "owned_by": "specchat", "max_model_len": 512}]}
    with serving(**answering("Yes.", v1__models=models, tokenize={"count": 9})) as one:
        assert chatting.load(one.url).plain.server == one.url
        chatting.ask(1)
        chatting.ask(2, undrafted=True)
        asked = [call.body.get("strategy") for call in one.of(CHAT)]
    assert asked == [None, "plain"]


@pytest.mark.parametrize("named", [True, False])
def test_one_that_drafts_all_the_same_is_refused(named: bool, chatting: Chatting) -> None:
    pages = {"metrics": "vllm-metrics.txt", "v1__models": "vllm-models.json"}
    with serving(**answering("Fast.")) as one, serving(**answering("Fast too.", **pages)) as other:
        info = chatting.load(one.url, undrafted=Server(other.url) if named else None)
        (event,) = chatting.ask(undrafted=True)
    words = f"{other.url}, which plain names, drafts too. Start it without drafting."
    assert event == Failed(1, "request", words if named else "This server decides by itself whether it drafts.")
    assert bool(info.plain.server) == named


def test_one_that_is_gone_fails_the_reply_alone(chatting: Chatting) -> None:
    with serving() as gone:
        pass
    with serving(**answering("Fast.")) as one:
        chatting.load(one.url, undrafted=Server(gone.url))
        (event,) = chatting.ask(1, undrafted=True)
        assert isinstance(event, Failed)
        assert event.message.startswith(f"{gone.url} cannot be reached")
        assert isinstance(chatting.ask(2)[-1], Finished)
