"""Pictures in the app: named in a prompt, refused where the model reads none, sent, and drawn."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, flush, wait_until
from test_entry import asked, choices, running, status, write
from textual import events

from specchat.attachments.files import Attachment
from specchat.attachments.pictures import attached
from specchat.chat import sql
from specchat.chat.store import Store
from specchat.chat.tree import Conversation
from specchat.engine.pictures.decode import opened
from specchat.engine.protocol.options import Picture
from specchat.tui.text import pictures
from specchat.tui.text.pictures import ROWS, UNFOLDED_ROWS, drawing
from tests.chat.conftest import answer
from tests.drawn import drawn
from tests.fake import INFO, FakeEngine

SEEING = replace(INFO, sees=True)
PICTURE = attached(drawn("PNG", (400, 200)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fox.png").write_bytes(drawn())
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_one_goes_along_and_is_drawn(folder: Path) -> None:
    del folder
    engine = FakeEngine(info=SEEING)
    async with running(engine) as (app, pilot):
        await write(app, pilot, "what is @fox.png here")
        await wait_until(pilot, lambda: app.chat.files == "1 picture")
        await write(app, pilot, "", "enter")
        await wait_until(pilot, lambda: bool(app.session.conversation.turns) and app.session.reply is None)
        assert asked(engine).messages[-1].pictures == (Picture(drawn()),)
        rows = [line.content.plain for line, _ in app.chat.transcript.chat_rows.rows]
        assert any("fox.png · PNG 40 × 20 · enter/click enlarges" in row for row in rows)
        assert sum("▀▀▀▀" in row for row in rows) == ROWS


async def test_a_model_that_reads_none_is_not_sent_one(folder: Path) -> None:
    del folder
    engine = FakeEngine()
    async with running(engine) as (app, pilot):
        await write(app, pilot, "what is @fox.png here", "enter")
        await wait_until(pilot, lambda: "reads no pictures: take them out" in status(app))
        assert app.chat.prompt.text == "what is @fox.png here"
        assert not app.session.conversation.turns


async def test_one_dropped_on_the_terminal_is_named(folder: Path) -> None:
    (folder / "my fox.jpg").write_bytes(drawn("JPEG"))
    async with running(FakeEngine(info=SEEING)) as (app, pilot):
        app.post_message(events.Paste(f"{folder}/my\\ fox.jpg"))
        app.post_message(events.Paste(f"file://{folder}/fox.png\n"))
        await wait_until(pilot, lambda: app.chat.files == "2 pictures")
        assert app.chat.prompt.text == '@"my fox.jpg" @fox.png '


async def test_they_are_offered_where_a_file_is_named(folder: Path) -> None:
    del folder
    async with running(FakeEngine(info=SEEING)) as (app, pilot):
        await write(app, pilot, "@fo")
        await wait_until(pilot, lambda: choices(app) == ["@fox.png "])


async def test_one_of_the_clipboard_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[bytes | None] = [drawn()]
    monkeypatch.setattr("specchat.clipboard.picture", lambda _: copied[-1])
    monkeypatch.setenv("HOME", str(tmp_path))
    pasted = tmp_path / "cache" / "pasted"
    pasted.mkdir(parents=True)
    old = pasted / "old.png"
    old.touch()
    os.utime(old, (0, 0))
    async with running(FakeEngine(info=SEEING), replace(LAUNCH, pasted=pasted)) as (app, pilot):
        await write(app, pilot, "what is", "ctrl+v")
        await wait_until(pilot, lambda: app.chat.files == "1 picture")
        (file,) = pasted.iterdir()
        assert app.chat.prompt.text == f"what is @~/cache/pasted/{file.name} "
        assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (drawn(), 0o600)
        for nothing, words in ((None, "install wl-clipboard or xclip"), (b"", "the clipboard has no picture")):
            copied.append(nothing)
            await write(app, pilot, "", "ctrl+v")
            await wait_until(pilot, lambda words=words: words in status(app))
        app.copy_to_clipboard("a fox")
        await write(app, pilot, "", "ctrl+v")
        await wait_until(pilot, lambda: app.chat.prompt.text.endswith(".png a fox"))


async def test_a_chat_of_many_opens_with_those_near_the_view_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, chat = Store(tmp_path / "chats.db"), Conversation()
    for number in range(200):
        picture = attached(drawn("JPEG", (80 + number, 40)))
        turn = chat.ask(f"picture {number}", (Attachment("a.jpg", picture=picture),))
        store.add_turn(chat, turn, {})
        store.save_reply(chat, answer(chat, turn, "Red."))
    store.save_chat(chat, {})
    flush(store)
    looked_at: list[bytes] = []
    monkeypatch.setattr(pictures, "opened", lambda data: (looked_at.append(data), opened(data))[1])
    monkeypatch.setattr(sql, "picture", lambda *_: pytest.fail("a whole picture was read"))
    async with running(FakeEngine(info=SEEING), replace(LAUNCH, store=store, chat=chat.key)) as (app, pilot):
        await wait_until(pilot, lambda: len(app.session.conversation.turns) == 200)
        await wait_until(pilot, lambda: app.chat.transcript.chat_rows.rows)
        assert 1 < len(looked_at) < 50


@pytest.mark.parametrize(
    ("unfolded", "width", "rows", "columns"),
    [
        (False, 100, ROWS, 4 * ROWS),
        (True, 40, 10, 40),
        (True, 200, 20, 80),
        (True, 1, 1, 1),
    ],
)
def test_it_keeps_its_form(unfolded: bool, width: int, rows: int, columns: int) -> None:
    drawn = drawing(PICTURE, width, unfolded=unfolded).rows
    assert (len(drawn), drawn[0].cell_length) == (rows, columns)
    assert len(drawn) <= UNFOLDED_ROWS


def test_its_colours_are_there() -> None:
    (first, *_) = drawing(PICTURE, 100, unfolded=False).rows
    colours = [str(span.style) for span in first.spans]
    assert [colours[0][:5], colours[-1][:5]] == ["rgb(2", "rgb(0"]


@pytest.mark.parametrize("small", [b"nothing", drawn("JPEG", (400, 200))], ids=["broken", "large"])
def test_what_cannot_be_drawn_is_left_out(small: bytes) -> None:
    assert drawing(replace(PICTURE, small=small), 80, unfolded=False).rows == ()
