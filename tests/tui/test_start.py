"""What the app may import, and how fast its first frame is there."""

import os
import pty
import select
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
import sheets
from conftest import make_app
from textual.css import stylesheet
from textual.dom import DOMNode
from textual.widget import Widget

from tests.fake import FakeEngine

ROOT = Path(__file__).parents[2]


def test_the_app_imports_no_model_code() -> None:
    code = (
        "import sys, specchat.tui.app, specchat.tui.screens.settings; early = 'pydantic' in sys.modules;"
        "import specchat.tui.screens.models;"  # which reads what others wrote
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'numpy', 'pygments', 'markdown_it')"
        " if early or m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


OPENED_LATER = {
    "specchat.chat.exporting",
    "specchat.chat.importing",
    "specchat.chat.json_format",
    "specchat.chat.markdown",
    "specchat.chat.search",
    "specchat.chat.titles",
    "specchat.clipboard",
    "specchat.tui.screens.palette",
    "specchat.tui.composing.files",
    "specchat.tui.composing.listing",
    "specchat.insight",
    "specchat.service.repetition",
    "specchat.tui.text.code",
    "specchat.tui.text.markdown",
    "specchat.tui.text.turn",
}


MOST = 236
"""Modules of specchat that the first frame takes; each is a quarter of a millisecond or more."""
STARTED = "import sys, specchat.cli.app, specchat.cli.prepare, specchat.tui.app;"


def started(code: str) -> set[str]:
    """The words that `code` prints where all is imported that the first frame needs."""
    command = [sys.executable, "-c", STARTED + code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split())


def test_the_first_window_imports_nothing_that_is_opened_later() -> None:
    imported = started("print(*sys.modules)")
    assert OPENED_LATER & imported == set()
    ours = [name for name in imported if name.startswith("specchat.")]
    assert len(ours) <= MOST, "Import later what the first frame does without, or raise the number with a reason."
    screens = {name.rpartition(".")[2] for name in imported if name.startswith("specchat.tui.screens.")}
    assert screens == {"chat", "chats", "completer", "composer", "feed", "permissions", "queue", "window"}


def test_dataclasses_of_the_first_window_are_written_when_they_are_used() -> None:
    found = started(
        "print(*{kind.__module__ for name, module in list(sys.modules.items()) if name.startswith('specchat.')"
        " for kind in vars(module).values() if isinstance(kind, type) and kind.__module__.startswith('specchat.')"
        " and '__slots__' not in vars(kind) and '__dataclass_params__' in vars(kind)"
        " and kind.__dataclass_params__.init})"
    )
    assert found == set(), f"Import `dataclass` from specchat.dataclass, not from dataclasses, in {sorted(found)}."


def test_what_is_opened_later_is_there() -> None:
    assert all(find_spec(name) for name in OPENED_LATER)


def test_cleaning_text_needs_no_app() -> None:
    code = "import sys, specchat.clean; print([m for m in sys.modules if m.startswith(('textual', 'specchat.tui'))])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_the_first_frame_is_drawn_soon() -> None:
    """From process start to the prompt on a terminal; the bound is loose because test machines are busy."""
    code = (
        "import sys; sys.path.insert(0, 'tests/tui');"
        "from conftest import make_app; from tests.fake import FakeEngine; make_app(FakeEngine()).run()"
    )
    leader, follower = pty.openpty()
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(follower)
    seen = b""
    try:
        while b"ask something" not in seen.replace(b"\x1b[0m", b"") and b"sk something" not in seen:
            assert time.monotonic() - begin < 60, seen[-2000:]
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


async def test_styles_are_read_once_before_the_first_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()
    parse = stylesheet.parse

    def counting(scope: str, css: str, *rest: object, **options: object) -> object:
        read[css] += 1
        return parse(scope, css, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(stylesheet, "parse", counting)
    monkeypatch.setattr(sheets, "READ", {})
    app = make_app(FakeEngine())
    async with app.run_test():
        chat = [css for css in read if "Transcript" in css]
        assert chat
        assert {read[css] for css in chat} == {1}
        shown = app.chat.transcript.get_component_styles("spec-draft").color.hex
        assert shown.lower() == app.theme_variables["spec-draft"]


async def test_only_the_prompt_takes_the_focus_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    focused: list[Widget] = []
    watch = Widget.watch_has_focus

    def watching(self: Widget, focus: bool) -> None:
        if focus:
            focused.append(self)
        watch(self, focus)

    monkeypatch.setattr(Widget, "watch_has_focus", watching)
    app = make_app(FakeEngine())
    async with app.run_test():
        assert set(focused) == {app.chat.prompt}


async def test_nothing_is_styled_anew_for_the_size_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    styled: list[DOMNode] = []
    update = DOMNode.update_node_styles

    def counting(self: DOMNode, animate: bool = True) -> None:
        styled.append(self)
        update(self, animate)

    monkeypatch.setattr(DOMNode, "update_node_styles", counting)
    app = make_app(FakeEngine())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        assert app.chat.has_class("-wide")
        assert styled.count(app.chat) == 0
        await pilot.resize_terminal(60, 36)
        assert app.chat.has_class("-narrow")
