"""Code of a reply: shown, run after a yes, its output named in the next prompt."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LAUNCH, screen_text, wait_until
from test_entry import running, status, write

from specchat.sandbox import running as sandbox
from specchat.sandbox.running import Ran, SandboxError
from specchat.tui.screens.run import RunScreen
from tests.fake import FakeEngine

REPLY = ("Two:\n\n```rust\nfn main() {}\n```\n\n```python\nprint(2 + 3)\n```\n",)


async def test_it_runs_after_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str]] = []

    def run(language: str, code: str) -> Ran:
        ran.append((language, code))
        if len(ran) > 1:
            raise SandboxError("install bubblewrap")
        return Ran("5\n", "exit code 0, 0.1 seconds")

    monkeypatch.setattr(sandbox, "run", run)
    async with running(FakeEngine(REPLY), replace(LAUNCH, pasted=tmp_path / "pasted")) as (app, pilot):
        await write(app, pilot, "/run", "enter")
        await wait_until(pilot, lambda: "there is no code block here" in status(app))
        await write(app, pilot, "add", "enter")
        await wait_until(pilot, lambda: bool(app.session.conversation.turns) and app.session.reply is None)
        for key in ("escape", "enter", "y"):
            assert ran == []
            await write(app, pilot, "/run", "enter")
            await wait_until(pilot, lambda: isinstance(app.screen, RunScreen))
            await wait_until(pilot, lambda: "print(2 + 3)" in screen_text(app))
            assert "without a network" in screen_text(app)
            await pilot.press(key)
            if key == "enter":
                await pilot.press("escape")
            await wait_until(pilot, lambda: app.screen is app.chat)
        await wait_until(pilot, lambda: app.chat.files.startswith("1 file"))
        (file,) = (tmp_path / "pasted").iterdir()
        assert (ran, app.chat.prompt.text) == ([("python", "print(2 + 3)")], f"@{file} ")
        assert file.read_text() == "5\n(exit code 0, 0.1 seconds)\n"
        app.chat.prompt.take()
        await write(app, pilot, "/run", "enter", "y")
        await wait_until(pilot, lambda: "install bubblewrap" in status(app))


async def test_the_block_under_the_cursor_is_meant() -> None:
    async with running(FakeEngine(REPLY)) as (app, pilot):
        await write(app, pilot, "add", "enter")
        await wait_until(pilot, lambda: bool(app.session.conversation.turns) and app.session.reply is None)
        await pilot.press("ctrl+up", "g")
        await write(app, pilot, "", "x")
        assert "there is no code block here" in status(app)
        while (line := app.chat.transcript.line) is None or line.code is None:
            await pilot.press("j")
        await pilot.press("x")
        await wait_until(pilot, lambda: "this block is rust" in status(app))
