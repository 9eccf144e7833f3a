"""The words of words.toml, and makers of invented words, numbers and codes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

from training.corpus.public import vocabulary

_STORED = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
LISTS: dict[str, list[str]] = {
    name: text.split() if name == "python" else [word.replace("_", " ") for word in text.split()]
    for name, text in _STORED.items()
}
NAMES = LISTS["names"]
SURNAMES = LISTS["surnames"]
ANIMALS = LISTS["animals"]
OBJECTS = LISTS["objects"]
PLACES = LISTS["places"]
PEOPLE = LISTS["people"]
TRAITS = LISTS["traits"]
MORE_OBJECTS = LISTS["more_objects"]
MORE_PLACES = LISTS["more_places"]
ADJECTIVES = LISTS["adjectives"]
COLOURS = LISTS["colours"]
FOODS = LISTS["foods"]
DAYS = LISTS["days"]
MONTHS = LISTS["months"]
JOBS = LISTS["jobs"]
CITIES = LISTS["cities"]
HOBBIES = LISTS["hobbies"]
NOUNS = LISTS["nouns"]
VERBS = LISTS["verbs"]
RARE = LISTS["rare"]
PYTHON = frozenset(LISTS["python"])
_ONSETS, _NUCLEI, _CODAS = LISTS["onsets"], LISTS["nuclei"], ["", *LISTS["codas"]]


def invented(rng: Random) -> str:
    """A word that no dictionary has."""
    count = rng.choice((1, 2, 2, 3))
    return "".join(rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS) for _ in range(count))


def number(rng: Random) -> str:
    """A number of one to five digits, now and then with a decimal part."""
    digits = rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5))
    text = str(rng.randint(10 ** (digits - 1), 10**digits - 1))
    return f"{text}.{rng.randint(1, 99)}" if rng.random() < 0.1 else text


def code(rng: Random) -> str:
    """A short identifier such as an order number."""
    letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    return letters + rng.choice(("-", "", "_")) + str(rng.randint(10, 9999))


_PLAIN = NOUNS + VERBS + ADJECTIVES + ANIMALS + OBJECTS + PLACES + FOODS + COLOURS + JOBS


def any_word(rng: Random) -> str:
    """A word of any kind: common, rare, invented, a name, a number or a code."""
    chance = rng.random()
    if chance < 0.25:
        return rng.choice(_PLAIN)
    if chance < 0.6:
        return rng.choice(vocabulary())
    if chance < 0.7:
        return rng.choice(RARE)
    if chance < 0.82:
        return invented(rng)
    if chance < 0.9:
        return rng.choice(NAMES + CITIES + SURNAMES)
    return number(rng) if chance < 0.96 else code(rng)
