"""keys.toml: other keys for the app's actions."""

import string
import unicodedata
from collections.abc import Collection
from pathlib import Path

from specchat.config.errors import ConfigError, nearest
from specchat.config.files import read_toml

_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
_SHORT = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
"""Textual's own words for some of Unicode's."""
_SAME = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape"}
"""Keys that most terminals cannot tell from others."""


def _character_name(character: str) -> str:
    if character.isalnum():
        return character
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return _SHORT.get(name, name)


_NAMES = {
    *("enter", "escape", "tab", "space", "backspace", "delete", "insert"),
    *("home", "end", "pageup", "pagedown", "up", "down", "left", "right"),
    *(f"f{number}" for number in range(1, 25)),
    *map(_character_name, string.punctuation),
}


def read_keymap(path: Path, known: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Keys by action id, as Textual names them, with commas between, and a sentence for each entry that is left out.

    The keys are empty where an action is to have none. `known` are the ids there are. Without the file nothing is
    changed.
    """
    keymap: dict[str, str] = {}
    owners: dict[str, str] = {}
    try:
        entries = read_toml(path, optional=True)
    except ConfigError as error:
        return {}, [error.message]
    mistakes: list[str] = []
    for action, value in entries.items():
        if action not in known:
            mistakes.append(f"{action} is not a known action.{nearest(action, known)}")
        elif not isinstance(value, str):
            mistakes.append(f'{action} should be text such as "ctrl+k, f5", or "" for no key.')
        else:
            keys, wrong = _keys(action, value, owners)
            mistakes += wrong
            if keys or not wrong:
                keymap[action] = ",".join(keys)
    return keymap, [f"{path}: {mistake}" for mistake in mistakes]


def _keys(action: str, written: str, owners: dict[str, str]) -> tuple[list[str], list[str]]:
    """The keys of an entry, each once, and its mistakes; `owners` are the actions of keys that are given already."""
    keys, mistakes = [], []
    for word in filter(None, map(str.strip, written.split(","))):
        key = key_name(word)
        if key is None:
            mistakes.append(f'{action}: "{word}" is not a key.{nearest(word, _NAMES)}')
        elif (owner := owners.setdefault(_SAME.get(key, key), action)) != action:
            mistakes.append(f'{action}: the key "{word}" is given to {owner} already.')
        else:
            keys.append(key)
    return list(dict.fromkeys(keys)), mistakes


def key_name(written: str) -> str | None:
    """A key like "ctrl+k", "shift+F5", "?" or "question_mark" as Textual names it; None where there is no such key."""
    *modifiers, key = ["plus"] if written == "+" else written.replace("++", "+plus").split("+")
    modifiers = [modifier.strip().lower() for modifier in modifiers]
    key = key.strip()
    if any(modifier not in _MODIFIERS for modifier in modifiers) or len(set(modifiers)) < len(modifiers):
        return None
    if len(key) == 1 and key.isprintable():
        key = "space" if key.isspace() else _character_name(key)
    elif (key := key.lower()) not in _NAMES:
        return None
    if modifiers == ["shift"] and len(key) == 1 and key.isalpha():
        return key.upper()
    if modifiers:
        key = key.lower()
    return "+".join([*sorted(modifiers), key])
