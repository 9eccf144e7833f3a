"""Passages with facts, and questions that the passage answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.corpus.base import article, capital, listing, pick, some
from training.corpus.words import (
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    HOBBIES,
    JOBS,
    MONTHS,
    NAMES,
    NOUNS,
    OBJECTS,
    PLACES,
    SURNAMES,
    code,
    invented,
)


@dataclass(frozen=True)
class Passage:
    """Sentences, the questions with their answers, and the names that occur."""

    sentences: list[str]
    questions: list[tuple[str, str]]
    names: list[str]

    @property
    def text(self) -> str:
        """The sentences as one paragraph."""
        return " ".join(self.sentences)


def person(rng: Random) -> Passage:
    """A person's profile."""
    first, friend = rng.sample(NAMES, 2)
    full = f"{first} {rng.choice(SURNAMES)}"
    job, city, born = rng.choice(JOBS), rng.choice(CITIES), rng.choice(CITIES)
    age, year = rng.randint(18, 90), rng.randint(1950, 2020)
    colour, thing, hobby, food = rng.choice(COLOURS), rng.choice(OBJECTS), rng.choice(HOBBIES), rng.choice(FOODS)
    facts = [
        (
            f"{full} is {article(job)} from {born}.",
            [
                ("What is the job of {n}?|What does {n} do?", f"{first} is {article(job)}."),
                ("Where does {n} come from?|Where is {n} from?", f"{first} is from {born}."),
            ],
        ),
        (
            pick(rng, f"{first} has lived in {city} since {year}.|Since {year} {first} has lived in {city}."),
            [
                ("Where does {n} live?|In which city does {n} live?", f"{first} lives in {city}."),
                ("Since when has {n} lived there?|Since which year has {n} lived in the city?", f"Since {year}."),
            ],
        ),
        (f"{first} is {age} years old.", [("How old is {n}?|What is the age of {n}?", f"{first} is {age} years old.")]),
        (
            f"In the evening {first} likes {hobby}.",
            [("What does {n} like in the evening?|What is the hobby of {n}?", f"{first} likes {hobby}.")],
        ),
        (
            f"On the table there is a {colour} {thing}.",
            [
                ("What is on the table?", f"A {colour} {thing}."),
                (f"What colour is the {thing}?|Which colour does the {thing} have?", f"The {thing} is {colour}."),
            ],
        ),
        (
            f"{friend} often comes to visit and brings {food}.",
            [
                ("Who comes to visit?|Who often visits {n}?", f"{friend} comes to visit."),
                (f"What does {friend} bring?|What does the visitor bring?", f"{friend} brings {food}."),
            ],
        ),
    ]
    return _passage(rng, facts, first, [first, friend])


def event(rng: Random) -> Passage:
    """A meeting or a party."""
    who, other = rng.sample(NAMES, 2)
    kind = pick(rng, "meeting|concert|party|market|workshop|exhibition|race|picnic|lesson")
    day, month, date = rng.choice(DAYS), rng.choice(MONTHS), rng.randint(1, 28)
    place, city = rng.choice(PLACES), rng.choice(CITIES)
    hour, price, guests = (
        f"{rng.randint(8, 21)}:{rng.choice(('00', '15', '30', '45'))}",
        rng.randint(2, 80),
        rng.randint(5, 300),
    )
    food = rng.choice(FOODS)
    facts = [
        (
            f"The {kind} takes place on {day}, {date} {month}, in {city}.",
            [
                (
                    f"When is the {kind}?|When does the {kind} take place?|On which day is the {kind}?",
                    f"The {kind} is on {day}, {date} {month}.",
                ),
                (f"In which city is the {kind}?|Which city is the {kind} in?", f"The {kind} is in {city}."),
            ],
        ),
        (
            f"It starts at {hour} in the {place}.",
            [
                (f"When does the {kind} start?|At what time does it start?", f"It starts at {hour}."),
                (f"Where does the {kind} start?|Where exactly is it?", f"In the {place}."),
            ],
        ),
        (
            f"{who} has invited {guests} guests.",
            [
                ("Who has invited the guests?|Who invited people?", f"{who} has invited the guests."),
                ("How many guests are invited?|How many guests are there?", f"{guests} guests are invited."),
            ],
        ),
        (
            f"A ticket costs {price} euros.",
            [("How much is a ticket?|What does a ticket cost?", f"A ticket costs {price} euros.")],
        ),
        (
            f"{other} will bring {food} for everybody.",
            [
                ("Who will bring food?|Who brings something to eat?", f"{other} will bring {food}."),
                (f"What will {other} bring?", f"{other} will bring {food}."),
            ],
        ),
    ]
    return _passage(rng, facts, who, [who, other])


def order(rng: Random) -> Passage:
    """A parcel, a shop and its numbers."""
    who, seller = rng.sample(NAMES, 2)
    number, thing, colour = code(rng), rng.choice(OBJECTS), rng.choice(COLOURS)
    count, price, day, city = rng.randint(2, 60), rng.randint(3, 900), rng.choice(DAYS), rng.choice(CITIES)
    brand = capital(invented(rng))
    facts = [
        (
            f"{who} ordered {count} {colour} {thing}s from {brand}.",
            [
                ("Who ordered something?|Who made the order?", f"{who} made the order."),
                (
                    f"How many {thing}s did {who} order?|How many {thing}s are in the order?",
                    f"{who} ordered {count} {thing}s.",
                ),
                (
                    "From which company is the order?|What is the company called?|Where did {n} order?",
                    f"The company is called {brand}.",
                ),
            ],
        ),
        (
            f"The order number is {number}.",
            [("What is the order number?|Which number does the order have?", f"The order number is {number}.")],
        ),
        (
            f"The parcel will arrive in {city} on {day}.",
            [
                ("When will the parcel arrive?|On which day does the parcel come?", f"It will arrive on {day}."),
                ("Where will the parcel arrive?|To which city does the parcel go?", f"It will arrive in {city}."),
            ],
        ),
        (
            f"Everything together costs {price} euros.",
            [("How much does it cost?|What is the price?", f"It costs {price} euros.")],
        ),
        (
            f"Questions are answered by {seller}.",
            [("Who answers questions?|Whom can I ask?", f"{seller} answers questions.")],
        ),
    ]
    return _passage(rng, facts, who, [who, seller])


def invention(rng: Random) -> Passage:
    """A made-up thing in made-up terms, so that the answer can only come from the text."""
    thing, maker, part = invented(rng), rng.choice(NAMES), rng.choice(NOUNS)
    land, year, weight = capital(invented(rng)), rng.randint(1500, 2020), rng.randint(2, 900)
    colour, use = (
        rng.choice(COLOURS),
        pick(
            rng, "measure the wind|boil water|catch fish|cut wood|count coins|print letters|clean windows|grind grain"
        ),
    )
    facts = [
        (
            f"A {thing} is a tool to {use}.",
            [
                (f"What is a {thing}?", f"A {thing} is a tool to {use}."),
                (f"What is a {thing} used for?|What can you do with a {thing}?", f"It is used to {use}."),
            ],
        ),
        (
            f"It was invented by {maker} in {year}.",
            [
                (f"Who invented the {thing}?|Who made the first {thing}?", f"It was invented by {maker}."),
                (f"When was the {thing} invented?|In which year was it invented?", f"It was invented in {year}."),
            ],
        ),
        (
            f"Most of them come from {land}.",
            [
                (
                    f"Where do most of them come from?|Where does the {thing} come from?",
                    f"Most of them come from {land}.",
                )
            ],
        ),
        (
            f"It weighs {weight} grams and is {colour}.",
            [
                (f"How heavy is the {thing}?|What does it weigh?", f"It weighs {weight} grams."),
                (f"What colour is the {thing}?", f"It is {colour}."),
            ],
        ),
        (
            f"Inside there is {article(part)}.",
            [("What is inside?|What is in it?", f"Inside there is {article(part)}.")],
        ),
    ]
    return _passage(rng, facts, thing, [maker])


def group(rng: Random) -> Passage:
    """Several people, each with one thing."""
    names = some(rng, NAMES, 3, 5)
    verb, options = rng.choice(
        [
            ("likes", FOODS),
            ("has a new", OBJECTS),
            ("works as a", JOBS),
            ("lives in", CITIES),
            ("plays with a", OBJECTS),
            ("enjoys", HOBBIES),
        ]
    )
    things = rng.sample(options, len(names))
    ask = {
        "likes": "What does {x} like?",
        "has a new": "What does {x} have?",
        "works as a": "What is the job of {x}?",
        "lives in": "Where does {x} live?",
        "plays with a": "What does {x} play with?",
        "enjoys": "What does {x} enjoy?",
    }[verb]
    facts = []
    for name, thing in zip(names, things, strict=True):
        sentence = f"{name} {verb} {thing}."
        facts.append((sentence, [(ask.format(x=name), sentence), (f"Who {verb} {thing}?", f"{name} {verb} {thing}.")]))
    passage = _passage(rng, facts, names[0], names)
    return Passage(
        passage.sentences,
        [
            *passage.questions,
            (
                "Which names are in the text?|List the names.|Who is in the text?|List all people in the text.",
                listing(names),
            ),
        ],
        names,
    )


Fact = tuple[str, list[tuple[str, str]]]


def _passage(rng: Random, facts: list[Fact], name: str, names: list[str]) -> Passage:
    """A passage of some of the facts, the first one always first."""
    kept = [facts[0], *rng.sample(facts[1:], rng.randint(min(2, len(facts) - 1), len(facts) - 1))]
    text = " ".join(sentence for sentence, _ in kept)
    questions = [(ask.replace("{n}", name), answer) for _, pairs in kept for ask, answer in pairs]
    return Passage([sentence for sentence, _ in kept], questions, [one for one in names if one in text])


KINDS: tuple[Callable[[Random], Passage], ...] = (person, event, order, invention, group)


def passage(rng: Random) -> Passage:
    """A passage of any kind."""
    return rng.choice(KINDS)(rng)
