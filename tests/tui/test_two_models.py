"""Another model's answer: in the place of the chat's, or beside it to keep one of the two."""

import pytest
from conftest import ask, flush, loaded, make_app, screen_text, wait_until
from textual.pilot import Pilot

from specchat.engine.protocol.requests import Load
from specchat.tui.app import SpecchatApp
from specchat.tui.screens.again import AgainScreen
from specchat.tui.screens.chat import ChatScreen
from specchat.tui.screens.compare import CompareScreen
from tests.fake import FakeEngine

BIG = "Qwen3 8B + 0.6B"


async def run(app: SpecchatApp, pilot: Pilot[None], command: str) -> None:
    app.chat.prompt.insert(command)
    await pilot.press("escape", "enter")


async def compared(app: SpecchatApp, pilot: Pilot[None], command: str = "/compare big") -> None:
    """Both replies are there."""
    await run(app, pilot, command)
    await wait_until(pilot, lambda: isinstance(app.screen, CompareScreen))
    await wait_until(pilot, lambda: app.session.loaded.id == "big" and app.session.last_reply is not None)
    await wait_until(pilot, lambda: not app.session.replies and "second" in screen_text(app))


def pairs_loaded(engine: FakeEngine) -> list[str]:
    return [request.pair.id for request in engine.requests if isinstance(request, Load)]


async def test_again_by_another_model_is_a_branch_and_that_models_chat() -> None:
    engine = FakeEngine(("first", "second"))
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await run(app, pilot, "/again big")
        await wait_until(pilot, lambda: "second" in screen_text(app) and not app.session.replies)
        assert "reply 2 of 2" in screen_text(app)
        assert f"{BIG} · draft ·" in screen_text(app)
        assert [reply.name for reply in app.session.conversation.turns[0].replies] == ["demo", BIG]
        assert (app.session.loaded.id, app.session.wanted) == ("big", "")


async def test_again_offers_the_same_model_and_the_others() -> None:
    engine = FakeEngine(("first", "second", "third"))
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await pilot.press("alt+r")
        await wait_until(pilot, lambda: isinstance(app.screen, AgainScreen))
        assert "the same model: " in screen_text(app)
        await wait_until(pilot, lambda: BIG in screen_text(app))
        assert not app.screen.find("demo")[1:]  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert app.session.reply is None
        await pilot.press("alt+r", "enter")
        await wait_until(pilot, lambda: "second" in screen_text(app) and not app.session.replies)
        await pilot.press("alt+r", *"big", "enter")
        await wait_until(pilot, lambda: "third" in screen_text(app) and not app.session.replies)
        assert [reply.name for reply in app.session.conversation.turns[0].replies] == ["demo", "demo", BIG]


async def test_again_by_a_model_that_is_not_there_changes_nothing() -> None:
    engine = FakeEngine(("first", "second"))
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await run(app, pilot, "/again nothing")
        await wait_until(pilot, lambda: "nothing cannot answer" in screen_text(app))
        assert app.chat.prompt.text == "/again nothing"
        assert pairs_loaded(engine) == ["demo"]
        assert len(app.session.conversation.turns[0].replies) == 1


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_two_replies_stand_beside_or_above_each_other(size: tuple[int, int]) -> None:
    app = make_app(FakeEngine(("the **first** one", "the second one")))
    async with app.run_test(size=size) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await compared(app, pilot)
        rows = screen_text(app).splitlines()
        first, second = (next(row for row in rows if name in row) for name in ("1 demo", f"2 {BIG}"))
        assert (first is second) == (size[0] >= 100)
        assert any("the first one" in row for row in rows)  # as Markdown
        assert sum(row.count("tok/s") for row in rows) == 2


async def test_long_replies_are_scrolled_together() -> None:
    replies = ["\n\n".join(f"{name} {number}" for number in range(30)) for name in ("one", "second")]
    app = make_app(FakeEngine(replies))
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await compared(app, pilot)
        assert {"one 0", "second 0"} <= {row.strip("│ ") for row in screen_text(app).splitlines()}
        await pilot.press("end", "up")
        await wait_until(pilot, lambda: "one 29" in screen_text(app))
        assert "second 29" in screen_text(app)


@pytest.mark.parametrize(("key", "text", "pair"), [("1", "first", "demo"), ("2", "second", "big")])
async def test_the_reply_that_is_kept_decides_the_chats_pair(key: str, text: str, pair: str) -> None:
    engine = FakeEngine(("first", "second", "third"))
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        await compared(app, pilot)
        await pilot.press(key)
        await wait_until(pilot, lambda: isinstance(app.screen, ChatScreen))
        turn = app.session.conversation.turns[0]
        assert len(turn.replies) == 2
        assert turn.reply is not None
        assert turn.reply.text == text
        store = app.session.chat.saving.store
        flush(store)
        view = store.load(app.session.conversation.key)[1].view
        assert (view["pair"], app.session.pair_view["pair"]) == (pair, pair)
        await ask(app, pilot, "more")
        await wait_until(pilot, lambda: not app.session.replies)
        last = app.session.last_reply
        assert last is not None
        assert last.text == "third"
        assert app.session.loaded.id == pair


async def test_a_given_prompt_is_answered_by_both_in_turn() -> None:
    engine = FakeEngine(("first", "second"))
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await compared(app, pilot, "/compare big why is the sky blue?")
        (turn,) = app.session.conversation.turns
        assert turn.prompt == "why is the sky blue?"
        assert [reply.text for reply in turn.replies] == ["first", "second"]
        assert pairs_loaded(engine) == ["demo", "big"]
        await pilot.press("escape")
        assert isinstance(app.screen, ChatScreen)


async def test_the_first_kept_while_the_second_is_loaded_stops_that() -> None:
    engine = FakeEngine(("first", "second"))
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        engine.holds_loads = True
        await run(app, pilot, "/compare big")
        await wait_until(pilot, lambda: pairs_loaded(engine) == ["demo", "big"] and app.session.reply is not None)
        engine.holds_loads = False
        await pilot.press("1")
        await wait_until(pilot, lambda: app.session.loaded.info is not None)
        assert (app.session.loaded.id, app.session.wanted) == ("demo", "")
        assert [reply.text for reply in app.session.conversation.turns[0].replies] == ["first"]


async def test_a_second_model_that_cannot_be_loaded_leaves_the_first_reply() -> None:
    engine = FakeEngine(("first", "second"))
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hi")
        engine.fail_load("memory", "no room for it")
        await run(app, pilot, "/compare big")
        await wait_until(pilot, lambda: "no room for it" in screen_text(app))
        await pilot.press("2")  # there is none
        assert isinstance(app.screen, CompareScreen)
        await pilot.press("1")
        await wait_until(pilot, lambda: app.session.loaded.info is not None and isinstance(app.screen, ChatScreen))
        assert (app.session.loaded.id, app.session.wanted) == ("demo", "")
        assert [reply.text for reply in app.session.conversation.turns[0].replies] == ["first"]


@pytest.mark.parametrize(
    ("command", "words"),
    [("/compare", "name the model"), ("/compare big", "no reply to compare"), ("/compare demo hi", "already")],
)
async def test_what_cannot_be_compared_is_said(command: str, words: str) -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await run(app, pilot, command)
        await wait_until(pilot, lambda: words in screen_text(app))
        assert app.chat.prompt.text.strip() == command
