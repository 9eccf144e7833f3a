"""A chat that two windows show: each learns what the other wrote."""

from dataclasses import replace
from pathlib import Path

from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until

from specchat.chat.store import Store
from tests.fake import FakeEngine


async def test_what_another_window_wrote_shows_and_what_is_typed_stays(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "chats.db"), Store(tmp_path / "chats.db")
    app = make_app(FakeEngine(("Once there was a fox.",)), replace(LAUNCH, store=here))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "a story")
        await pilot.press("ctrl+b")
        app.chat.prompt.focus()
        app.chat.prompt.insert("half a thou")
        assert here.holds(app.session.conversation.key)
        other, row = there.load(app.session.conversation.key)
        there.add_turn(other, other.ask("asked in another window"), row.view)
        there.rename(other.key, "our fox")
        await wait_until(pilot, lambda: "asked in another window" in screen_text(app))
        await wait_until(pilot, lambda: "our fox" in screen_text(app))
        assert app.chat.prompt.text == "half a thou"
        assert "Once there was a fox." in screen_text(app)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.reply is None and len(app.session.conversation.turns) == 2)
    there.close()
