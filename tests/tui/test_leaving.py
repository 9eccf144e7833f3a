"""What was begun in a chat ends with it: nothing of it is left where another chat is shown."""

import pytest
from conftest import answered, ask, loaded, make_app, screen_text, wait_until

from specchat.tui.widgets.find_bar import FindBar
from tests.fake import FakeEngine

LINES = "\n".join(f"This is line {n} of them." for n in range(60))


@pytest.mark.parametrize("keys", [["ctrl+up"], ["ctrl+f", *"line"], ["ctrl+f", *"line", "enter"]])
async def test_one_can_write_after_the_chat_that_was_read_is_deleted(keys: list[str]) -> None:
    async with answered(LINES, (100, 30)) as (app, pilot):
        await pilot.press(*keys)
        await app.chat.do("delete-chat")
        await pilot.pause(0.1)
        await pilot.press(*"more")
        assert app.chat.prompt.text == "more"
        await ask(app, pilot, "")
        assert not app.chat.query_one(FindBar).display


async def test_a_message_chosen_after_its_chat_was_left_is_not_gone_to() -> None:
    async with answered(LINES, (100, 30)) as (app, pilot):
        await app.chat.do("choose-message")
        await wait_until(pilot, lambda: "filter" in screen_text(app))
        await app.chat.do("new-chat")  # as the palette does it
        await pilot.press("enter", "x")
        await pilot.pause(0.1)
        assert app.screen is app.chat
        assert app.chat.prompt.has_focus


async def test_the_chat_that_was_chosen_is_opened_though_the_list_changes_at_once() -> None:
    app = make_app(FakeEngine(("An answer.",)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        for prompt in ("one", "two", "three"):
            await ask(app, pilot, prompt)
            await pilot.press("alt+n")
        await pilot.press("ctrl+b", "home", "down")
        sidebar, key = app.chat.sidebar, app.chat.sidebar.marked
        last = app.session.chat.saving.store.chats()[0].key
        sidebar.list.action_select()
        app.session.chats.delete(last).wait(1)
        sidebar.reload(app.session.conversation)
        await wait_until(pilot, lambda: app.session.conversation.turns)
        assert app.session.conversation.key == key
