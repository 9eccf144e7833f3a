"""What the app may import, and how fast its first frame is there."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_app_imports_no_model_code() -> None:
    code = (
        "import sys, specchat.tui.app, specchat.tui.screens.settings, specchat.tui.screens.pairs;"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'numpy', 'pydantic', 'pygments', 'markdown_it')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_cleaning_text_needs_no_app() -> None:
    code = "import sys, specchat.clean; print([m for m in sys.modules if m.startswith(('textual', 'specchat.tui'))])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_the_first_frame_is_drawn_soon() -> None:
    """From process start to the prompt on a terminal; the bound is loose because test machines are busy."""
    code = (
        "import sys; sys.path.insert(0, 'tests/tui');"
        "from conftest import make_app; from specchat.engine.fake import FakeEngine; make_app(FakeEngine()).run()"
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
            assert time.monotonic() - begin < 15, seen[-2000:]
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536)
    finally:
        process.kill()
        process.wait()
        os.close(leader)
