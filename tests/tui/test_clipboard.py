"""The clipboard and the editor, with programs that stand in for those of a desktop."""

import base64
import os
import stat
from pathlib import Path

import pytest

from specchat.clipboard import OSC_52_LIMIT, TOOLS, copy, osc_52, picture
from specchat.tui import editor
from specchat.tui.editor import EditorError, edit_text, editor_command, suffix_of
from tests.drawn import drawn

TEXT = "two\nlines, ünï"


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH but for the basics."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cat", "sh", "sleep", "true"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SHELF", str(tmp_path / "shelf"))
    return folder


def copied(text: str, **environment: str) -> tuple[str, str]:
    """What is said, and what the terminal gets."""
    sent: list[str] = []
    return copy(text, sent.append, environment), "".join(sent)


def test_a_tool_is_read_back(programs: Path) -> None:
    program(programs, "wl-copy", 'cat > "$SHELF"')
    program(programs, "wl-paste", 'cat "$SHELF"')
    assert copied(TEXT, WAYLAND_DISPLAY="w") == ("copied", "")
    assert Path(os.environ["SHELF"]).read_text() == TEXT


def test_a_tool_that_cannot_be_read_back_is_not_trusted_more_than_that(programs: Path) -> None:
    program(programs, "wl-copy", 'cat > "$SHELF"')
    assert copied(TEXT, WAYLAND_DISPLAY="w") == ("copied with wl-copy", "")


@pytest.mark.parametrize("broken", ["cat > /dev/null", "exit 1"])
def test_a_tool_that_does_not_copy_is_passed_over(programs: Path, broken: str) -> None:
    program(programs, "wl-copy", broken)
    program(programs, "wl-paste", "echo something else")
    program(programs, "xclip", '[ "$3" = -o ] && exec cat "$SHELF"; cat > "$SHELF"')
    assert copied(TEXT, WAYLAND_DISPLAY="w", DISPLAY=":0") == ("copied", "")
    said, sent = copied(TEXT, WAYLAND_DISPLAY="w")
    assert said == "copied through the terminal. Nothing to paste? See specchat doctor"
    assert sent == osc_52(base64.b64encode(TEXT.encode()).decode(), {})


def test_far_away_only_the_terminal_is_asked(programs: Path) -> None:
    program(programs, "wl-copy", "exit 0")
    program(programs, "pbcopy", "exit 0")
    said, sent = copied(TEXT, WAYLAND_DISPLAY="w", SSH_CONNECTION="1.2.3.4")
    assert said.startswith("copied through the terminal")
    assert sent == f"\x1b]52;c;{base64.b64encode(TEXT.encode()).decode()}\a"


def test_windows_gets_its_own_encoding(programs: Path) -> None:
    program(programs, "clip.exe", 'cat > "$SHELF"')
    assert copied(TEXT, WSL_DISTRO_NAME="Ubuntu")[0] == "copied with clip.exe"
    assert Path(os.environ["SHELF"]).read_bytes().decode("utf-16") == TEXT
    assert TOOLS[0].where == "WSL_DISTRO_NAME"


def test_more_than_terminals_take_is_said(programs: Path) -> None:
    assert programs
    said, sent = copied("x" * OSC_52_LIMIT)
    assert said == "copied through the terminal; 100 kB is more than many take"
    assert len(sent) > OSC_52_LIMIT


def test_multiplexers_pass_the_codes_on() -> None:
    inside_tmux = osc_52("YQ==", {"TMUX": "x", "TERM": "screen-256color"})
    assert inside_tmux == "\x1b]52;c;YQ==\a" + "\x1bPtmux;\x1b\x1b]52;c;YQ==\a\x1b\\"
    parts = osc_52("A" * 3000, {"TERM": "screen"}).split("\x1b\\")
    assert all(part.startswith("\x1bP") and len(part) < 768 for part in parts[:-1])
    assert "".join(part[2:] for part in parts) == "\x1b]52;c;" + "A" * 3000 + "\a"


@pytest.mark.parametrize(
    ("name", "script", "environment"),
    [
        ("wl-paste", '[ "$2" = image/png ] && exec cat "$SHELF"', {"WAYLAND_DISPLAY": "w"}),
        ("xclip", '[ "$4" = image/png ] && exec cat "$SHELF"', {"DISPLAY": ":0"}),
        ("pngpaste", '[ "$1" = - ] && exec cat "$SHELF"', {}),
        ("osascript", f"echo '«data PNGf{drawn().hex().upper()}»'", {}),
        ("powershell.exe", 'exec base64 "$SHELF"', {"WSL_DISTRO_NAME": "u"}),
    ],
)
def test_a_picture_comes_from_the_tool_of_the_machine(
    programs: Path, name: str, script: str, environment: dict[str, str]
) -> None:
    Path(os.environ["SHELF"]).write_bytes(drawn())
    (programs / "base64").symlink_to("/usr/bin/base64")
    program(programs, name, script)
    assert picture(10_000, environment) == drawn()
    assert picture(10, environment) == b""
    assert picture(10_000, {**environment, "SSH_CONNECTION": "1.2.3.4"}) is None


def test_no_picture_is_told_from_no_tool(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert picture(10, {"DISPLAY": ":0"}) is None
    program(programs, "xclip", "echo partly; exit 1")
    assert picture(10, {"DISPLAY": ":0"}) == b""
    assert picture(10, {}) is None
    monkeypatch.setattr("specchat.clipboard._SECONDS", 0.1)
    program(programs, "xclip", "exec sleep 60")
    assert picture(10, {"DISPLAY": ":0"}) == b""
    program(programs, "xclip", "while true; do echo endless output; done")
    assert picture(10, {"DISPLAY": ":0"}) == b""


# The editor


class Suspended:
    """Stands for the app: `with app.suspend()`."""

    def __init__(self) -> None:
        self.times = 0

    def suspend(self) -> "Suspended":
        self.times += 1
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_the_editor_is_the_users_own(programs: Path) -> None:
    program(programs, "my-editor", "exit 0")
    assert editor_command({"VISUAL": "my-editor --wait", "EDITOR": "vi"}) == ["my-editor", "--wait"]
    assert editor_command({"EDITOR": "my-editor"}) == ["my-editor"]
    with pytest.raises(EditorError, match="VISUAL names emacs, which is not there"):
        editor_command({"VISUAL": "emacs"})
    with pytest.raises(EditorError, match="VISUAL cannot be read"):
        editor_command({"VISUAL": "'open"})
    with pytest.raises(EditorError, match="there is no editor: set VISUAL or EDITOR"):
        editor_command({})
    program(programs, "vi", "exit 0")
    assert editor_command({}) == ["vi"]


def test_text_is_edited_in_a_private_file_that_is_removed(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(programs, "ed", 'echo "$1" > "$SHELF"; exec cat >> "$1" < /dev/null')
    monkeypatch.setenv("VISUAL", "ed")
    seen: list[int] = []
    run = editor.subprocess.run

    def watched(command: list[str], *, check: bool) -> object:
        seen.append(stat.S_IMODE(os.stat(command[-1]).st_mode))
        return run(command, check=check)

    monkeypatch.setattr("specchat.tui.editor.subprocess.run", watched)
    app = Suspended()
    assert edit_text(app, TEXT, ".py") is None  # type: ignore[arg-type]
    path = Path((tmp_path / "shelf").read_text().strip())
    assert path.suffix == ".py"
    assert seen == [0o600]
    assert not path.parent.exists()
    program(programs, "ed", 'echo changed > "$1"')
    assert edit_text(app, TEXT) == "changed"  # type: ignore[arg-type]
    program(programs, "ed", "exit 3")
    with pytest.raises(EditorError, match="ed ended with code 3"):
        edit_text(app, TEXT)  # type: ignore[arg-type]
    assert app.times == 3


@pytest.mark.parametrize(
    ("language", "suffix"), [("python", ".py"), ("js", ".js"), ("c++", ".cpp"), ("", ".txt"), ("no[/]", ".txt")]
)
def test_files_are_named_after_their_language(language: str, suffix: str) -> None:
    assert suffix_of(language) == suffix
