"""The row about the token under the cursor tells of that token, as things are now."""

from conftest import answered, screen_text, wait_until
from test_chat import LONG, being_answered

from specchat.tui.app import SpecchatApp
from specchat.tui.text.inspect import cells_of
from specchat.tui.widgets.rows import Inspector


def told(app: SpecchatApp) -> str:
    return str(app.chat.query_one(Inspector).render()) if app.chat.query_one(Inspector).display else ""


def token_rows(app: SpecchatApp) -> set[int]:
    """The rows that show the token which is looked at."""
    transcript = app.chat.transcript
    assert transcript.token is not None
    section, token = transcript.token
    start = transcript.chat_rows.window.start_of(transcript.chat_rows.window.sections.index(section))
    assert start is not None
    return {start + row for row, _, _ in cells_of(section, token, section.lines(transcript._text_width))}


async def test_it_counts_the_steps_of_a_growing_reply() -> None:
    async with being_answered(LONG, (100, 30), 100, "word60") as (app, pilot, clock):
        await pilot.press("ctrl+t", "ctrl+up", "k", "k", "k", "l")
        before, reply = told(app), app.session.last_reply
        assert reply is not None
        known = len(reply.steps)
        clock.now = 200
        await wait_until(pilot, lambda: len(reply.steps) > known and f"of {len(reply.steps)}" in told(app))
        assert told(app).split(" of ")[0] == before.split(" of ")[0]


async def test_the_cursor_that_follows_the_end_is_on_the_token_told_of() -> None:
    async with being_answered(LONG, (100, 30), 60, "word35") as (app, pilot, clock):
        await pilot.press("ctrl+t", "ctrl+up", "G")
        for now, word in ((120, "word70"), (180, "word105")):
            clock.now = now
            await wait_until(pilot, lambda word=word: word in screen_text(app))
            assert app.chat.transcript.cursor == len(app.chat.transcript.chat_rows.rows) - 1
            assert app.chat.transcript.cursor in token_rows(app)


async def test_the_cursor_stays_on_the_token_when_the_width_changes() -> None:
    async with answered(LONG, (120, 30)) as (app, pilot):
        await pilot.press("ctrl+t", "ctrl+up", "k", "k", "k", "k", "l", "l")
        token = app.chat.transcript.token
        for width in (60, 140):
            await pilot.resize_terminal(width, 30)
            await wait_until(pilot, lambda: app.chat.transcript.cursor in token_rows(app))
            assert app.chat.transcript.token == token


async def test_nothing_is_told_of_a_token_that_is_not_shown_any_more() -> None:
    async with answered(LONG, (100, 30)) as (app, pilot):
        await pilot.press("ctrl+up", "t", "h")
        assert "step" in told(app)
        await pilot.press("ctrl+t")
        assert not told(app)
        await pilot.press("ctrl+t")
        assert "step" in told(app)
        reply = app.session.last_reply
        await pilot.press("r")
        await wait_until(pilot, lambda: app.session.reply is None)
        await pilot.pause(0.1)
        token = app.chat.transcript.token
        assert token is None or token[0].reply is not reply
        assert bool(told(app)) == (token is not None)
