"""A remote pair on `specchat serve`: its counts are the engine's, and it writes plainly where asked."""

import asyncio

from specchat.engine.protocol.events import Counted, Failed, Finished, Started, Step
from specchat.engine.protocol.options import Message, Sampling
from specchat.engine.protocol.requests import Count, Generate
from specchat.remote.engine import RemoteEngine
from specchat.remote.server_replies import ServerReplies
from tests.fake import FakeEngine
from tests.remote.conftest import Chatting, spec
from tests.remote.server import Call
from tests.remote.server import serving as scripted
from tests.serve.conftest import serving

TEXT = "Once there was a fox who kept a lamp."


def asked(engine: FakeEngine) -> Generate:
    return [request for request in engine.requests if isinstance(request, Generate)][-1]


async def test_drafts_are_those_of_the_engine(engine: FakeEngine) -> None:
    remote = RemoteEngine()
    remote.start()
    chatting = Chatting(remote)
    async with serving(engine) as server:
        info = await asyncio.to_thread(chatting.load, server.url)
        events = await asyncio.to_thread(chatting.ask)
        counted = await asyncio.to_thread(server.served.metrics.page)
    remote.close()
    assert (info.server.name, info.context) == ("specchat serve", server.served.loaded().context)
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.text == TEXT
    page = counted.decode() if isinstance(counted, bytes) else counted
    assert f'vllm:spec_decode_num_draft_tokens_total{{model_name="demo"}} {last.stats.num_draft_tokens:.1f}' in page
    accepted = (
        f'vllm:spec_decode_num_accepted_tokens_total{{model_name="demo"}} {last.stats.num_accepted_draft_tokens:.1f}'
    )
    assert accepted in page
    assert last.stats.num_accepted_draft_tokens > 0
    assert sum(event.accepted for event in events if isinstance(event, Step)) == last.stats.num_accepted_draft_tokens


async def test_a_count_waits_for_no_reply() -> None:
    remote = RemoteEngine()
    remote.start()
    chatting = Chatting(remote)
    async with serving(FakeEngine((TEXT,), tokens_per_second=5)) as server:
        await asyncio.to_thread(chatting.load, server.url)
        chatting.send()
        await asyncio.to_thread(chatting.until, Started, Failed)
        remote.send(Count(5, (Message("user", "hi"),)))
        events = await asyncio.to_thread(chatting.until, Counted, Finished, Failed)
        assert (type(events[-1]), events[-1].id) == (Counted, 5), events[-1]
        remote.send(Count(6, (), raw="Once"))
        events = await asyncio.to_thread(chatting.until, Counted, Finished, Failed)
        assert (type(events[-1]), events[-1].id) == (Failed, 6), events[-1]
        remote.close()


def test_a_pair_that_is_found_while_the_server_loads_has_its_context() -> None:
    cards: list[dict[str, object]] = [{"id": "m", "owned_by": "specchat"}]

    def loaded(call: Call) -> None:
        cards.append({**cards[0], "max_model_len": 512})
        call.json({"status": "ok"})

    remote = RemoteEngine()
    remote.start()
    with scripted(v1__models=lambda call: call.json({"data": cards[-1:]}), health=loaded) as server:
        assert Chatting(remote).load(server.url).context == 512
    remote.close()


async def test_it_writes_plainly_for_a_check(engine: FakeEngine) -> None:
    async with serving(engine) as server:

        def written() -> tuple[str, str]:
            with ServerReplies(spec(server.url), undrafted=True) as plain:
                assert (plain.undrafts, plain.drafts, plain.name) == (True, False, "box without drafting")
                return plain.write((Message("user", "Hi"),), Sampling(), 20), plain.keeps_text

        text, program = await asyncio.to_thread(written)
    assert (text, program) == (TEXT, "specchat serve")
    assert asked(engine).speculation.strategy == "plain"
