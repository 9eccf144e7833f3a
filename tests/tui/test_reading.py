"""Reading through the keyboard and the mouse, over the scripted engine."""

from time import thread_time

import pytest
from conftest import answered, ask, loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered, slow, status, until_shown
from test_chat_rows import a_chat
from textual.pilot import Pilot

from specchat.attachments.files import Attachment
from specchat.chat.tree import Conversation
from specchat.engine.protocol.options import Written
from specchat.tui.app import SpecchatApp
from specchat.tui.editor import EditorError
from specchat.tui.screens.messages import MessagesScreen
from specchat.tui.widgets.find_bar import FindBar
from specchat.tui.widgets.rows import Hints, Inspector
from tests.fake import FakeEngine

STORY = (
    "Once there was a small fox.\n\nShe kept a lamp ([here](https://x.y/z)).\n\n```python\nprint('lamp')\n```\n\nEnd."
)
THOUGHT = Written.of([("let me see\nwell then\n", True), ("\n\nYes, it is.", False)])


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the app opened."""
    opened: list[str] = []
    monkeypatch.setattr(SpecchatApp, "open_url", lambda _, url: opened.append(url))
    return opened


async def with_chat(app: SpecchatApp, pilot: Pilot[None], chat: Conversation) -> None:
    """Show a chat that is there already."""
    await loaded(app, pilot)
    app.session.chat.conversation = chat
    app.chat.transcript.show(chat)
    app.chat.redraw()
    await pilot.pause()
    await pilot.press("ctrl+up")
    await pilot.pause()
    assert app.chat.transcript.has_focus


def under_cursor(app: SpecchatApp) -> str:
    line = app.chat.transcript.line
    return line.content.plain.strip() if line else ""


async def to_row(app: SpecchatApp, pilot: Pilot[None], text: str) -> None:
    """Move the cursor up to a row."""
    for _ in range(80):
        if text in under_cursor(app):
            return
        await pilot.press("k")
    raise AssertionError(f"no row with {text}")


async def test_the_focus_goes_to_the_transcript_and_back() -> None:
    app = make_app(FakeEngine((STORY,)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+up")
        assert "nothing to read" in status(app)
        await pilot.press("ctrl+f")
        assert "nothing to find" in status(app)
        await ask(app, pilot, "hi")
        transcript, prompt = app.chat.transcript, app.chat.prompt
        for there in ("ctrl+up", "tab"):
            for back in ("i", "escape", "enter"):
                await pilot.press(there)
                await pilot.pause()
                assert transcript.has_focus
                assert "◂" in screen_text(app)
                assert "y copy" in str(app.chat.query_one(Hints).render())
                await pilot.press(back)
                await pilot.pause()
                assert prompt.has_focus
                assert "◂" not in screen_text(app)
        assert prompt.text == ""


async def test_escape_leaves_before_it_stops() -> None:
    async with being_answered(LONG, (120, 36), 30, "word20") as (app, pilot, _):
        await pilot.press("ctrl+up", "escape")
        assert app.session.reply is not None
        assert not app.session.stopping
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)


async def test_moving_by_rows_messages_and_pages() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await with_chat(app, pilot, a_chat(60))
        transcript = app.chat.transcript
        await pilot.press("g")
        assert (transcript.cursor, under_cursor(app)) == (0, "▌ question 0.")
        await pilot.press("j", "j")
        assert under_cursor(app) == "answer 0."
        seen = []
        for _ in range(3):
            await pilot.press("[" if not seen else "]")
            seen.append(under_cursor(app))
        assert seen == ["▌ question 0.", "answer 0.", "▌ question 1."]
        assert transcript.said is not None
        assert transcript.said.turn.prompt == "question 1."
        await pilot.press("j", "[")
        assert under_cursor(app) == "▌ question 1."
        await pilot.press("[", "[")
        assert transcript.said.turn.prompt == "question 0."
        await pilot.press("ctrl+d", "ctrl+d")
        height = transcript.size.height
        assert height // 2 < transcript.cursor <= height + 5
        before = transcript.cursor
        await pilot.press("pagedown", "pageup", "ctrl+u")
        assert transcript.cursor < before
        await pilot.press("G")
        assert transcript.following
        assert transcript.cursor == len(transcript.chat_rows.rows) - 1
        for _ in range(500):
            transcript.go_to_next_message(-1)
            if transcript.cursor == 0:
                break
        assert transcript.said.turn.prompt == "question 0."


async def test_reading_holds_still_while_a_reply_is_written_and_the_end_follows() -> None:
    engine, clock = slow("\n\n".join(f"word{n}" for n in range(300)))
    app = make_app(engine)
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        transcript = app.chat.transcript
        clock.now = 100
        await until_shown(pilot, app, "word90")
        await pilot.press("ctrl+up")
        clock.now = 120
        await until_shown(pilot, app, "word110")
        assert transcript.following
        await pilot.press("k", "k", "k")
        at, text = transcript.scroll_y, under_cursor(app)
        clock.now = 200
        await wait_until(pilot, lambda: len(transcript.chat_rows.rows) > 380)
        assert (transcript.scroll_y, under_cursor(app)) == (at, text)
        await pilot.press("G")
        clock.now = 999
        await until_shown(pilot, app, "word299")
        assert transcript.following


@pytest.mark.rotated(3)
@pytest.mark.parametrize("keys", [("f5", "enter"), ("alt+r", "enter"), ("ctrl+up", "r")])
async def test_a_reply_that_was_asked_for_is_in_view_wherever_the_chat_was_read(keys: tuple[str, ...]) -> None:
    app = make_app(FakeEngine(("\n\n".join(f"word{n}" for n in range(60)),)))
    async with app.run_test(size=(100, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "needle")
        await ask(app, pilot, "last")
        await pilot.press("f9", *"needle", "enter")
        await wait_until(pilot, lambda: app.chat.prompt.has_focus)
        assert not app.chat.transcript.following
        await pilot.press(*keys)
        await wait_until(pilot, lambda: app.session.reply is None)
        assert app.chat.transcript.following
        await until_shown(pilot, app, "word59")


async def test_while_a_reply_is_written_below_the_key_that_goes_there_is_shown() -> None:
    async with being_answered("\n\n".join(f"word{n}" for n in range(300)), (100, 24), 100, "word90") as (app, pilot, _):
        assert "reply below" not in screen_text(app)
        await pilot.press("pageup")
        await wait_until(pilot, lambda: "ctrl+end reply below" in screen_text(app))
        await pilot.press("ctrl+end")
        await wait_until(pilot, lambda: "reply below" not in screen_text(app))


async def test_messages_and_code_are_copied() -> None:
    app = make_app(FakeEngine((Written.of([("hm", True), (STORY, False)]),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "my question")
        await pilot.press("ctrl+up", "y")
        await wait_until(pilot, lambda: app.clipboard == STORY)
        await to_row(app, pilot, "print")
        await pilot.press("c")
        await wait_until(pilot, lambda: app.clipboard == "print('lamp')")
        await until_shown(pilot, app, "copied through the terminal. Nothing")
        await pilot.press("g", "y")
        await wait_until(pilot, lambda: app.clipboard == "my question")
        await pilot.press("c")
        assert "no code block" in status(app)
        await pilot.press("i", "alt+c")
        await wait_until(pilot, lambda: app.clipboard == STORY)
        await app.chat.do("copy-reply-with-reasoning")
        await wait_until(pilot, lambda: app.clipboard == f"<think>\nhm\n</think>\n\n{STORY}")


async def test_a_selection_is_copied_and_survives_streaming() -> None:
    text = "\n\n".join(f"word{n}" for n in range(300))
    async with being_answered(text, (100, 24), 6, "word3") as (app, pilot, clock):
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "word0" in row)
        await pilot.mouse_down(offset=(2, y))
        await pilot.hover(offset=(30, y + 4))
        await pilot.mouse_up(offset=(30, y + 4))
        selected = app.chat.get_selected_text()
        assert selected is not None
        assert "word1" in selected
        clock.now = 200
        await until_shown(pilot, app, "word196")
        assert app.chat.get_selected_text() == selected
        await pilot.press("ctrl+c")
        await wait_until(pilot, lambda: app.clipboard == selected)
        await until_shown(pilot, app, "characters copied through the terminal")


async def test_words_are_found_in_all_of_a_long_chat() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await with_chat(app, pilot, a_chat(300))
        transcript = app.chat.transcript
        await pilot.press("slash", *"answer 7")
        await until_shown(pilot, app, "of 11")
        assert app.chat.query_one(FindBar).has_focus_within
        assert "answer 7" in under_cursor(app)
        await pilot.press("enter")
        await pilot.pause()
        assert transcript.has_focus
        for _ in range(12):
            await pilot.press("n")
            if "answer 7." in under_cursor(app):
                break
        assert "1 of 11" in screen_text(app)
        await pilot.press("N")
        assert "11 of 11" in screen_text(app)
        assert under_cursor(app) == "answer 79."
        await pilot.press("escape")
        await pilot.pause()
        assert "of 11" not in screen_text(app)
        assert transcript.has_focus
        await pilot.press("n")
        assert "nothing is looked for" in status(app)
        await pilot.press("escape", "ctrl+f", *"Answer")
        await until_shown(pilot, app, "no match")
        await pilot.press("escape")
        assert app.chat.prompt.has_focus
        await pilot.press("ctrl+f", "ctrl+f", "escape")
        assert app.chat.prompt.has_focus
        await pilot.press("ctrl+up", "slash", "ctrl+f", "escape")
        assert transcript.has_focus


async def test_matches_are_counted_again_when_the_reply_has_ended() -> None:
    async with being_answered("a lamp and a fox " * 20, (100, 30), 12, "a lamp and a fox") as (app, pilot, clock):
        await pilot.press("ctrl+f", *"lamp")
        await until_shown(pilot, app, "1 of ")
        assert "of 20" not in screen_text(app)
        clock.now = 999
        await wait_until(pilot, lambda: app.session.reply is None)
        await until_shown(pilot, app, "1 of 20")


async def test_found_words_are_marked_where_they_are_shown() -> None:
    async with answered(STORY, (100, 30)) as (app, pilot):
        await pilot.press("ctrl+f", *"lamp")
        await until_shown(pilot, app, "of 2")
        transcript = app.chat.transcript
        plain = transcript.visual_style.background
        marked = "".join(
            segment.text
            for y in range(transcript.size.height)
            for segment in transcript.render_line(y)
            if segment.text == "lamp" and segment.style and segment.style.bgcolor != plain.rich_color
        )
        assert marked == "lamplamp"


async def test_reasoning_with_a_match_unfolds() -> None:
    app = make_app(FakeEngine((THOUGHT,)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "is it?")
        assert "thought for 5 words" in screen_text(app)
        assert "well then" not in screen_text(app)
        await pilot.press("ctrl+f", *"well then")
        await until_shown(pilot, app, "1 of 1")
        assert "▸ thought" in screen_text(app)
        await pilot.press("enter")
        await until_shown(pilot, app, "▎ well then")


async def test_reasoning_folds_by_key_and_click() -> None:
    app = make_app(FakeEngine((THOUGHT,)))
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "is it?")
        await pilot.press("ctrl+up", "z")
        await until_shown(pilot, app, "▎ well then")
        assert "thought for 5 words" in under_cursor(app) or "Yes" in screen_text(app)
        await to_row(app, pilot, "thought for")
        await pilot.press("enter")
        await pilot.pause()
        assert "well then" not in screen_text(app)
        await pilot.press("i")
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "thought for" in row)
        await pilot.click(offset=(rows[y].index("thought"), y))
        await until_shown(pilot, app, "▎ well then")
        assert app.chat.prompt.has_focus
        await pilot.press("ctrl+up", "g", "z")
        await pilot.pause()
        assert "well then" not in screen_text(app)


async def test_files_are_chips_that_unfold_where_they_stand() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 12)) as pilot:
        chat = a_chat(30)
        files = Attachment("a.txt", "the fox\n" * 3), Attachment("b [bold].txt", "x\x1b[2J" * 1000)
        chat.turns[0].prompt, chat.turns[0].attachments = "compare @a.txt and it", files
        await with_chat(app, pilot, chat)
        await pilot.press("g")
        await until_shown(pilot, app, "▌ ▸ a.txt · 3 lines, 24 bytes · enter/click unfolds")
        assert "▌ ▸ b [bold].txt · 1 line, 5 kB" in screen_text(app)
        assert "the fox" not in screen_text(app)
        await pilot.press("j", "enter")
        await until_shown(pilot, app, "▌ the fox")
        assert under_cursor(app) == "▌ ▾ a.txt · 3 lines, 24 bytes · enter/click folds"
        await pilot.press("y")
        await wait_until(
            pilot, lambda: app.clipboard.startswith("compare @a.txt and it\n\nFile a.txt:\n```txt\nthe fox")
        )
        await pilot.press("ctrl+t")
        await until_shown(pilot, app, "token view")
        assert "▾ a.txt" in under_cursor(app)
        await pilot.press("j", "j", "j", "j", "z")
        await pilot.pause()
        assert under_cursor(app).startswith("▌ ▾ b [bold].txt")
        await pilot.press("]", "k", "k")
        assert under_cursor(app) == "▌ … and 1,000 more characters"
        assert "␛[2Jx" in screen_text(app)


async def test_messages_are_chosen_from_a_list() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(100, 30)) as pilot:
        await with_chat(app, pilot, a_chat(300))
        await pilot.press("m")
        await wait_until(pilot, lambda: isinstance(app.screen, MessagesScreen))
        await pilot.press(*"question 42.")
        await pilot.pause(0.1)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.screen is app.chat)
        await until_shown(pilot, app, "question 42.")
        said = app.chat.transcript.said
        assert said is not None
        assert (said.turn.prompt, said.by) == ("question 42.", "you")


async def test_letters_jump_copy_and_show(urls: list[str]) -> None:
    async with answered(STORY, (100, 30)) as (app, pilot):
        await pilot.press("ctrl+up", "f")
        await pilot.pause()
        letters = {target.kind: label for label, target in app.chat.transcript._labels.items()}
        await pilot.press(letters["code"])
        await wait_until(pilot, lambda: app.clipboard == "print('lamp')")
        await pilot.press("f", "escape", "f", letters["link"])
        await pilot.pause()
        assert "enter opens https://x.y/z" in status(app)
        assert urls == []
        await pilot.press("enter")
        await pilot.pause()
        assert urls == ["https://x.y/z"]
        await pilot.press("f", "1")
        await pilot.pause()
        assert not app.chat.transcript.labelled
        await pilot.press("f", "a")
        await pilot.pause()
        assert under_cursor(app) == "▌ hi"


async def test_a_link_is_forgotten_with_the_row_that_shows_it(urls: list[str]) -> None:
    async with answered(STORY, (100, 30)) as (app, pilot):
        await pilot.press("ctrl+up")
        await to_row(app, pilot, "lamp (here")
        await pilot.press("enter")
        await pilot.pause()
        assert "enter opens https://x.y/z" in status(app)
        await pilot.press("escape")
        app.chat.say("something else")
        await pilot.press("enter")
        await pilot.pause()
        assert urls == []
        await pilot.press("enter")
        assert urls == ["https://x.y/z"]


@pytest.mark.parametrize("url", ["https://x.y/\u202ez", "https://x.y/a b", "javascript:1", "file:///etc"])
async def test_odd_links_are_not_opened(url: str, urls: list[str]) -> None:
    async with answered(STORY, (100, 30)) as (app, _):
        for _ in range(2):
            app.chat.reading.link(url)
        assert urls == []
        assert "only plain web links" in status(app)


async def test_long_links_show_their_host_first(monkeypatch: pytest.MonkeyPatch) -> None:
    toasts: list[str] = []
    monkeypatch.setattr(SpecchatApp, "notify", lambda _, message, **__: toasts.append(message))
    async with answered(STORY, (100, 30)) as (app, pilot):
        url = "https://good.example" + "a" * 200 + "@evil.example/"
        app.chat.reading.link(url)
        await until_shown(pilot, app, "enter opens a page of evil.example:")
        assert toasts == [url]


# The editor


async def test_code_and_prompt_go_to_the_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, str]] = []

    def edit(_: object, text: str, suffix: str) -> str | None:
        opened.append((text, suffix))
        return f"{text}!" if "prompt" in text else None

    monkeypatch.setattr("specchat.tui.actions.reading.edit_text", edit)
    async with answered(STORY, (100, 30)) as (app, pilot):
        await pilot.press("ctrl+up", "o")
        await to_row(app, pilot, "print")
        await pilot.press("o", "i", *"prompt", "ctrl+l")
        assert opened == [(STORY, ".md"), ("print('lamp')", ".py"), ("prompt", ".md")]
        assert app.chat.prompt.text == "prompt!"

        def fail(*_: object) -> None:
            raise EditorError("there is no editor: set VISUAL")

        monkeypatch.setattr("specchat.tui.actions.reading.edit_text", fail)
        await pilot.press("ctrl+l")
        assert "there is no editor" in status(app)
        assert app.chat.prompt.text == "prompt!"


# Tokens


async def test_the_token_under_the_cursor_is_explained() -> None:
    async with answered(STORY, (140, 36)) as (app, pilot):
        await pilot.press("ctrl+up")
        await to_row(app, pilot, "She kept")
        await pilot.press("t")
        await until_shown(pilot, app, "· drafted here:")
        assert under_cursor(app).startswith("She kept")
        inspector = app.chat.query_one(Inspector)
        assert str(inspector.render()).startswith("“↵↵She”")
        assert app.chat.reading.has_class("-tokens")
        seen = []
        for key in ("l", "right", "h", "left", "h"):
            await pilot.press(key)
            await pilot.pause()
            seen.append(str(inspector.render()).split("”")[0])
        assert seen == ["“ kept", "“ a", "“ kept", "“↵↵She", seen[-1]]
        assert seen[-1] != "“↵↵She"
        await pilot.press("g", "h")
        await until_shown(pilot, app, "· step 1 of ")
        await pilot.press("t")
        await until_shown(pilot, app, "╭─ python")
        assert not app.chat.reading.has_class("-inspecting")


async def test_a_click_on_the_heat_opens_the_tokens_there() -> None:
    text = "\n\n".join(f"This is paragraph {n}." for n in range(60))
    async with answered(text, (100, 30)) as (app, pilot):
        await pilot.press("pageup")
        await pilot.pause()
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows[8:], 8) if "paragraph" in row)
        shown = rows[y].split("paragraph ")[1].split(".")[0]
        transcript = app.chat.transcript
        edge = transcript.region.x + transcript.scrollable_content_region.x - transcript.region.x
        await pilot.click(offset=(edge + transcript.scrollable_content_region.width - 1, y))
        await until_shown(pilot, app, "drafted here:")
        assert f"paragraph {shown}" in under_cursor(app).replace(" or so", "")


# Long chats


@pytest.mark.timed
async def test_a_chat_of_ten_thousand_messages_is_smooth() -> None:
    chat = a_chat(5000)
    app = make_app(FakeEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await loaded(app, pilot)
        app.session.chat.conversation = chat
        start = thread_time()
        app.chat.transcript.show(chat)
        app.chat.redraw()
        await until_shown(pilot, app, "answer 4999.")
        assert thread_time() - start < 1.0
        transcript = app.chat.transcript
        transcript.focus()
        await pilot.pause()
        slowest = []
        for _ in range(60):
            start = thread_time()
            transcript.move_pages(-1)
            for y in range(transcript.size.height):
                transcript.render_line(y)
            slowest.append(thread_time() - start)
            await pilot.pause(0)
        slowest.sort()
        assert slowest[30] < 0.05
        assert slowest[-4] < 0.15
        start = thread_time()
        await pilot.press("g")
        await until_shown(pilot, app, "question 0.")
        assert thread_time() - start < 1.0


async def test_every_row_is_as_wide_as_the_transcript() -> None:
    odd = (
        "漢字" * 60
        + " 👨‍👩‍👧 " * 30
        + "e\u0301\u0323" * 90
        + " שלום עולם " * 20
        + "\t" * 5
        + "ﷺ" * 20
        + "🇩🇪" * 40
        + "क्षि" * 30
    )
    blocks = (
        odd,
        f"# {odd}",
        f"- {odd}",
        f"> {odd}",
        f"```\n{odd}\n```",
        f"| {odd} | b |\n|--|--|\n| {odd} |",
        f"$${odd}$$",
    )
    text = "\n\n".join(blocks)
    app = make_app(FakeEngine((Written.of([(odd, True), (text, False)]),)))
    async with app.run_test(size=(100, 40)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, odd)
        transcript = app.chat.transcript
        for width in (100, 61, 45):
            await pilot.resize_terminal(width, 30)
            for keys in (("ctrl+t",), ("ctrl+t",), ("ctrl+up", "f"), ("f", "i")):
                await pilot.press(*keys)
                await pilot.pause()
                inside = transcript.scrollable_content_region.width
                for row in range(len(transcript.chat_rows.rows)):
                    strip = transcript._strip(row, None)
                    assert strip.cell_length == inside
                    assert sum(segment.cell_length for segment in strip) == inside


async def test_the_editor_gets_reasoning_between_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("specchat.tui.actions.reading.edit_text", lambda _, text, __: opened.append(text))
    async with answered(STORY, (100, 30)) as (app, pilot):
        reply = app.chat.session.last_reply
        assert reply is not None
        reply.restore(Written.of([("hm", True), ("Yes.", False)]))
        await pilot.press("ctrl+up", "o")
    assert opened == ["<think>\nhm\n</think>\n\nYes."]
