"""Completion as the shells ask for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, configure

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
    assert complete("--strategy", "l") == ["lookup"]
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "specchat"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m specchat "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(specchat completion bash)"
        COMP_WORDS=(specchat --strategy s) COMP_CWORD=2
        _specchat_completion specchat
        echo "${COMPREPLY[@]}"
    """
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "--norc", "-c", script], env=environ, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("swift\n", "")
