"""The list of chats, branches and reopening, through the keyboard."""

import re
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from conftest import LAUNCH, ask, flush, loaded, make_app, screen_text, wait_until
from test_chat import status, until_shown
from textual import events
from textual.widgets import Input

from specchat.chat.rows import ChatEntry
from specchat.chat.search import Hit
from specchat.chat.store import Store
from specchat.engine.protocol.requests import Load
from specchat.tui.actions.models import use_pair
from specchat.tui.actions.speculation import use_strategy
from specchat.tui.app import SpecchatApp
from specchat.tui.chat_list import by_date, of_hits, period
from specchat.tui.screens.ask import AskScreen
from specchat.tui.widgets.sidebar import Search
from tests.fake import FakeEngine
from tests.service.made import Clock

COUNTED = "one two three four five six seven eight nine ten"


def titles(app: SpecchatApp) -> list[str]:
    """The first lines of the list, without times."""
    lines = [(row, row.content.plain.split("\n")[0]) for row in app.chat.sidebar._rows]
    return [line if row.key is None else line.rpartition(" ")[0].rstrip() for row, line in lines]


def entry(key: str, updated: datetime, *, pinned: bool = False) -> ChatEntry:
    return ChatEntry(key, f"chat {key}", pinned, updated.timestamp(), 2, "Once upon a time there was a fox.")


NOW = datetime(2026, 3, 10, 14, 5)


def test_chats_are_grouped_by_date() -> None:
    now = datetime(2026, 3, 10, 0, 30)
    entries = [
        entry("a", datetime(2025, 1, 1), pinned=True),
        entry("b", datetime(2026, 3, 10, 0, 10)),
        entry("c", datetime(2026, 3, 9, 23, 50)),
        entry("d", datetime(2026, 3, 5)),
        replace(entry("e", datetime(2026, 2, 5)), preview=""),
    ]
    rows = [(row.content.plain, row.key) for row in by_date(entries, now, 24, "c", ["c", "d"])]
    assert rows == [
        ("pinned", None), ("  chat a        Jan 2025\n  Once upon a time ther…", "a"),
        ("today", None), ("  chat b           00:10\n  Once upon a time ther…", "b"),
        ("yesterday", None), ("● chat c             Mon\n  Once upon a time ther…", "c"),
        ("this week", None), ("… chat d             Thu\n  Once upon a time ther…", "d"),
        ("February 2026", None), ("  chat e           5 Feb", "e"),
    ]  # fmt: skip
    assert period(datetime(2026, 3, 11), now) == "today"


def test_what_was_found_shows_where() -> None:
    hits = [Hit("k", "Foxes [b]", 0.0, None, "title", "Foxes"), Hit("k", "Foxes", 0.0, "m", "user", "a fox", ((2, 5),))]
    hits += [Hit("k", "Foxes", 0.0, "n", "assistant", "foxes"), Hit("l", "Lamps", 0.0, None, "title", "Lamps")]
    rows = list(of_hits(hits, NOW, 24))
    assert [row.content.plain for row in rows] == [
        "  Foxes [b]     Jan 1970\n  you: a fox +1 more",
        "  Lamps         Jan 1970",
    ]
    assert [row.message for row in rows] == ["m", None]
    assert any(rows[0].content.plain[span.start : span.end] == "fox" for span in rows[0].content.spans)
    assert [row.content.plain for row in of_hits([], NOW, 24)] == ["nothing found"]


def test_what_was_found_is_seen_in_a_narrow_list() -> None:
    snippet = "Once upon a time there was a patient fox with a lamp"
    at = snippet.index("fox")
    (row,) = of_hits([Hit("k", "Story", 0.0, "m", "assistant", snippet, ((at, at + 3), (47, 51)))], NOW, 28)
    assert "fox" in row.content.plain.split("\n")[1][:28]
    bold = [row.content.plain[span.start : span.end] for span in row.content.spans if "bold" in str(span.style)]
    assert bold[0] == "fox"


async def test_a_reply_goes_on_while_another_chat_is_read_and_the_next_waits_for_it() -> None:
    clock = Clock()
    engine = FakeEngine((COUNTED, "Second."), tokens_per_second=10, clock=clock)
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+b")
        app.chat.prompt.focus()
        await ask(app, pilot, "count", wait=False)
        clock.now = 0.7
        await wait_until(pilot, lambda: "three" in screen_text(app))
        await pilot.press("alt+n")
        await wait_until(pilot, lambda: "writing in “count”" in screen_text(app))
        assert titles(app)[-1].startswith("… ")
        await ask(app, pilot, "and then", wait=False)
        await wait_until(pilot, lambda: "to be answered; esc stops" in screen_text(app))
        clock.now = 9
        await wait_until(pilot, lambda: "“Count” is answered" in screen_text(app))
        clock.now = 20
        await wait_until(pilot, lambda: app.session.reply is None)
        assert app.session.last_reply is not None
        assert app.session.last_reply.text == "Second."
        await wait_until(pilot, lambda: not any(title.startswith("… ") for title in titles(app)))


async def test_a_reply_that_waits_for_another_says_so_and_stops_at_once() -> None:
    clock = Clock()
    app = make_app(FakeEngine((COUNTED,), tokens_per_second=10, clock=clock))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        await pilot.press("alt+n")
        await ask(app, pilot, "and then", wait=False)
        await until_shown(pilot, app, "waiting for another chat to be answered")
        await pilot.press("escape")
        await wait_until(pilot, lambda: len(app.session.replies.all) == 1)
        app.chat.say("")
        await wait_until(pilot, lambda: "writing in “count”" in status(app))
        assert "tok/s" not in app.chat.transcript.text
        await pilot.press("ctrl+b", "end", "enter")
        await wait_until(pilot, lambda: "writing; esc stops" in status(app))
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: "stopping" not in status(app))


async def test_the_marked_chat_stays_marked_when_the_list_takes_another_order() -> None:
    clock = Clock()
    app = make_app(FakeEngine(("First.", COUNTED), tokens_per_second=10, clock=clock))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "first", wait=False)
        clock.now = 9
        await wait_until(pilot, lambda: not app.session.replies)
        await pilot.press("alt+n")
        await ask(app, pilot, "count", wait=False)
        await pilot.press("alt+n", "ctrl+b", "end")
        await wait_until(pilot, lambda: titles(app) == ["today", "… count", "  First"])
        first = app.chat.sidebar.marked
        await pilot.press("p")
        await wait_until(pilot, lambda: titles(app)[0] == "pinned")
        assert app.chat.sidebar.marked == first
        await pilot.press("p")
        await wait_until(pilot, lambda: titles(app)[0] == "today")
        assert app.chat.sidebar.marked == first
        await pilot.press("up")
        await pilot.press("d")
        await wait_until(pilot, lambda: titles(app) == ["today", "  First"])
        assert app.chat.sidebar.marked == first


async def test_what_is_being_written_stays_in_view_when_another_version_is_looked_for() -> None:
    clock = Clock()
    app = make_app(FakeEngine((COUNTED,), tokens_per_second=10, clock=clock))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        clock.now = 99
        await wait_until(pilot, lambda: app.session.reply is None)
        first = app.session.last_reply
        await pilot.press("alt+r", "enter")
        running = app.session.reply
        assert first is not None
        assert running is not None
        app.chat.chats.open(app.session.conversation.key, first.key)
        assert app.session.conversation.turns[0].reply is running
        clock.now = 300
        await wait_until(pilot, lambda: app.session.reply is None)
        app.chat.chats.open(app.session.conversation.key, first.key)
        assert app.session.conversation.turns[0].reply is first


async def test_restarting_the_engine_leaves_no_chat_marked_as_answered() -> None:
    clock = Clock()
    engine = FakeEngine((COUNTED,), tokens_per_second=10, clock=clock)
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        await pilot.press("alt+n")
        await ask(app, pilot, "and then", wait=False)
        await pilot.press("ctrl+b")
        await until_shown(pilot, app, "r rename")
        await pilot.press("end", "enter")
        await until_shown(pilot, app, "ctrl+o settings")
        await wait_until(pilot, lambda: "writing; esc stops" in status(app))
        assert any(title.startswith("… ") for title in titles(app))
        await app.chat.do("duplicate-chat")
        assert "once that has ended" in status(app)
        engine.send = engine.requests.append  # type: ignore[method-assign]
        app.chat.prompt.focus()
        await pilot.press("escape")
        del engine.send
        await pilot.press("escape")
        await wait_until(pilot, lambda: len(app.session.replies.all) == 1)

        def ended() -> bool:
            clock.now += 9  # the other reply begins when the engine is there again
            return not app.session.replies

        await wait_until(pilot, ended)
        await wait_until(pilot, lambda: not any(title.startswith("… ") for title in titles(app)))


async def test_chats_are_listed_opened_renamed_pinned_deleted_and_brought_back() -> None:
    app = make_app(FakeEngine(("Foxes are red.", "Owls are grey.", "Copied.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "Tell me about foxes")
        await pilot.press("alt+n")
        await ask(app, pilot, "Tell me about owls")
        await pilot.press("ctrl+b")
        await wait_until(pilot, lambda: titles(app) == ["today", "● Owls", "  Foxes"])
        await pilot.press("down", "enter")
        await until_shown(pilot, app, "Foxes are red.")
        assert app.chat.prompt.has_focus
        await pilot.press("ctrl+b", "ctrl+b", "down", "p")
        await wait_until(pilot, lambda: titles(app)[0] == "pinned")
        await pilot.press("home", "r")
        await wait_until(pilot, lambda: isinstance(app.screen, AskScreen))
        app.screen.query_one(Input).value = "[b]My[/b] chat"
        await pilot.press("enter")
        await wait_until(pilot, lambda: any("[b]My[/b] chat" in title for title in titles(app)))
        await pilot.press("d")
        await wait_until(pilot, lambda: not any("My" in title for title in titles(app)))
        await pilot.press("u")
        await wait_until(pilot, lambda: any("My" in title for title in titles(app)))
        await pilot.press("escape")
        assert app.chat.prompt.has_focus
        assert not app.chat.has_class("-chats")
        assert app.chat.sidebar.disabled


async def test_a_copy_is_opened_and_said_to_be_one() -> None:
    app = make_app(FakeEngine(("Foxes are red.",)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "Tell me about foxes")
        before = app.session.conversation.key
        await app.chat.do("duplicate-chat")
        await wait_until(pilot, lambda: "this is the copy" in status(app))
        assert app.session.conversation.key != before
        assert app.session.conversation.title == "Foxes (copy)"


async def test_what_is_looked_for_in_a_chat_is_not_looked_for_in_the_next() -> None:
    app = make_app(FakeEngine(("Foxes are red.", "Owls are grey.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "foxes")
        await pilot.press("alt+n")
        await ask(app, pilot, "owls")
        await pilot.press("ctrl+f", *"owl")
        await until_shown(pilot, app, "1 of 2")
        await pilot.press("ctrl+b", "end", "enter")
        await until_shown(pilot, app, "Foxes are red.")
        assert "1 of 2" not in screen_text(app)
        assert app.chat.prompt.has_focus
        await pilot.press("ctrl+f", *"foxes", "enter")
        await until_shown(pilot, app, "1 of 2")
        await pilot.press("alt+n", "x")
        assert app.chat.prompt.text == "x"
        assert not app.chat.reading.has_class("-finding")


async def test_choosing_another_pair_tells_which_reply_it_stops() -> None:
    engine = FakeEngine((COUNTED,), tokens_per_second=10, clock=Clock())
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "count", wait=False)
        await pilot.press("alt+n")
        use_pair(app.chat, app.chat.catalog.pairs[1])
        assert "the reply in “count” is stopped" in status(app)
        await wait_until(pilot, lambda: not app.session.replies)
        assert "is answered" not in status(app)


async def test_in_a_narrow_window_the_list_gives_way_to_what_has_the_focus() -> None:
    app = make_app(FakeEngine(("Foxes are red.",)))
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await pilot.press("ctrl+b", "alt+n")
        await ask(app, pilot, "foxes")
        await until_shown(pilot, app, "Foxes are red.")
        await pilot.press("ctrl+b", "tab")
        await wait_until(pilot, lambda: not app.chat.has_class("-chats"))
        await pilot.resize_terminal(120, 36)
        await pilot.press("ctrl+b")
        app.chat.prompt.focus()
        await pilot.pause()
        assert app.chat.has_class("-chats")
        await pilot.resize_terminal(80, 24)
        await until_shown(pilot, app, "Foxes are red.")


async def test_deleting_the_open_chat_leaves_an_empty_one() -> None:
    app = make_app(FakeEngine())
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await app.chat.do("delete-chat")
        assert "this chat is still empty" in status(app)
        await ask(app, pilot, "hello")
        await app.chat.do("delete-chat")
        await pilot.pause()
        assert not app.session.conversation.turns
        assert "undo" in status(app)


async def test_search_finds_a_message_and_opens_its_branch() -> None:
    app = make_app(FakeEngine(("The first answer is xylophone.", "The second one is drum.")))
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "which instrument")
        await pilot.press("alt+r", "enter")
        await wait_until(pilot, lambda: "drum" in app.chat.transcript.text)
        await pilot.press("alt+n", "f9", *"xylo")
        await until_shown(pilot, app, "xylophone")
        assert isinstance(app.focused, Search)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "xylophone" in app.chat.transcript.text)
        assert "reply 1 of 2" in screen_text(app)
        await pilot.press("f8")
        await until_shown(pilot, app, "drum")
        await pilot.press("f8")
        assert "last of 2 versions" in status(app)


async def test_editing_a_prompt_makes_a_branch_and_escape_leaves_it() -> None:
    app = make_app(FakeEngine(("One.", "Two.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await pilot.press("f5")
        assert "no prompt to edit" in status(app)
        await ask(app, pilot, "question")
        await pilot.press("f5")
        await pilot.pause()
        assert app.chat.prompt.text == "question"
        assert "esc gives it up" in status(app)
        await pilot.press("escape")
        assert app.chat.prompt.text == ""
        await pilot.press("f5", "?", "enter")
        await until_shown(pilot, app, "Two.")
        assert "prompt 2 of 2" in screen_text(app)
        await pilot.press("f7")
        await until_shown(pilot, app, "One.")


@pytest.mark.parametrize("keys", [["escape"], ["ctrl+c"], ["enter"]])
async def test_a_draft_comes_back_when_editing_an_earlier_prompt_ends(keys: list[str]) -> None:
    app = make_app(FakeEngine(("One.", "Two.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "question")
        app.chat.prompt.insert("a draft ")
        app.chat.prompt.post_message(events.Paste("line\n" * 80))
        await pilot.pause()
        draft = app.chat.prompt.prompt
        await pilot.press("f5", "?", "f5")
        assert app.chat.prompt.text == "question?"
        assert app.chat.queue.all().text.startswith("a draft [paste 1")
        await pilot.press(*keys)
        await wait_until(pilot, lambda: app.chat.prompt.prompt == draft)
        assert app.session.chat.editing is None


async def test_a_command_leaves_the_draft_aside_while_a_prompt_is_edited() -> None:
    app = make_app(FakeEngine(("One.", "Two.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "question")
        app.chat.prompt.insert("a draft")
        await pilot.press("f5")
        app.chat.prompt.fill("/seed 3")
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.settings.seed == 3)
        assert app.chat.prompt.text == ""
        await pilot.press("f5", "escape")
        assert app.chat.prompt.text == "a draft"


async def test_a_chat_of_another_run_reopens_with_its_pair(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    launch = replace(LAUNCH, store=store)
    first = make_app(FakeEngine(("Saved.",)), launch)
    async with first.run_test(size=(120, 36)) as pilot:
        await loaded(first, pilot)
        use_pair(first.chat, first.chat.catalog.pairs[1])
        await wait_until(pilot, lambda: first.session.loaded.info is not None)
        use_strategy(first.chat, "lookup")
        await ask(first, pilot, "hello")
    engine = FakeEngine(("Again.",))
    second = make_app(engine, launch)
    async with second.run_test(size=(120, 36)) as pilot:
        await loaded(second, pilot)
        await pilot.press("ctrl+b", "enter")
        await until_shown(pilot, second, "Saved.")
        assert "Qwen3 8B + 0.6B, loaded when you write" in screen_text(second)
        assert second.session.loaded.pair is second.chat.catalog.pairs[0]
        await pilot.press("m")
        await wait_until(pilot, lambda: second.session.loaded.pair is second.chat.catalog.pairs[1])
        await ask(second, pilot, "ore")
        assert second.session.settings.strategy == "lookup"
        assert [turn.prompt for turn in second.session.conversation.turns] == ["hello", "more"]
    third = make_app(FakeEngine(("Better.",)), replace(launch, chat=store.chats()[0].key))
    async with third.run_test(size=(120, 36)) as pilot:
        await loaded(third, pilot)
        await pilot.press("alt+r", "enter")
        await until_shown(pilot, third, "Better.")
        assert third.session.last_reply is not None
        assert third.session.last_reply.name == "Qwen3 8B + 0.6B"
    store.close()


async def test_a_pair_that_cannot_be_loaded_is_tried_again_only_to_answer(tmp_path: Path) -> None:
    engine, store = FakeEngine(("Saved.",)), Store(tmp_path / "chats.db")
    app = make_app(engine, replace(LAUNCH, store=store))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "hello")
        app.session.chat_pair = "big"
        for tries, keys in enumerate([("m", "o", "r", "e"), ("enter",), ("enter",)], 1):
            engine.fail_load("model", "There is no folder /models/big.")
            await pilot.press(*keys)
            so_far = ["demo", *["big", "demo"] * tries]
            await wait_until(pilot, partial(tried, app, engine, so_far))
            await pilot.press("!", "backspace")
            await pilot.pause(0.1)
            assert tried(app, engine, so_far)
    store.close()


def tried(app: SpecchatApp, engine: FakeEngine, pairs: list[str]) -> bool:
    """True once these were to be loaded, and the last one is."""
    loads = [request.pair.id for request in engine.requests if isinstance(request, Load)]
    return loads == pairs and app.session.loaded.info is not None


async def test_a_chat_opens_where_it_was_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "chats.db")
    launch = replace(LAUNCH, store=store)
    text = "\n\n".join(f"Paragraph {n} of them." for n in range(100))
    first = make_app(FakeEngine((text,)), launch)
    async with first.run_test(size=(120, 30)) as pilot:
        await loaded(first, pilot)
        await ask(first, pilot, "long")
        for _ in range(4):
            await pilot.press("pageup")
        await pilot.pause()
        top = next(row for row in screen_text(first).split("\n")[2:] if "Paragraph" in row).split()[1]
        await pilot.press("ctrl+q")
    second = make_app(FakeEngine(), replace(launch, chat=store.chats()[0].key))
    async with second.run_test(size=(120, 30)) as pilot:
        await loaded(second, pilot)
        await until_shown(pilot, second, f"Paragraph {top} ")
        assert not second.chat.transcript.following
        shown = next(row for row in screen_text(second).split("\n")[2:] if "Paragraph" in row).split()[1]
        assert abs(int(shown) - int(top)) <= 1
    store.close()


async def test_the_prompt_under_the_cursor_is_edited_and_answered_again() -> None:
    app = make_app(FakeEngine(("One.", "Two.", "Three.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "first")
        await ask(app, pilot, "second")
        await pilot.press("ctrl+up", "g", "e")
        await wait_until(pilot, lambda: app.chat.prompt.text == "first")
        await pilot.press("escape", "ctrl+up", "g", "r")
        await wait_until(pilot, lambda: "Three." in app.chat.transcript.text)
        assert [turn.prompt for turn in app.session.conversation.turns] == ["first"]
        await pilot.press("ctrl+up", "g", "<")
        await wait_until(pilot, lambda: "Two." in app.chat.transcript.text)


async def test_the_list_tells_time_and_preview_and_one_enter_opens_what_is_found() -> None:
    app = make_app(FakeEngine(("A lamp gives light. A lamp is warm.", "Owls fly.")))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await ask(app, pilot, "What is the lamp for, and who lights it")
        key = app.session.conversation.key
        await pilot.press("alt+n")
        await ask(app, pilot, "owls")
        flush(app.session.chat.saving.store)
        await pilot.press("ctrl+b")
        await wait_until(pilot, lambda: re.search(r"\d\d:\d\d", screen_text(app)))
        assert "A lamp gives light." in screen_text(app)
        assert "What is the lamp for, and w" in screen_text(app)  # 24 characters at 120 columns were too few
        await pilot.press("slash", *"lamp")
        await wait_until(pilot, lambda: "+1" in screen_text(app))  # in a prompt and a reply of one chat
        assert len(app.chat.sidebar._rows) == 1
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.key == key)
