"""Chats go to files and come back in the app."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, ask, loaded, make_app, wait_until

from specchat.chat.store import Store
from specchat.tui.app import SpecchatApp
from tests.fake import FakeEngine

REPLY = "A fox \x1b[2Jand a lamp."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def app() -> SpecchatApp:
    return make_app(FakeEngine((REPLY,)), replace(LAUNCH, store=Store()))


async def test_a_chat_is_exported_in_both_formats_and_comes_back(folder: Path) -> None:
    first, second = app(), app()
    async with first.run_test(size=(120, 40)) as pilot:
        await loaded(first, pilot)
        await first.chat.do("export-chat", "json")
        assert not list(folder.iterdir())
        await ask(first, pilot, "Foxes?")
        key = first.session.conversation.key
        store = first.session.chat.saving.store
        await wait_until(pilot, lambda: not store.unsaved)
        await first.chat.do("export-chat", "json")
        await first.chat.do("export-chat", "md a talk.md")
        await first.chat.do("export-chat", "b.json")
        await first.chat.do("export-chat", "html x.html")
        await first.chat.do("export-chat", "y.HTM")
    names = ["a talk.md", "b.json", "specchat-1.json", "x.html", "y.HTM"]
    assert sorted(path.name for path in folder.iterdir()) == names
    for name in names[3:]:
        assert (folder / name).read_text().startswith("<!DOCTYPE html>")
    assert (folder / "b.json").read_text().startswith('{"format": "specchat"')
    async with second.run_test(size=(120, 40)) as pilot:
        await loaded(second, pilot)
        await second.chat.do("import-chats", "specchat-1.json")
        await wait_until(pilot, lambda: second.session.conversation.key == key)
        assert second.session.conversation.turns[0].reply is not None
        assert second.session.conversation.turns[0].reply.raw == REPLY
        await second.chat.do("import-chats", "a talk.md")
        await wait_until(pilot, lambda: second.session.conversation.key != key)
        assert [turn.prompt for turn in second.session.conversation.turns] == ["Foxes?"]
        await ask(second, pilot, "More?")
        assert len(second.session.conversation.turns) == 2


@pytest.mark.parametrize(
    ("argument", "written"), [("JSON", "specchat-1.json"), ("markdown", "specchat-1.md"), ("Notes", "Notes")]
)
async def test_a_format_is_known_as_users_write_it(folder: Path, argument: str, written: str) -> None:
    running = app()
    async with running.run_test(size=(120, 40)) as pilot:
        await loaded(running, pilot)
        await ask(running, pilot, "Foxes?")
        await wait_until(pilot, lambda: not running.session.chat.saving.store.unsaved)
        await running.chat.do("export-chat", argument)
    assert [path.name for path in folder.iterdir()] == [written]


async def test_no_markdown_is_written_under_the_name_of_another_format(folder: Path) -> None:
    running = app()
    async with running.run_test(size=(120, 40)) as pilot:
        await loaded(running, pilot)
        await ask(running, pilot, "Foxes?")
        await running.chat.do("export-chat", "pdf")
        assert running.chat.notice.text == "Chats are not written as pdf, but as md, html, json."
        assert running.chat.prompt.text == "/export pdf"
        running.chat.prompt.fill("")
        await running.chat.do("export-chat", "talk.PDF")
        assert running.chat.notice.text == "talk.PDF: chats are not written as pdf, but as md, html, json."
    assert not list(folder.iterdir())


async def test_no_file_is_replaced_and_trouble_is_told(folder: Path) -> None:
    (folder / "a.md").write_text("mine")
    running = app()
    async with running.run_test(size=(160, 40)) as pilot:
        await loaded(running, pilot)
        await ask(running, pilot, "Foxes?")
        await running.chat.do("export-chat", "a.md")
        assert "a.md exists already and is kept" in running.chat.notice.text
        await running.chat.do("export-chat", "no/b.md")
        assert "no/b.md cannot be written" in running.chat.notice.text
        assert running.chat.prompt.text == "/export a.md"  # what is in the box is not replaced
        for command, name in (("export", "a.md"), ("export", "md no/b.md"), ("import", "none.json")):
            running.chat.prompt.fill("")
            await pilot.press(*f"/{command} {name}", "enter")
            await wait_until(pilot, lambda command=command, name=name: running.chat.prompt.text == f"/{command} {name}")
        await wait_until(pilot, lambda: "none.json cannot be read" in running.chat.notice.text)
        await running.chat.do("import-chats", "a.md")
        await wait_until(pilot, lambda: "a.md holds no chat" in running.chat.notice.text)
    assert (folder / "a.md").read_text() == "mine"


async def test_a_chat_whose_last_prompt_has_no_reply_is_shown_and_goes_on(folder: Path) -> None:
    (folder / "open.md").write_text("## You\nhi\n## Assistant\nhello\n## You\nlost\n")
    running = app()
    async with running.run_test(size=(120, 40)) as pilot:
        await loaded(running, pilot)
        await running.chat.do("import-chats")
        await pilot.pause()
        await pilot.press(*"open.md", "enter")
        await wait_until(pilot, lambda: len(running.session.conversation.turns) == 2)
        await ask(running, pilot, "next")
        assert [turn.prompt for turn in running.session.conversation.turns] == ["hi", "next"]
