"""Shared by all topics: the dialogue type, random choice helpers and the noise of typed text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Message = dict[str, str]


@dataclass(frozen=True)
class Dialogue:
    """One conversation and the topic that it belongs to."""

    category: str
    messages: list[Message]


Maker = Callable[[Random], list[Message]]


def user(text: str) -> Message:
    """A user's turn."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """A reply."""
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    """A system message."""
    return {"role": "system", "content": text}


def pick(rng: Random, text: str) -> str:
    """One of the alternatives of a string written as ``one|two|three``."""
    return rng.choice(text.split("|"))


def some(rng: Random, items: Sequence[str], low: int, high: int) -> list[str]:
    """Between low and high different items."""
    return rng.sample(list(items), min(len(items), rng.randint(low, high)))


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    """The noun with its indefinite article."""
    return ("an " if noun[:1].lower() in "aeiou" else "a ") + noun


def listing(items: Sequence[str]) -> str:
    """The items as English lists them: a, b and c."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def typo(rng: Random, text: str) -> str:
    """The text with two neighbouring letters of one word swapped, or one letter left out."""
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not long:
        return text
    at = rng.choice(long)
    word = words[at]
    cut = rng.randint(1, len(word) - 3)
    swap = rng.random() < 0.6
    words[at] = word[:cut] + (word[cut + 1] + word[cut] + word[cut + 2 :] if swap else word[cut + 1 :])
    return " ".join(words)


_CLIPPED = (
    ("please", "pls"),
    ("Please", "Pls"),
    ("please", "plz"),
    (" you ", " u "),
    ("are you", "r u"),
    ("What is", "Whats"),
    ("what is", "whats"),
    ("I am", "im"),
    ("do not", "dont"),
    ("I would", "id"),
    ("'", ""),
    (", ", " "),
    (" the ", " teh "),
    ("with", "w/"),
    (" and ", " & "),
    (" a ", " "),
    (" the ", " "),
)


def typed(rng: Random, text: str) -> str:
    """The text as somebody might type it: sometimes in small letters, without its stop, clipped, or with slips."""
    chance = rng.random()
    if chance < 0.5:
        return text
    if chance < 0.75:
        text = text.lower()
    if chance < 0.85:
        text = text.rstrip(".!?") or text
    if chance > 0.7:
        text = text.replace(*rng.choice(_CLIPPED), 1)
    if chance > 0.88:
        text = typo(rng, text)
    if chance > 0.97:
        text = typo(rng, text)
    if 0.78 < chance < 0.82:
        text += pick(rng, "!|!!|..|...|??|?| :)")
    return text
