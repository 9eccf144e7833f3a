"""Slash commands: a prompt that begins with a slash is one, is a mistake, or is sent."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from specchat.dataclass import dataclass
from specchat.tui.action import Action
from specchat.tui.composing.completion import Completion, Suggestion
from specchat.tui.composing.fuzzy import ranked

Values = Callable[[Action[Any]], Sequence[tuple[str, str]]]
"""The arguments known for an action, each with a word about it."""

_NAME = re.compile(r"/([A-Za-z][\w-]*)?(?=\s|$)")
_LONGEST = 100
"""Choices that are offered at most."""


@dataclass(frozen=True)
class Command:
    """Something to do instead of sending."""

    action: Action[Any]
    argument: str


@dataclass(frozen=True)
class Mistake:
    """Neither a command nor a text; `sentence` says so."""

    sentence: str


def parse(prompt: str, commands: Mapping[str, Action[Any]]) -> Command | Mistake | str:
    """A command, a mistake, or the text to send.

    `//text` is the text `/text`. What does not look like a command, such as a path or a comment, is sent as it is.
    """
    if prompt.startswith("//"):
        return prompt[1:]
    match = _NAME.match(prompt)
    if match is None:
        return prompt
    name = (match[1] or "").lower()
    if name in commands:
        return Command(commands[name], prompt[match.end() :].strip())
    offer = nearest(name, commands, before="/")
    return Mistake(f"there is no command /{name}{offer}; begin with // to send a text that begins with a slash")


def nearest(word: str, known: Iterable[str], before: str = "") -> str:
    """A question that offers the known word that goes on like `word`, or else the closest; empty if there is none."""
    by_folded = {option.casefold(): option for option in known}
    folded = word.casefold()
    longer = [option for option in by_folded if option.startswith(folded)] if len(folded) > 1 else []
    close = longer or get_close_matches(folded, by_folded, n=1, cutoff=0.5)
    return f" (did you mean {before}{by_folded[close[0]]}?)" if close else ""


def complete(line: str, column: int, commands: Mapping[str, Action[Any]], values: Values) -> Completion | None:
    """Commands or arguments that fit the prompt's first line with the cursor at `column`; None where none do."""
    before = line[:column]
    if not before.startswith("/") or before.startswith("//"):
        return None
    name, space, argument = before[1:].partition(" ")
    if not space:
        return _names(name, _word_end(line, column), commands)
    action = commands.get(name.lower())
    return _arguments(argument, len(name) + 2, len(line), values(action)) if action else None


def _names(typed: str, end: int, commands: Mapping[str, Action[Any]]) -> Completion | None:
    if typed and not re.fullmatch(r"[\w-]+", typed):
        return None
    choices = []
    for name, places in ranked(typed, sorted(commands), str, _LONGEST):
        action = commands[name]
        text = f"/{name} " if action.argument else f"/{name}"
        choices.append(Suggestion(text, f"/{name}", action.help, [at + 1 for at in places], sends=not action.argument))
    return Completion(0, end, tuple(choices)) if choices else None


def _arguments(typed: str, start: int, end: int, known: Sequence[tuple[str, str]]) -> Completion | None:
    found = ranked(typed.strip(), known, lambda value: value[0], _LONGEST)
    choices = tuple(Suggestion(value, value, words, places, sends=True) for (value, words), places in found)
    return Completion(start, end, choices, eager=bool(typed.strip())) if choices else None


def _word_end(line: str, column: int) -> int:
    space = line.find(" ", column)
    return len(line) if space < 0 else space
