"""What is being read stays in view, and the cursor on it, whatever happens around it."""

import pytest
from conftest import ask, loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered

from specchat.tui.text.chat_rows import Said
from tests.fake import FakeEngine

LINES = "\n".join(f"This is line {n} of them." for n in range(60))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("size", [(3, 3), (39, 30), (100, 11), (1, 1)])
async def test_a_window_too_small_for_a_moment_keeps_what_is_read(size: tuple[int, int]) -> None:
    async with being_answered(LINES, (100, 30), 300, "line 40 of") as (app, pilot, clock):
        transcript = app.chat.transcript
        transcript.scroll_to(y=5, animate=False, immediate=True)
        await pilot.pause()
        shown = screen_text(app).splitlines()[5]
        await pilot.resize_terminal(*size)
        clock.now = 340
        await pilot.pause(0.2)
        await pilot.resize_terminal(100, 30)
        await pilot.pause(0.1)
        assert (round(transcript.scroll_y), transcript.following) == (5, False)
        assert screen_text(app).splitlines()[5] == shown


async def test_the_list_of_chats_over_a_growing_reply_keeps_what_is_read() -> None:
    async with being_answered(LINES, (80, 30), 300, "line 40 of") as (app, pilot, clock):
        transcript = app.chat.transcript
        transcript.scroll_to(y=5, animate=False, immediate=True)
        await pilot.press("ctrl+b")
        rows = len(transcript.chat_rows.rows)
        clock.now = 340
        await wait_until(pilot, lambda: len(transcript.chat_rows.rows) > rows)
        await pilot.press("ctrl+b")
        await pilot.pause(0.1)
        assert (round(transcript.scroll_y), transcript.following) == (5, False)


async def test_the_cursor_stays_on_the_message_whose_version_is_shown() -> None:
    app = make_app(FakeEngine((LINES,)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        for n in range(3):
            await ask(app, pilot, f"prompt {n}")
        transcript, turns = app.chat.transcript, app.session.conversation.turns
        transcript.focus()
        await pilot.pause()
        transcript.go_to_said(Said(turns[1], "model"))
        await pilot.press("r")
        await wait_until(pilot, lambda: app.session.reply is None)
        for key in "<><":
            transcript.go_to_said(Said(turns[1], "model"))
            await pilot.press("j", key)
            assert transcript.said == Said(turns[1], "model")
            assert transcript.cursor in range(round(transcript.scroll_y), round(transcript.scroll_y) + 24)
        transcript.go_to_said(Said(turns[0], "you"))
        await pilot.press("e")
        await ask(app, pilot, " in other words")
        other = app.session.conversation.turns[0]
        transcript.focus()
        await pilot.pause()
        for key, turn in (("<", turns[0]), (">", other)):
            transcript.go_to_said(Said(app.session.conversation.turns[0], "you"))
            await pilot.press(key)
            assert transcript.said == Said(turn, "you")


async def test_versions_are_those_of_the_message_under_the_cursor() -> None:
    app = make_app(FakeEngine(("An answer.",)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "one")
        await pilot.press("f5")
        await ask(app, pilot, " and two")
        await pilot.press("alt+r", "enter")
        await wait_until(pilot, lambda: app.session.reply is None)
        turn = app.session.conversation.turns[0]
        assert (len(turn.replies), turn.replies.number) == (2, 2)
        app.chat.transcript.focus()
        await pilot.pause()
        app.chat.transcript.go_to_said(Said(turn, "model"))
        await pilot.press("<")
        assert (app.session.conversation.turns, turn.replies.number) == ([turn], 1)
        app.chat.transcript.go_to_said(Said(turn, "you"))
        await pilot.press("<")
        assert app.session.conversation.turns[0].prompt == "one"


async def test_letters_to_jump_end_when_the_rows_are_others() -> None:
    app = make_app(FakeEngine(("\n\n".join(f"Paragraph {n}." for n in range(300)), "Short, " * 30)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "long")
        await ask(app, pilot, "short")
        transcript = app.chat.transcript
        await pilot.press("ctrl+up", "f")
        assert transcript.labelled
        await pilot.resize_terminal(60, 30)
        await pilot.pause(0.1)
        assert not transcript.labelled
        await pilot.press("f")
        assert transcript.labelled
        assert not transcript.chat_rows.at_start
        transcript.scroll_to(y=3, animate=False, immediate=True)
        await wait_until(pilot, lambda: not transcript.labelled)


async def test_the_match_gone_to_stays_marked_while_its_line_grows() -> None:
    async with being_answered(LONG, (100, 30), 60, "word35") as (app, pilot, clock):
        await pilot.press("ctrl+f", *"word21", "enter")
        transcript = app.chat.transcript
        mark = transcript.get_visual_style("found-current").rich_style

        def marked() -> str:
            cells = [cell for y in range(transcript.size.height) for cell in transcript.render_line(y)]
            return "".join(cell.text for cell in cells if cell.style and cell.style.bgcolor == mark.bgcolor)

        assert marked() == "word21"
        clock.now = 90
        await wait_until(pilot, lambda: "word50" in screen_text(app))
        assert marked() == "word21"
        await pilot.press("t")
        assert marked() == "word21"
