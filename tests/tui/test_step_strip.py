"""The steps of a reply beside the token view."""

from bisect import bisect_right

from conftest import answered, wait_until
from hypothesis import given
from hypothesis import strategies as st
from test_chat import LONG, being_answered
from test_text import a_reply, step
from textual.pilot import Pilot

from specchat.chat.turn import Reply
from specchat.tui.app import SpecchatApp
from specchat.tui.text.heat import Stretch, step_glyph
from specchat.tui.widgets.rows import Inspector
from specchat.tui.widgets.step_strip import StepStrip

LINES = "\n".join(f"This is line {n} of them." for n in range(60))


def strip_of(app: SpecchatApp) -> StepStrip:
    return app.chat.query_one(StepStrip)


def cells(app: SpecchatApp) -> str:
    strip = strip_of(app)
    return "".join(strip.render_line(y).text for y in range(strip.size.height))


def last_reply(app: SpecchatApp) -> Reply:
    reply = app.session.last_reply
    assert reply is not None
    return reply


def glyphs(reply: Reply) -> str:
    return "".join(step_glyph(step) for step in reply.steps)


def step_under_cursor(app: SpecchatApp) -> int:
    token = app.chat.transcript.token
    assert token is not None
    return token[1].step


async def tokens_shown(app: SpecchatApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+t")
    await wait_until(pilot, lambda: strip_of(app).size.height and cells(app).strip())


# Which steps


def test_a_cell_tells_how_many_drafted_tokens_were_accepted() -> None:
    reply = a_reply(
        step(("a", "draft"), accepted=4),
        step(("b", "draft"), accepted=2),
        step(("c", "target"), accepted=0),
        step(("e", "draft"), accepted=10),
        step(("d", "plain"), drafted=0),
    )
    assert glyphs(reply) == "420+·"


@given(st.integers(1, 60), st.integers(1, 40), st.data())
def test_steps_on_the_screen_and_looked_at_are_among_the_cells(steps: int, height: int, data: st.DataObject) -> None:
    reply = a_reply(*[step(("xy", "draft")) for _ in range(steps)])
    low = data.draw(st.integers(0, steps - 1))
    high = data.draw(st.integers(low, steps - 1)) + 1
    looked_at = data.draw(st.none() | st.integers(0, steps - 1))
    stretch = Stretch(reply, 2 * low, 2 * high, looked_at)
    assert stretch.steps == (low, high)
    first = stretch.first_cell(height)
    assert 0 <= first <= max(steps - height, 0)
    if looked_at is not None:
        assert first <= looked_at < first + height
    elif high - low <= height:
        assert first <= low
        assert high <= first + height


def test_the_cells_go_from_the_first_step_to_the_last_as_one_reads() -> None:
    reply = a_reply(*[step(("xy", "draft")) for _ in range(100)])
    firsts = [Stretch(reply, 2 * low, 2 * low + 20).first_cell(30) for low in range(91)]
    assert firsts == sorted(firsts)
    assert (firsts[0], firsts[-1]) == (0, 70)


# On the screen


async def test_a_short_reply_has_a_cell_for_each_of_its_steps() -> None:
    async with answered("Once there was a fox who kept a lamp.", (100, 30)) as (app, pilot):
        assert not strip_of(app).display
        width = app.chat.transcript._text_width
        await tokens_shown(app, pilot)
        assert cells(app).rstrip() == glyphs(last_reply(app))
        assert app.chat.transcript._text_width == width
        await pilot.press("ctrl+t")
        await wait_until(pilot, lambda: not strip_of(app).display)


async def test_the_strip_cuts_nothing_off() -> None:
    async with answered(LONG, (100, 30)) as (app, pilot):
        for _ in range(2):
            await pilot.press("ctrl+t")
            await pilot.pause(0.1)
            transcript = app.chat.transcript
            widest = max(line.content.cell_length for line, _ in transcript.chat_rows.rows)
            assert transcript._text_width - 8 < widest <= transcript._text_width


async def test_the_cells_follow_what_is_read() -> None:
    async with answered(LINES, (100, 30)) as (app, pilot):
        await tokens_shown(app, pilot)
        every, height = glyphs(last_reply(app)), strip_of(app).size.height
        assert cells(app) == every[-height:]
        app.chat.transcript.scroll_to(y=0, animate=False, immediate=True)
        await wait_until(pilot, lambda: cells(app) == every[:height])


async def test_a_click_goes_to_the_text_of_the_step() -> None:
    async with answered(LINES, (100, 30)) as (app, pilot):
        await tokens_shown(app, pilot)
        for y in (11, 3, 0):
            wanted = len(last_reply(app).steps) - strip_of(app).size.height + y
            app.chat.transcript.scroll_end(animate=False, immediate=True)
            await wait_until(pilot, lambda: cells(app).rstrip("◂ ").endswith(glyphs(last_reply(app))[-1]))
            assert await pilot.click(StepStrip, offset=(0, y))
            await wait_until(pilot, lambda step=wanted: app.chat.transcript.token and step_under_cursor(app) == step)
            await wait_until(pilot, lambda: "◂" in cells(app))
            assert str(app.chat.query_one(Inspector).render()).count(f"step {wanted + 1:,} of") == 1


async def test_nothing_is_below_the_last_step() -> None:
    async with answered("Once there was a fox.", (100, 30)) as (app, pilot):
        await tokens_shown(app, pilot)
        await pilot.click(StepStrip, offset=(0, strip_of(app).size.height - 1))
        assert app.chat.transcript.token is None


async def test_keys_go_from_step_to_step() -> None:
    async with answered(LINES, (100, 30)) as (app, pilot):
        await tokens_shown(app, pilot)
        await pilot.press("ctrl+up", "g", "w")
        assert step_under_cursor(app) == 0
        seen = []
        for key in "wwwbbbb":
            await pilot.press(key)
            seen.append(step_under_cursor(app))
        assert seen == [1, 2, 3, 2, 1, 0, 0]
        await pilot.press("G", "b")
        reply = last_reply(app)
        while step_under_cursor(app) < len(reply.steps) - 1:
            await pilot.press("w")
        await pilot.press("w")
        assert step_under_cursor(app) == len(reply.steps) - 1


async def test_the_line_being_written_can_be_walked() -> None:
    async with being_answered(LONG, (100, 30), 100, "word60") as (app, pilot, clock):
        await tokens_shown(app, pilot)
        await pilot.press("ctrl+up", "k", "k", "k", "h")
        before = step_under_cursor(app)
        for key in ("l", "h", "w", "b"):
            clock.now += 20
            known = len(last_reply(app).steps)
            await wait_until(pilot, lambda known=known: len(last_reply(app).steps) > known)
            await pilot.pause(0.1)
            await pilot.press(key)
        assert step_under_cursor(app) == before
        token, written = app.chat.transcript.token, last_reply(app)
        assert token is not None
        assert token[0] in app.chat.transcript.chat_rows.window.sections
        assert bisect_right(written.offsets, token[0].end) >= before
