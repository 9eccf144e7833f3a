"""Passages of unrelated or related facts from facts_in_text.txt, with questions that they answer."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from training.corpus.base import article, capital, pick
from training.corpus.passages import Passage
from training.corpus.words import (
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    JOBS,
    MONTHS,
    NAMES,
    NOUNS,
    OBJECTS,
    PLACES,
    code,
    invented,
)

Fact = tuple[str, tuple[tuple[str, str], ...]]


def _facts() -> tuple[Fact, ...]:
    """Blocks of a sentence and of lines with questions, an equals sign and the answer."""
    text = Path(__file__).with_name("facts_in_text.txt").read_text("utf-8")
    found = []
    for block in text.strip().split("\n\n"):
        sentence, *lines = block.split("\n")
        pairs = (line.split(" = ", 1) for line in lines)
        found.append((sentence, tuple((ask, answer) for ask, answer in pairs)))
    return tuple(found)


FACTS = _facts()
_AN = re.compile(r"\b([Aa]) (?=[aeiou])")
_SHOPS = "library|bakery|museum|shop|bank|pool|cinema|cafe|post office|market|zoo|gym|pharmacy|town hall|office"
_RELATIVES = "mother|father|sister|brother|aunt|uncle|neighbour|teacher|boss|friend|cousin|grandmother"
_LANGUAGES = "French|German|Spanish|Italian|Russian|Chinese|Japanese|Arabic|Dutch|Polish|English|Greek"
_DEVICES = "phone|printer|laptop|camera|radio|bike|oven|lamp|watch"
_EVENTS = "picnic|match|concert|party|market|lesson|wedding|walk|meeting"


def _time(rng: Random) -> str:
    """A time of the day, written in one of three ways."""
    hour = rng.randint(1, 12)
    minute = rng.choice(("00", "15", "30", "45"))
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    return rng.choice((f"{hour}:{minute}", f"{hour} o'clock", words[hour - 1], f"{hour} {rng.choice(('am', 'pm'))}"))


def _slots(rng: Random) -> dict[str, str]:
    """Something for every gap."""
    name, friend = rng.sample(NAMES, 2)
    if rng.random() < 0.15:
        name = capital(invented(rng))
    (food, food2), (city, city2) = rng.sample(FOODS, 2), rng.sample(CITIES, 2)
    (month, month2), (language, language2) = rng.sample(MONTHS, 2), rng.sample(_LANGUAGES.split("|"), 2)
    noun = rng.choice(NOUNS)
    thing = rng.choice(OBJECTS)
    return {
        "name": name,
        "friend": friend,
        "food": food,
        "food2": food2,
        "city": city if rng.random() < 0.85 else capital(invented(rng)),
        "city2": city2,
        "month": month,
        "month2": month2,
        "language": language,
        "language2": language2,
        "shop": pick(rng, _SHOPS),
        "time": _time(rng),
        "time2": _time(rng),
        "day": rng.choice(DAYS),
        "colour": rng.choice(COLOURS),
        "thing": thing,
        "things": f"{rng.choice(OBJECTS)}s",
        "place": rng.choice(PLACES),
        "n": str(rng.randint(2, 900)),
        "m": str(rng.randint(2, 900)),
        "d": str(rng.randint(2, 12)),
        "a_job": article(rng.choice(JOBS)),
        "year": str(rng.randint(1400, 2025)),
        "animal": rng.choice(ANIMALS),
        "word": rng.choice((invented(rng), code(rng), capital(rng.choice(NOUNS)), rng.choice(NAMES))),
        "noun": noun,
        "person2": pick(rng, _RELATIVES),
        "drink": pick(rng, "water|tea|milk|juice"),
        "number": "".join(rng.choice("0123456789") for _ in range(rng.randint(4, 9))),
        "device": pick(rng, _DEVICES),
        "event": pick(rng, _EVENTS),
    }


def fact_passage(rng: Random) -> Passage:
    """One to six facts; people and things of two facts are often the same, questions are asked of those told once."""
    shared = _slots(rng)
    sentences, questions, names = [], [], []
    for sentence, asked in rng.sample(FACTS, rng.choice((1, 2, 2, 3, 3, 4, 5, 6))):
        slots = _slots(rng)
        if rng.random() < 0.3:
            slots["friend"] = shared["name"]
        shown = capital(_AN.sub(r"\1n ", sentence.format(**slots)))
        if shown.count(slots["name"]) > 1 or slots["name"] == slots["friend"]:
            continue
        sentences.append(shown)
        names.append(slots["name"])
        questions += [(ask.format(**slots), capital(_AN.sub(r"\1n ", answer.format(**slots)))) for ask, answer in asked]
    if not sentences:
        return fact_passage(rng)
    once = [(ask, answer) for ask, answer in questions if [q for q, _ in questions].count(ask) == 1]
    return Passage(sentences, once or questions[:1], names)
