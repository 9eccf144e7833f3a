"""keys.toml: what it changes and how its mistakes are reported."""

from pathlib import Path

import pytest
from textual.keys import _character_to_key

from specchat.config.keymap import key_name, read_keymap
from tests.config.conftest import Write

KNOWN = ("settings", "token-view", "quit")


def test_keys_are_given_to_actions(write: Write) -> None:
    path = write("keys.toml", """
        settings = "ctrl+k, F5,f5"
        quit = ""
    """)  # fmt: skip
    assert read_keymap(path, KNOWN) == ({"settings": "ctrl+k,f5", "quit": ""}, [])


def test_no_file_changes_nothing(tmp_path: Path) -> None:
    assert read_keymap(tmp_path / "keys.toml", KNOWN) == ({}, [])


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ctrl+k", "ctrl+k"),
        ("Ctrl + K", "ctrl+k"),
        ("K", "K"),
        ("shift+ctrl+up", "ctrl+shift+up"),
        ("shift+a", "A"),
        ("ctrl+Shift+A", "ctrl+shift+a"),
        ("alt+shift+a", "alt+shift+a"),
        ("shift+F12", "shift+f12"),
        ("PageUp", "pageup"),
        ("?", "question_mark"),
        ("question_mark", "question_mark"),
        ("/", "slash"),
        ("ctrl+/", "ctrl+slash"),
        ("+", "plus"),
        ("ctrl++", "ctrl+plus"),
        ("-", "minus"),
        ("é", "é"),
        ("7", "7"),
        ("f25", None),
        ("ctrl+", None),
        ("+a", None),
        ("cmd+k", None),
        ("ctrl+ctrl+k", None),
        ("ctrl+shift", None),
        ("", None),
        ("\x1b", None),
    ],
)
def test_keys_are_named_as_textual_names_them(written: str, name: str | None) -> None:
    assert key_name(written) == name


def test_every_printable_key_has_textuals_name() -> None:
    for character in map(chr, range(33, 127)):
        assert key_name(character) == _character_to_key(character)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('setings = "f1"', 'setings is not a known action. Did you mean "settings"?'),
        ("settings = 3", 'settings should be text such as "ctrl+k, f5"'),
        ('[settings]\nkey = "f1"', "settings should be text"),
        ('settings = "ctrl+k, pgup"', '"pgup" is not a key. Did you mean "pageup"?'),
        ('settings = "f1"\nquit = "F1"', 'quit: the key "F1" is given to settings already.'),
        ('settings = "tab"\nquit = "ctrl+i"', 'quit: the key "ctrl+i" is given to settings already.'),
        ("settings =", "is not valid TOML"),
    ],
)
def test_mistakes_are_told_with_file_and_action(write: Write, text: str, words: str) -> None:
    path = write("keys.toml", text)
    [mistake] = read_keymap(path, KNOWN)[1]
    assert mistake.startswith(str(path))
    assert words in mistake


def test_all_mistakes_are_told_and_the_other_entries_count(write: Write) -> None:
    path = write("keys.toml", """
        setings = "f1"
        settings = "ctl+k, f2"
        quit = "hugo"
        token-view = "f3"
    """)  # fmt: skip
    keymap, mistakes = read_keymap(path, KNOWN)
    assert keymap == {"settings": "f2", "token-view": "f3"}
    assert [mistake.split(": ", 1)[1].split(" is not")[0] for mistake in mistakes] == [
        "setings", 'settings: "ctl+k"', 'quit: "hugo"'
    ]  # fmt: skip
