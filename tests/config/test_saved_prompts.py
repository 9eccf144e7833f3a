"""Saved prompts: files of their names, which are checked, never replaced, and read within bounds."""

from pathlib import Path

import pytest

from specchat.config.errors import ConfigError
from specchat.config.saved_prompts import LARGEST, SavedPrompts


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    prompts = SavedPrompts(tmp_path / "prompts")
    assert prompts.names() == []
    path = prompts.save("review", "  Look at {file}.\nTwice.\n\n")
    prompts.save("a-2", "x")
    assert (path.name, path.stat().st_mode & 0o777) == ("review.md", 0o600)
    assert prompts.names() == ["a-2", "review"]
    assert prompts.read("review") == "Look at {file}.\nTwice."


@pytest.mark.parametrize("name", ["", "..", "a/b", "Upper", "-a", "é", "a" * 41, "a\n"])
def test_a_name_is_no_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="letters from a to z"):
        SavedPrompts(tmp_path).save(name, "text")


def test_a_prompt_is_not_replaced(tmp_path: Path) -> None:
    prompts = SavedPrompts(tmp_path)
    prompts.save("one", "first")
    with pytest.raises(ConfigError, match="there already"):
        prompts.save("one", "second")
    assert prompts.read("one") == "first"


def test_files_of_others_are_left_out_and_bad_ones_are_told(tmp_path: Path) -> None:
    prompts = SavedPrompts(tmp_path)
    for name in ("Bad Name.md", "no.txt", ".hidden.md", "good.md"):
        (tmp_path / name).write_text("x")
    (tmp_path / "large.md").write_text("x" * (LARGEST + 1))
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    (tmp_path / "codes.md").write_text("a\x1b]0;b\x07c")
    assert prompts.names() == ["codes", "good", "large", "latin"]
    assert "\x1b" not in prompts.read("codes")
    for name in ("large", "latin", "gone"):
        with pytest.raises(ConfigError, match=f"{name}.md cannot be read"):
            prompts.read(name)


def test_without_a_folder_there_are_none() -> None:
    assert SavedPrompts().names() == []
    with pytest.raises(ConfigError, match="not kept"):
        SavedPrompts().save("a", "b")
