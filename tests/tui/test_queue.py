"""What is typed is never lost: queued while a reply is written, given back as it was, found again after quitting."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, ask, loaded, make_app, screen_text, wait_until
from test_chat import LONG, being_answered, status

from specchat.engine.protocol.events import Counted, Failed, Started
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.service.settings import Preferences
from specchat.tui.draft import UnsentFile, UnsentText
from tests.fake import INFO, FakeEngine

BIG = "a line of it\n" * 400


async def test_what_is_entered_during_a_reply_is_sent_when_it_has_ended() -> None:
    async with being_answered(LONG, (120, 36), 0, "count") as (app, pilot, clock):
        await pilot.press(*"second", "enter", *"third", "enter")
        await wait_until(pilot, lambda: "next: “second” and 1 more" in status(app))
        assert app.chat.prompt.text == ""

        def ended() -> bool:
            clock.now += 999
            return app.session.reply is None and not app.session.waiting

        await wait_until(pilot, ended)
        assert [turn.prompt for turn in app.session.conversation.turns] == ["count", "second", "third"]


async def test_what_waits_is_named_while_the_model_loads() -> None:
    engine = FakeEngine()
    engine.holds_loads = True
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await ask(app, pilot, "first", wait=False)
        await pilot.press(*"second", "enter")
        await wait_until(pilot, lambda: "next: “second”" in status(app))


async def test_stopping_gives_back_what_waits_before_what_is_typed() -> None:
    async with being_answered(LONG, (120, 36), 20, "word10") as (app, pilot, _):
        await pilot.press(*"second", "enter", *"more")
        await pilot.press("escape")
        await wait_until(pilot, lambda: app.session.reply is None)
        await wait_until(pilot, lambda: app.chat.prompt.text == "second\n\nmore")
        assert len(app.session.conversation.turns) == 1


async def test_leaving_the_chat_gives_back_what_waits() -> None:
    async with being_answered(LONG, (120, 36), 0, "count") as (app, pilot, _):
        await pilot.press(*"second", "enter")
        await pilot.press("alt+n")
        assert (app.chat.prompt.text, app.session.waiting) == ("second", [])


async def test_a_refused_message_comes_back_with_its_pastes_folded() -> None:
    refusal = (Started(0, 9, 0, 0, Speculation()), Failed(0, "context", "Too long."))
    app = make_app(FakeEngine((refusal,), info=replace(INFO, context=100_000)))
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.insert("look at ")
        app.chat.prompt._insert_pasted(BIG)
        app.chat.prompt.insert(" and say")
        typed, whole = app.chat.prompt.text, app.chat.prompt.prompt
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns and app.session.reply is None)
        await wait_until(pilot, lambda: "Too long." in status(app))
        assert (app.chat.prompt.text, app.chat.prompt.prompt) == (typed, whole)
        assert app.session.last_reply is None


async def test_enter_waits_for_the_count_of_a_big_paste() -> None:
    engine = FakeEngine(info=replace(INFO, context=300))
    app = make_app(engine)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt._insert_pasted(BIG)
        await pilot.press("enter")
        await wait_until(pilot, lambda: "too long" in status(app))
        assert not [request for request in engine.requests if isinstance(request, Generate)]
        assert app.chat.prompt.prompt == BIG
        engine.info = INFO
        app.session.prompt_count.counted = Counted(0, 1, 100_000)
        await pilot.press("enter")
        await wait_until(pilot, lambda: app.session.conversation.turns)


async def test_a_reply_that_was_cut_is_continued_as_another_version() -> None:
    app = make_app(
        FakeEngine(("one two three",)), replace(LAUNCH, preferences=Preferences(limits=Limits(max_tokens=5)))
    )
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        await app.chat.do("continue")
        assert "no reply to continue" in status(app)
        await ask(app, pilot, "count")
        await app.chat.do("continue")
        assert "came to its end" in status(app)
        reply = app.session.last_reply
        assert reply is not None
        reply.end = replace(reply.end, reason="length")
        await app.chat.do("continue")
        await wait_until(pilot, lambda: app.session.last_reply is not reply and app.session.reply is None)
        longer = app.session.last_reply
        assert longer is not None
        assert longer.raw == "one two threeone two three"  # the engine's own words follow what was there
        assert len(app.session.conversation.turns[0].replies) == 2


async def test_a_draft_is_found_again_after_quitting(tmp_path: Path) -> None:
    launch = replace(LAUNCH, unsent=tmp_path / "state" / "draft.json")
    app = make_app(FakeEngine(), launch)
    async with app.run_test(size=(120, 36)) as pilot:
        await loaded(app, pilot)
        app.chat.prompt.insert("half a thought ")
        app.chat.prompt._insert_pasted(BIG)
        typed, whole = app.chat.prompt.text, app.chat.prompt.prompt
        await pilot.press("ctrl+q")
    again = make_app(FakeEngine(), launch)
    async with again.run_test(size=(120, 36)) as pilot:
        await wait_until(pilot, lambda: again.chat.prompt.text == typed)
        assert again.chat.prompt.prompt == whole
        assert "half a thought" in screen_text(again)
        again.chat.prompt.load_text("")
        await pilot.press("ctrl+q")
    assert list((tmp_path / "state").iterdir()) == []


async def test_what_waits_and_what_is_typed_is_kept_before_the_app_ends(tmp_path: Path) -> None:
    """As after `kill -9`: nobody leaves, and the lock goes with the process."""
    launch = replace(LAUNCH, unsent=tmp_path / "draft.json")
    async with being_answered(LONG, (120, 36), 20, "word10", launch) as (app, pilot, _):
        await pilot.press(*"second", "enter", *"more")
        await wait_until(pilot, lambda: _kept(tmp_path) == ["second\n\nmore"])
        assert UnsentFile(launch.unsent).take_left() == UnsentText()  # another window leaves it to this one
        app.chat.queue._file.keep(UnsentText("second"), leaving=True)
        assert UnsentFile(launch.unsent).take_left() == UnsentText("second")


def _kept(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["text"] for path in folder.glob("draft*.json")]


def test_what_two_windows_left_comes_back_together(tmp_path: Path) -> None:
    for draft in (UnsentText("[paste 1: a]", {1: "one"}), UnsentText("two [paste 1: b]", {1: "two"})):
        UnsentFile(tmp_path / "draft.json").keep(draft, leaving=True)
    found = UnsentFile(tmp_path / "draft.json").take_left()
    assert found.text == "[paste 1: a]\n\ntwo [paste 2: b]"
    assert found.pastes == {1: "one", 2: "two"}
    assert list(tmp_path.iterdir()) == []


def test_without_locks_a_draft_is_kept_on_leaving_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where another window could not see that this one runs."""
    monkeypatch.setattr("specchat.tui.draft.fcntl", None)
    file = UnsentFile(tmp_path / "draft.json")
    file.keep(UnsentText("words"))
    assert _kept(tmp_path) == []
    file.keep(UnsentText("words"), leaving=True)
    assert UnsentFile(tmp_path / "draft.json").take_left() == UnsentText("words")


def test_a_shorter_draft_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    file = UnsentFile(tmp_path / "draft.json")
    for words in ("a long sentence", "short"):
        file.keep(UnsentText(words))
        assert _kept(tmp_path) == [words]
    file.keep(UnsentText())
    assert _kept(tmp_path) == []


def test_a_draft_that_cannot_be_kept_or_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    UnsentFile(tmp_path / "file" / "draft.json").keep(UnsentText("words"), leaving=True)
    UnsentFile(None).keep(UnsentText("words"), leaving=True)
    for content in ("", "[]", "{}", '{"text": 1, "pastes": [2]}', '{"text": "a", "pastes": {"x": 1}}'):
        (tmp_path / "draft.json").write_text(content)
        assert UnsentFile(tmp_path / "draft.json").take_left() == UnsentText()
