"""config.toml: read strictly, changed without harm."""

import os
from pathlib import Path
from threading import Timer

import pytest

from specchat.config.errors import ConfigError
from specchat.config.settings import UserSettings, load_settings, save_setting
from tests.config.conftest import Write


def test_settings_are_read(write: Write) -> None:
    path = write("config.toml", 'theme = "dusk"\nseed = 7\nstrategy = "plain"\n')
    assert load_settings(path) == UserSettings(theme="dusk", seed=7, strategy="plain")


def test_no_file_means_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "config.toml") == UserSettings()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('them = "x"', 'them is not a known key. Did you mean "theme"?'),
        ('strategy = "plian"', 'Did you mean "plain"?'),
        ("seed = -1", "seed should be greater than or equal to 0"),
        ("draft_length = 16", "draft_length should be less than or equal to 15"),
        ('acceptance = "lossy"', 'acceptance must be "coupled", "ratio" or "block"'),
        ("max_tokens = 0", "max_tokens should be"),
        ("theme", "line 1"),
        (f"seed = {'9' * 5000}", "number that is too long"),
        (f"seed = {'[' * 5000}", "nested too deeply"),
    ],
)
def test_mistakes_are_reported(write: Write, line: str, words: str) -> None:
    path = write("config.toml", line + "\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert str(path) in caught.value.message
    assert words in caught.value.message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.timeout(10)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match="nobody writes to this pipe"):
        load_settings(tmp_path / "config.toml")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="open files have no names here")
def test_a_pipe_that_somebody_writes_to_is_read() -> None:
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as file:
        Timer(0.2, lambda: (file.write("seed = 7"), file.close())).start()
        assert load_settings(Path(f"/dev/fd/{reading}")).seed == 7


def test_a_byte_order_mark_is_no_part_of_the_file(write: Write) -> None:
    path = write("config.toml", '\ufefftheme = "ink"\nseed = 7\n')
    assert load_settings(path) == UserSettings(theme="ink", seed=7)
    save_setting(path, "theme", "paper")
    assert load_settings(path) == UserSettings(theme="paper", seed=7)


def test_saving_keeps_the_rest_of_the_file(write: Write) -> None:
    path = write("config.toml", '# mine\nseed = 7 # always\ntheme = "ink" # dark\n')
    save_setting(path, "theme", 'a "quoted" name é')
    assert path.read_text(encoding="utf-8") == '# mine\nseed = 7 # always\ntheme = "a \\"quoted\\" name é"\n'
    save_setting(path, "pair", "demo")
    assert load_settings(path) == UserSettings(theme='a "quoted" name é', seed=7, pair="demo")


def test_a_choice_is_saved_as_one(write: Write) -> None:
    path = write("config.toml", "copy_saved_chats = true\n")
    assert load_settings(path).copy_saved_chats is True
    save_setting(path, "copy_saved_chats", False)
    assert path.read_text(encoding="utf-8") == "copy_saved_chats = false\n"
    assert load_settings(path).copy_saved_chats is False


def test_saving_makes_the_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    save_setting(path, "theme", "paper")
    assert load_settings(path).theme == "paper"
    assert path.parent.stat().st_mode & 0o077 == 0
    path.parent.chmod(0o755)  # it may be a folder of other programs as well
    save_setting(path, "theme", "paper")
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert [entry.name for entry in path.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(("key", "value"), [("thme", "ink"), ("strategy", "plian"), ("seed", "7")])
def test_only_known_settings_are_saved(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(ConfigError, match=key):
        save_setting(path, key, value)
    assert not path.exists()


def test_saving_follows_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text("seed = 1\n")
    link.symlink_to(real)
    save_setting(link, "theme", "paper")
    assert link.is_symlink()
    assert load_settings(real) == UserSettings(theme="paper", seed=1)


@pytest.mark.parametrize("text", ['seed = "broken"\n', 'system = """\ntheme = 1\n"""\n', 'theme = """\nink"""\n'])
def test_a_file_that_cannot_be_changed_safely_stays_as_it_is(write: Write, text: str) -> None:
    path = write("config.toml", text)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        save_setting(path, "theme", "paper")
    assert path.read_text() == text


def test_a_failed_write_leaves_the_old_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("config.toml", "seed = 1\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        save_setting(path, "theme", "paper")
    assert path.read_text() == "seed = 1\n"
    assert len(list(path.parent.iterdir())) == 1
