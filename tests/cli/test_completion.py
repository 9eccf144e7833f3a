"""Completion as the shells ask for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.chat.rows import ChatRow
from specchat.chat.store import Store
from tests.cli.conftest import Run, configure
from tests.cli.test_processes import Terminal

ROOT = Path(__file__).parents[2]


def complete(*words: str, shell: str = "bash") -> list[str]:
    """The values offered for the last of `words`."""
    environ = {**os.environ, "_SPECCHAT_COMPLETE": f"{shell}_complete"}
    environ |= {"COMP_WORDS": " ".join(("specchat", *words)), "COMP_CWORD": str(len(words))}
    result = subprocess.run(
        [sys.executable, "-m", "specchat"], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_pairs_complete_by_id_and_alias_also_the_users_own(home: Path) -> None:
    configure(home, models='schema = 1\n[[pair]]\nid = "qmine"\naliases = ["qm"]\ntarget.path = "/t"\n')
    names = complete("ask", "--pair", "q")
    assert {"qwen3-8b", "qmine", "qm"} <= set(names)
    assert all(name.startswith("q") for name in names)
    assert complete("--pair", "dem") == ["demo"]


def test_the_named_models_file_is_read(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('schema = 1\n[[pair]]\nid = "zebra"\ntarget.path = "/t"\n')
    assert complete("ask", "--models", str(other), "--pair", "z") == ["zebra"]


def test_strategies_themes_and_commands_complete(home: Path) -> None:
    (home / "config" / "themes").mkdir(parents=True)
    (home / "config" / "themes" / "mine.toml").write_text('name = "pine"\ndark = true\nprimary = "#123456"\n')
    assert complete("--strategy", "l") == ["lookup", "lookahead"]
    assert complete("--theme", "pap") == ["paper"]
    assert complete("--theme", "pi") == ["pine"]
    assert complete("comp") == ["completion"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]


def test_unreadable_files_offer_nothing(home: Path) -> None:
    configure(home, models="schema =")
    assert complete("--pair", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_command(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_SPECCHAT_COMPLETE={shell}_complete" in result.stdout


@pytest.fixture
def program(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is on PATH with the command in it, and with a file; there is a chat of key `abc`."""
    path = tmp_path / "here" / "specchat"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m specchat "$@"\n')
    path.chmod(0o755)
    (path.parent / "my notes.txt").touch()
    (home / "data").mkdir(parents=True)
    store = Store(home / "data" / "chats.db")
    store.insert(ChatRow("abc", "", "A fox, an owl: 'both'"), [], {})[1].wait(60)
    store.close()
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return path.parent


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


LINES = {
    "specchat comp": "specchat completion",
    "specchat chats sh": "specchat chats show",
    "specchat ask --strat": "specchat ask --strategy",
    "specchat ask --strategy looku": "specchat ask --strategy lookup",
    "specchat ask --strategy=looku": "specchat ask --strategy=lookup",
    "specchat --strategy=plain --the": "specchat --strategy=plain --theme",
    "specchat --strategy=plain --pair=dem": "specchat --strategy=plain --pair=demo",
    "specchat ask --pair dem": "specchat ask --pair demo",
    "specchat chats export ab": "specchat chats export abc",
    "specchat ask --file my": "specchat ask --file my notes.txt",
    "specchat ask --file=my": "specchat ask --file=my notes.txt",
}
"""What is typed, and what it becomes, as the shell passes it on."""
SETUP = {
    "bash": ("--norc", "bind 'set enable-bracketed-paste off'"),
    "zsh": ("-f", "autoload -U compinit; compinit -u -D"),
}


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(shell)) for shell in SETUP])
def test_bash_and_zsh_complete_what_is_typed(shell: str, program: Path) -> None:
    flag, setup = SETUP[shell]
    terminal = Terminal(shutil.which(shell) or "", flag, "-i")
    terminal.type(f'cd {program}; {setup}; eval "$(specchat completion {shell})"; echo rea""dy\n'.encode())
    terminal.until(b"ready\r\n")
    for typed, becomes in LINES.items():
        terminal.type(typed.encode() + b"\t\x01echo @\x05\r")
        terminal.until(f"@{becomes}\r\n".encode())
    terminal.type(b"exit\n")
    terminal.end()


@needs("fish")
def test_fish_completes_what_is_typed(program: Path) -> None:
    def offered(line: str) -> list[str]:
        script = f'specchat completion fish | source; complete -C "{line}"'
        command = ["fish", "--no-config", "-c", script]
        result = subprocess.run(command, cwd=program, capture_output=True, text=True, check=True)
        assert result.stderr == ""
        return result.stdout.splitlines()

    for typed, becomes in LINES.items():
        word = becomes.removeprefix(typed.rpartition(" ")[0] + " ")
        assert [line.partition("\t")[0] for line in offered(typed)] == [word], typed
    assert offered("specchat chats show ab") == ["abc\tA fox, an owl: 'both'"]
