"""The event loop stays free while a fast engine writes. The bounds are wide, for the machine may be busy; work is
processor time, which other programs do not add to."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until

from measure.feel import SCENARIOS, measure
from measure.feel_app import events, fill, long_reply
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.chat.turn import Reply
from specchat.engine.protocol.events import Finished, Started
from specchat.engine.protocol.options import Sampling, Speculation
from tests.fake import FakeEngine

EARLY, LATE = 2, 10
"""Tenths of a reply that are compared."""


@pytest.mark.timed
def test_the_loop_stays_free() -> None:
    feel = measure(SCENARIOS[0], tokens=6000, speed=1500.0, idle=2.0)
    assert feel.work < 250
    assert median(feel.echoes) < 300
    assert feel.busy < 0.5
    assert feel.idle < 0.05


@pytest.mark.timed
@pytest.mark.parametrize("what", ["10,000 messages", "100,000 tokens"])
async def test_a_large_chat_opens_at_once(what: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    if what == "10,000 messages":
        key, open_mark = fill(store, 10_000), "fox number 9998"
    else:
        key, open_mark = one_long_reply(store, 100_000), "item 59"
    app = make_app(FakeEngine(), replace(LAUNCH, store=store))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.pause(0.5)
        begun, worked = perf_counter(), thread_time()
        app.chat.chats.open(key)
        await pilot.pause()
        taken, work = perf_counter() - begun, thread_time() - worked
        # Where cores are shared it may be drawn in a later turn of the loop.
        await wait_until(pilot, lambda: open_mark in screen_text(app))
    store.close()
    print(f"{what}: opened in {taken:.2f} s")
    assert work < 5.0, "it takes a sixth of a second to half a one where nothing is done twice"


def one_long_reply(store: Store, tokens: int) -> str:
    """Save a chat with a reply of so many tokens and all its steps; gives its key."""
    chat, text = Conversation(), long_reply(tokens)
    turn = chat.ask("go", ())
    reply = Reply(1, "demo", Sampling(), Speculation.of("draft"))
    chat.answer(turn, reply)
    for event in events(text, "draft"):
        match event:
            case Started():
                reply.started(event)
            case Finished():
                reply.finished(event)
            case _:
                reply.step(event)
    store.add_turn(chat, turn, {})
    store.save_reply(chat, reply)
    return chat.key


REPLIES = {
    "one paragraph": "Once there was a fox who kept a lamp. " * 300,
    "one fence": "```python\n" + "x = [lamp(i) for i in range(10)]  # by the river\n" * 800,
    "one list": "".join(f"- item {i}: a **fox** with a `lamp`\n" for i in range(800)),
    "one table": "| a | b |\n|---|---|\n" + "| a fox | a lamp by the river |\n" * 800,
    "everything": long_reply(8000),
}
TOKEN_VIEWS = ("one paragraph", "everything")
"""The token view knows no blocks: a row that never ends, and many."""


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    ("reply", "token_view"),
    [pytest.param(REPLIES[name], view, id=f"{name}{', tokens' * view}")
     for name in REPLIES for view in (False, True)[: 1 + (name in TOKEN_VIEWS)]],
)  # fmt: skip
async def test_drawing_a_long_reply_costs_no_more_at_its_end(reply: str, token_view: bool) -> None:
    """The median of the draws in the last tenth of a reply over that in the second one."""
    app = make_app(FakeEngine((reply,), tokens_per_second=1.0))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        if token_view:
            await pilot.press("ctrl+t")
        await ask(app, pilot, "hi", wait=False)
        await wait_until(pilot, lambda: app.session.reply is not None and app.session.reply.state == "writing")
        running = app.session.reply
        assert running is not None
        coming = [event for _, event in app.engine._timed][:-1]  # type: ignore[attr-defined]
        app.engine._timed.clear()  # type: ignore[attr-defined]
        costs: list[float] = []
        for start in range(0, len(coming), 10):
            for event in coming[start : start + 10]:
                running.step(event)
            begun = thread_time()
            app.chat.transcript.sync()
            costs.append(thread_time() - begun)
        tenth = max(len(costs) // 10, 1)
        early, late = (median(costs[(n - 1) * tenth : n * tenth]) for n in (EARLY, LATE))
        assert late < 2 * early + 0.025, f"{1e3 * early:.1f} ms, then {1e3 * late:.1f} ms"
