"""Commands, mentions and their completion, without any screen."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specchat.attachments.files import Attachment, AttachmentError
from specchat.attachments.mentions import (
    Attacher,
    can_be_mentioned,
    carried,
    mention,
    mentioned_paths,
    pasted_path,
    typed_mention,
    unattached,
)
from specchat.config.personas import Persona, persona_name
from specchat.config.presets import Preset, apply, preset_name
from specchat.engine.protocol.options import Sampling
from specchat.tui.action import Action
from specchat.tui.actions.table import ACTIONS
from specchat.tui.composing.files import FileLister
from specchat.tui.composing.fuzzy import positions, ranked
from specchat.tui.composing.listing import list_files
from specchat.tui.composing.slash import Command, Mistake, complete, nearest, parse
from specchat.tui.keys import Keys

KEYS = Keys(ACTIONS)


def values(action: Action[Any]) -> Sequence[tuple[str, str]]:
    return [("plain", "no drafting"), ("draft", "a small model"), ("lookup", "")] if action.id == "strategy" else ()


# Matching


def test_letters_are_found_together_first_and_in_the_name_of_a_file() -> None:
    assert positions("se", "session") == range(2)
    assert positions("sn", "session") == [0, 6]
    assert positions("so", "os") is None
    assert positions("tui", "tui/x/tui.py") == range(6, 9)


def test_the_best_match_is_first() -> None:
    names = ["regenerate", "rename", "new", "news", "never-again"]
    assert [name for name, _ in ranked("new", names, str, 3)] == ["new", "news", "never-again"][:2] + ["never-again"][
        :0
    ]
    assert [name for name, _ in ranked("", names, str, 2)] == ["regenerate", "rename"]


@given(st.text(max_size=8), st.lists(st.text(max_size=30), max_size=5))
def test_matches_hold_the_letters(query: str, names: list[str]) -> None:
    for name, places in ranked(query, names, str, 10):
        assert "".join(name.lower()[at] for at in places) == (query.lower() if places else "")


@pytest.mark.timed
def test_long_paths_of_one_letter_take_no_time() -> None:
    begin = thread_time()
    ranked("e" * 20 + "x", ["e/" * 2000] * 50, str, 10)
    assert thread_time() - begin < 1


# Slash commands


@pytest.mark.parametrize(
    ("prompt", "action", "argument"),
    [
        ("/help", "help", ""),
        ("/HELP  ", "help", ""),
        ("/strategy lookup", "strategy", "lookup"),
        ("/system Be kind.\nAnd short.", "system", "Be kind.\nAnd short."),
        ("/system\nBe kind.", "system", "Be kind."),
    ],
)
def test_commands_are_known(prompt: str, action: str, argument: str) -> None:
    parsed = parse(prompt, KEYS.by_slash)
    assert isinstance(parsed, Command)
    assert (parsed.action.id, parsed.argument) == (action, argument)


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("hello /help", "hello /help"),
        ("//help", "/help"),
        ("//home/x", "/home/x"),
        ("/home/x is full", "/home/x is full"),
        ("/* a comment */", "/* a comment */"),
        ("/etc.", "/etc."),
        (" /help", " /help"),
    ],
)
def test_other_texts_are_sent(prompt: str, sent: str) -> None:
    assert parse(prompt, KEYS.by_slash) == sent


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("/hlep me", "did you mean /help?"),
        ("/temp 0.5", "did you mean /temperature?"),
        ("/", "begin with //"),
        ("/q8z", ""),
    ],
)
def test_unknown_commands_are_told_with_the_nearest(prompt: str, words: str) -> None:
    parsed = parse(prompt, KEYS.by_slash)
    assert isinstance(parsed, Mistake)
    assert words in parsed.sentence


def test_every_command_has_its_own_name() -> None:
    assert len(KEYS.by_slash) == sum(bool(action.slash) for action in ACTIONS)
    assert all(not action.fixed for action in KEYS.by_slash.values())


def test_every_action_that_is_not_fixed_does_something() -> None:
    for action in ACTIONS:
        assert (action.run is not None) == (not action.fixed or bool(action.hint))  # hints are clicked
        assert action.values is None or action.argument


def test_commands_complete() -> None:
    found = complete("/str", 4, KEYS.by_slash, values)
    assert found is not None
    assert (found.start, found.end, found.eager) == (0, 4, True)
    assert (found.choices[0].text, found.choices[0].sends) == ("/strategy ", False)
    assert found.choices[0].label == "/strategy"
    everything = complete("/", 1, KEYS.by_slash, values)
    assert everything is not None
    assert len(everything.choices) == len(KEYS.by_slash)
    (help_,) = [choice for choice in everything.choices if choice.text == "/help"]
    assert help_.sends
    inside = complete("/strxy rest", 3, KEYS.by_slash, values)
    assert inside is not None
    assert inside.end == 6


def test_arguments_complete() -> None:
    found = complete("/strategy lo", 12, KEYS.by_slash, values)
    assert found is not None
    assert [choice.text for choice in found.choices] == ["lookup"]
    assert (found.start, found.end) == (10, 12)
    before = complete("/strategy ", 10, KEYS.by_slash, values)
    assert before is not None
    assert not before.eager
    assert len(before.choices) == 3


@pytest.mark.parametrize("line", ["", "x", "//h", "/zzzz", "/help x", "/strategy zz", "/nothing lo", "/home/x"])
def test_nothing_to_complete(line: str) -> None:
    assert complete(line, len(line), KEYS.by_slash, values) is None


def test_nearest() -> None:
    assert nearest("balancd", ["exact", "balanced"]) == " (did you mean balanced?)"
    assert nearest("zzz", ["exact"]) == ""


# Mentions


@pytest.mark.parametrize(
    ("line", "start", "path"),
    [
        ("@", 0, ""),
        ("see @src/a", 4, "src/a"),
        ('see @"my fi', 4, "my fi"),
        ("@one and @two", 9, "two"),
        ('@"a b" @c', 7, "c"),
    ],
)
def test_a_mention_is_seen_while_typed(line: str, start: int, path: str) -> None:
    typed = typed_mention(line, len(line))
    assert typed is not None
    assert (typed.start, typed.path) == (start, path)


@pytest.mark.parametrize("line", ["", "me@home", "@done ", '@"done"', "x"])
def test_no_mention_is_typed(line: str) -> None:
    assert typed_mention(line, len(line)) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files in it."""
    for name in ("notes.txt", "src/deep/tool.py", "src/a b.md", ".hidden/x", "node_modules/m.js", "out/o.txt", "x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}\n")
    (tmp_path / ".gitignore").write_text("# built\nout/\n*.pyc\n/src/deep\n!keep\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "found", "still"),
    [
        ('And @a.txt)? @"b c.md"', (), ["a.txt", "b c.md", "piped"]),
        ("And @a.txt, @new", ("a.txt", "new"), ["piped"]),
        ("And @a.txts", (), ["piped"]),
        ("And nothing", (), ["piped"]),
    ],
)
def test_files_of_an_edited_prompt_go_along_as_they_were(typed: str, found: tuple[str, ...], still: list[str]) -> None:
    attached = [Attachment(name, "old") for name in ("a.txt", "b c.md", "piped")]
    read = [Attachment(name, "new") for name in found]
    kept = carried('See @a.txt and @"b c.md".', attached, typed, read)
    assert [(one.name, one.text) for one in kept] == [(name, "old") for name in still]


def test_files_are_found_in_prompts(folder: Path) -> None:
    del folder
    prompt = 'see @notes.txt, (@src/deep/tool.py) "@notes.txt" @"src/a b.md"! @nobody @src a@notes.txt @notes.txt'
    assert list(mentioned_paths(prompt)) == ["notes.txt", "src/a b.md"]
    assert list(mentioned_paths("\n@src/deep/tool.py?")) == ["src/deep/tool.py"]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("see @notes.txt", ""),
        ("see @note.txt?", "there is no file note.txt: its name goes as text"),
        ('see @notes.txt and @"no such.md" there', "there is no file no such.md: its name goes as text"),
        ("see @lib/tool", "there is no file lib/tool: its name goes as text"),
        ("see @src.", "src is a folder: write a / at its end to attach its text files"),
        ("ask @nobody of a@b.c, @3.5 and @", ""),
    ],
)
def test_files_that_are_not_there_are_told(folder: Path, prompt: str, words: str) -> None:
    del folder
    assert unattached(prompt) == words


@given(st.text(st.characters(exclude_characters="\0/"), min_size=1, max_size=20))
def test_what_is_inserted_is_found_again(name: str) -> None:
    if not can_be_mentioned(name) or name in (".", "..") or len(name.encode(errors="replace")) > 200:
        return
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/{name}"
        Path(path).write_text("x")
        assert list(mentioned_paths(f"see {mention(path)} there")) == [path]


def test_files_are_attached_and_read_again_only_when_they_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attacher = Attacher()
    (notes,) = attacher.attachments("@notes.txt")
    assert (notes.name, notes.text) == ("notes.txt", "text of notes.txt\n")
    assert attacher.attachments("@notes.txt")[0] is notes
    (folder / "notes.txt").write_text("another text")
    assert attacher.attachments("@notes.txt")[0].text == "another text"
    monkeypatch.setenv("HOME", str(folder))
    assert attacher.attachments("@~/notes.txt")[0].text == "another text"
    assert attacher.attachments("hello @nobody") == ()


@pytest.mark.parametrize(
    ("data", "words"), [(b"\0\1", "binary"), (b"x" * 2_000_001, "2 MB"), (b"\xff\xfe\xfa", "UTF-8")]
)
def test_files_that_are_no_text_are_refused(folder: Path, data: bytes, words: str) -> None:
    (folder / "blob.bin").write_bytes(data)
    with pytest.raises(AttachmentError, match=words) as refused:
        Attacher().attachments("see @blob.bin and @notes.txt")
    assert "blob.bin" in refused.value.message


def test_a_broken_link_is_refused(folder: Path) -> None:
    (folder / "gone").symlink_to("nowhere")
    with pytest.raises(AttachmentError, match="gone"):
        Attacher().attachments("@gone")


def test_files_are_listed_without_what_is_hidden_or_ignored(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    (folder / "bad\x1b[2Jname").write_text("")
    there = ("notes.txt", "x.pyc", "out/o.txt", "src/a b.md", "src/deep/tool.py")
    assert list_files(str(folder)).paths == there  # no repository: nothing is ignored
    capped = list_files(str(folder), most=2)
    assert (capped.paths, capped.capped) == (there[:2], True)
    if shutil.which("git") is None:
        pytest.skip("the rest needs git")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    assert list_files(str(folder)).paths == ("notes.txt", "src/a b.md")
    assert list_files(str(folder / "src")).paths == ("a b.md",)
    assert list_files(str(folder / "out")).paths == ("o.txt",)  # all of it is ignored, but it is where one is
    subprocess.run(["git", "-C", str(folder), "add", "notes.txt"], check=True)
    (folder / "notes.txt").unlink()
    assert list_files(str(folder)).paths == ("src/a b.md",)


def test_a_repository_cannot_have_programs_run(folder: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    hook = folder / "hook.sh"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    subprocess.run(["git", "-C", str(folder), "config", "core.fsmonitor", str(hook)], check=True)
    subprocess.run(["git", "-C", str(folder), "ls-files", "--others"], check=True, capture_output=True)
    assert (folder / "ran").exists()  # the danger is real
    (folder / "ran").unlink()
    list_files(str(folder))
    assert not (folder / "ran").exists()


def test_files_complete(folder: Path) -> None:
    files = FileLister()

    def choices(line: str) -> list[str]:
        typed = typed_mention(line, len(line))
        assert typed is not None
        found = files.complete(typed, len(line))
        return [choice.text for choice in found.choices] if found else []

    assert choices("see @tl") == ["@src/deep/tool.py "]
    assert choices("@ab") == ['@"src/a b.md" ']
    assert choices(f"@{folder}/s")[0] == f"@{folder}/src/"
    assert choices(f"@{folder}/src/a") == [f'@"{folder}/src/a b.md" ']
    assert choices(f"@{folder}/.g") == [f"@{folder}/.gitignore "]
    assert choices("@./no") == ["@./notes.txt ", "@./node_modules/"]
    assert choices("@zzz") == choices("@/no/such/folder/x") == []
    assert choices("@~") == ["@~/"]


def test_a_pasted_path_is_known(folder: Path) -> None:
    (folder / "it's").write_text("")
    for pasted, path in (
        (f"{folder}/notes.txt\n", "notes.txt"),
        (f"'{folder}/src/a b.md' ", "src/a b.md"),
        (f"{folder}/src/a\\ b.md", "src/a b.md"),
        (f"file://{folder}/src/a%20b.md", "src/a b.md"),
        ("src/deep/tool.py", "src/deep/tool.py"),
        ("/etc/passwd", "/etc/passwd"),
        ("notes.txt", None),
        (f"{folder}/src", None),
        (f"{folder}/notes.txt\n{folder}/x.pyc", None),
        ("/no/such", None),
        ("and/or", None),
        ("", None),
        ("/" + "x" * 5000, None),
    ):
        assert pasted_path(pasted) == path, pasted
    assert os.path.isabs(pasted_path("/etc/passwd") or "")


# Personas and presets


def test_personas_and_presets_are_told_by_what_they_set() -> None:
    personas = [Persona("short", "Be short."), Persona("long", "Be long.")]
    assert persona_name("Be long.", personas) == "long"
    assert persona_name("Be mine.", personas) == "own system prompt"
    assert persona_name("", personas) == ""
    presets = [Preset("exact", Sampling()), Preset("warm", Sampling(temperature=0.9))]
    assert preset_name(Sampling(seed=5, temperature=0.9), presets) == "warm"
    assert preset_name(Sampling(top_k=3), presets) == "own"
    assert apply(presets[1], Sampling(seed=5, top_k=3, logit_bias={1: 2.0})) == Sampling(
        seed=5, temperature=0.9, logit_bias={1: 2.0}
    )
