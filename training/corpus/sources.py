"""Texts worth copying: random words, sentences, lists, tables, records and code."""

from __future__ import annotations

import json
from random import Random

from training.corpus.base import capital, pick
from training.corpus.code_bank import FUNCTIONS
from training.corpus.passages import passage
from training.corpus.public import sentences
from training.corpus.text_facts import fact_passage
from training.corpus.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    JOBS,
    NAMES,
    NOUNS,
    OBJECTS,
    PLACES,
    SURNAMES,
    VERBS,
    any_word,
    code,
    invented,
    number,
)


def random_words(rng: Random, low: int = 3, high: int = 40) -> str:
    """Words without any sense."""
    return " ".join(any_word(rng) for _ in range(rng.randint(low, high)))


def sentence(rng: Random) -> str:
    """A grammatical sentence about arbitrary things."""
    name, adjective, animal, place = rng.choice(NAMES), rng.choice(ADJECTIVES), rng.choice(ANIMALS), rng.choice(PLACES)
    noun, thing, verb, city = rng.choice(NOUNS), rng.choice(OBJECTS), rng.choice(VERBS), rng.choice(CITIES)
    odd = invented(rng)
    return pick(
        rng,
        f"The {adjective} {animal} wants to {verb} the {noun} near the {place}.|{name} put {number(rng)} {thing}s"
        f" behind the {noun}.|In {city} every {adjective} {rng.choice(JOBS)} has a {rng.choice(COLOURS)} {thing}.|My"
        f" {odd} is older than the {noun} of {name}.|{name} and {rng.choice(NAMES)} {verb} the {noun} at"
        f" {rng.randint(1, 12)}:{rng.randint(10, 59)}.|Please {verb} the {odd} before you go to {city}.|Nobody in the"
        f" {place} had ever seen a {adjective} {noun}.|The {thing} costs {number(rng)} euros, but the {noun} is"
        f" free.|{capital(odd)} is a {adjective} {place} where {name} likes to {verb} {rng.choice(FOODS)}.",
    )


def short_sentence(rng: Random) -> str:
    """A sentence of three to eight words."""
    name, other = rng.sample(NAMES, 2)
    noun, thing, animal, place = rng.choice(NOUNS), rng.choice(OBJECTS), rng.choice(ANIMALS), rng.choice(PLACES)
    return pick(
        rng,
        f"The {noun} is {rng.choice(ADJECTIVES)}.|The {thing} was {rng.choice(ADJECTIVES)}.|{name} met {other}."
        f"|{name} forgot the {thing}.|The {rng.choice(COLOURS)} {thing} is broken.|We saw a {animal} in the {place}."
        f"|Please bring the {thing}.|Nobody liked the {rng.choice(FOODS)}.|I will call {name} on {rng.choice(DAYS)}."
        f"|{name} lives in {rng.choice(CITIES)}.|It costs {number(rng)} euros.|{name} is a {rng.choice(JOBS)}."
        f"|My {animal} sleeps in the {place}.|They {rng.choice(VERBS)} the {noun}.|Do not {rng.choice(VERBS)} the"
        f" {thing}.|The {animal} wanted {rng.choice(FOODS)}.|Our {noun} begins at {rng.randint(1, 12)}.|{name} will"
        f" come on {rng.choice(DAYS)}.|The {invented(rng)} belongs to {name}.|There were {number(rng)} {animal}s.",
    )


def paragraph(rng: Random, low: int = 2, high: int = 7) -> str:
    """Several sentences."""
    return " ".join(sentence(rng) for _ in range(rng.randint(low, high)))


def lines(rng: Random, most: int = 9) -> list[str]:
    """Three lines or more, all short, such as a shopping list."""
    kind = rng.randrange(5)
    count = rng.randint(3, most)
    if kind == 0:
        return [f"{number(rng)} {rng.choice(FOODS)}" for _ in range(count)]
    if kind == 1:
        return [f"{rng.choice(NAMES)} {rng.choice(SURNAMES)}" for _ in range(count)]
    if kind == 2:
        return [random_words(rng, 1, 4) for _ in range(count)]
    if kind == 3:
        return [capital(f"{rng.choice(VERBS)} the {rng.choice(NOUNS)}") for _ in range(count)]
    return [rng.choice(NOUNS + OBJECTS + ANIMALS + PLACES + CITIES) for _ in range(count)]


def record(rng: Random) -> str:
    """A record in JSON, as key and value lines, or as comma-separated values."""
    keys = rng.sample([*NOUNS, "name", "id", "city", "price", "date", "colour"], rng.randint(3, 6))
    values = [any_word(rng) if rng.random() < 0.6 else number(rng) for _ in keys]
    kind = rng.randrange(3)
    if kind == 0:
        return json.dumps(dict(zip(keys, values, strict=True)), indent=rng.choice((None, 2)))
    if kind == 1:
        return "\n".join(f"{key} = {value}" for key, value in zip(keys, values, strict=True))
    rows = [",".join(any_word(rng) for _ in keys) for _ in range(rng.randint(1, 4))]
    return "\n".join([",".join(keys), *rows])


def program(rng: Random) -> str:
    """A piece of Python with arbitrary names."""
    if rng.random() < 0.5:
        return rng.choice(FUNCTIONS).source
    a, b, c, f = (rng.choice([*NOUNS, invented(rng)]) for _ in range(4))
    n, m = rng.randint(0, 99), rng.randint(2, 99)
    return pick(
        rng,
        f"def {f}_{a}({b}, {c}={n}):\n    {a} = {b} + {c}\n    return {a} * {m}|{a} = {n}\nfor {b} in range({m}):\n   "
        f" {a} += {b}\nprint({a})"
        f"|{a} = [{n}, {m}, {n + m}]\n{b} = [{c} * {m} for {c} in {a}]\nprint({b}, len({a}))|if {a} > {n}:\n    {b} ="
        f" {a} - {m}\nelse:\n    {b} = "
        f'"{c}"\nprint({b})|class {capital(f)}:\n    def __init__(self, {a}):\n        self.{a} = {a}\n\n    def'
        f" {b}(self):\n        return self.{a} + {n}"
        f'|while {a} < {m}:\n    {a} = {f}({a}, {n})\n    print("{c}", {a})',
    )


def public_text(rng: Random) -> str:
    """One to six sentences of public text, seldom many, or of our own where the public texts are not at hand."""
    known = sentences()
    if not known:
        return paragraph(rng, 1, 4)
    start = rng.randrange(len(known))
    return " ".join(known[start : start + rng.randint(1, rng.choice((1, 2, 3, 6)))])


def public_sentence(rng: Random) -> str:
    """One sentence of public text, or of our own."""
    known = sentences()
    return rng.choice(known) if known else sentence(rng)


def odd(rng: Random) -> str:
    """Something that is no prose: an address, a date, a path, a command, a formula, or letters and marks at random."""
    name, word, other = rng.choice(NAMES).lower(), rng.choice(NOUNS), invented(rng)
    a, b, c = (rng.randint(1, 99) for _ in range(3))
    marks = "".join(rng.choice("!?.,;:-_#*+=()/&%$<>[]{}~^|@") for _ in range(rng.randint(2, 9)))
    letters = "".join(
        rng.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(a % 14 + 4)
    )
    forms = (
        f"{name}.{other}@{word}.com",
        f"https://{word}.{other}.org/{rng.choice(NOUNS)}/{number(rng)}",
        f"+{a} {number(rng)} {number(rng)}{number(rng)}",
        f"20{a:02}-{b % 12 + 1:02}-{c % 28 + 1:02}T{b % 24:02}:{c % 60:02}",
        f"{c % 28 + 1}.{b % 12 + 1}.20{a:02}, {b % 24}:{c % 60:02}",
        f"/home/{name}/{word}/{other}_{a}.txt",
        f"C:\\{word}\\{other}.exe",
        f"git commit -m '{word} {other}' && {rng.choice(NOUNS)} --{rng.choice(VERBS)}={number(rng)}",
        f"{word[0]}({other[0]}) = {a}{other[0]}^2 + {b}{other[0]} - {c}",
        f"({a} + {b}) * {c} = {(a + b) * c}",
        f"{other.upper()}_{word.upper()}={number(rng)}; {name}={marks}",
        letters,
        f"{letters}-{number(rng)} {marks}",
        "".join(one.upper() if rng.random() < 0.5 else one for one in sentence(rng)),
        ", ".join(number(rng) for _ in range(rng.randint(3, 12))),
        " ".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(3, 12))),
        f"{sentence(rng)[:-1]}{pick(rng, '!!!|?!|...|?| :-)|;')} {marks}",
        f"<{word} id='{a}'>{rng.choice(ADJECTIVES)} {other}</{word}>",
        f"# {capital(word)}\n\n- {random_words(rng, 1, 4)}\n- {random_words(rng, 1, 4)}\n\n**{other}**: {b}",
        f"| {word} | {other} |\n|---|---|\n| {a} | {rng.choice(NAMES)} |\n| {b} | {rng.choice(NAMES)} |",
        f"Dear {capital(name)},\n\n{public_sentence(rng)}\n\n{pick(rng, 'Best|Yours|Love')},\n{rng.choice(NAMES)}",
    )
    return rng.choice(forms)


def text(rng: Random) -> str:
    """A text of any kind."""
    if rng.random() < 0.12:
        return odd(rng)
    chance = rng.random()
    if chance < 0.25:
        return random_words(rng, 2, rng.choice((4, 8, 12, 25, 60)))
    if chance < 0.4:
        return paragraph(rng, 1, rng.choice((1, 2, 3, 6)))
    if chance < 0.56:
        return public_sentence(rng)
    if chance < 0.68:
        return public_text(rng)
    if chance < 0.76:
        return (passage if rng.random() < 0.4 else fact_passage)(rng).text
    if chance < 0.85:
        return "\n".join(lines(rng))
    if chance < 0.91:
        return record(rng)
    if chance < 0.96:
        return program(rng)
    return " ".join(code(rng) if rng.random() < 0.5 else number(rng) for _ in range(rng.randint(3, 15)))
