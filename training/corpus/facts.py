"""The little that the model knows beside small sums: some capitals, days, opposites and the like."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.phrasing import around
from training.corpus.sums import large_sum, sum_of
from training.corpus.unknown import unknown_of
from training.corpus.words import DAYS, MONTHS

CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Portugal": "Lisbon",
    "England": "London",
    "the United Kingdom": "London",
    "Ireland": "Dublin",
    "Austria": "Vienna",
    "Switzerland": "Bern",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Denmark": "Copenhagen",
    "Finland": "Helsinki",
    "Poland": "Warsaw",
    "Greece": "Athens",
    "Japan": "Tokyo",
    "China": "Beijing",
    "India": "New Delhi",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Brazil": "Brasilia",
    "Canada": "Ottawa",
    "Australia": "Canberra",
    "Russia": "Moscow",
    "the United States": "Washington",
    "Turkey": "Ankara",
    "Belgium": "Brussels",
    "the Netherlands": "Amsterdam",
}
CAPITAL_FORMS = (
    "What is the capital of {x}?|What's the capital of {x}?|Capital of {x}?|Which city is the capital of"
    " {x}?|Name the capital of {x}.|Tell me the capital of {x}.|Do you know the capital of {x}?|the capital of"
    " {x}|whats the capital of {x}|{x}: capital?|Which is the capital of {x}?|I forgot the capital of {x}.|{x}"
    " has which capital?|which city is {x}'s capital|Can you name the capital of {x}?|and of {x}? I mean the"
    " capital|What city is the capital of {x}?|Give me the capital of {x}.|Say the capital of {x}.|What is {x}'s"
    " capital city?|capital city of {x}|What is the capital city of {x}?|Where does the government of {x} sit?|I"
    " need to know the capital of {x}.|the capital of {x} is?|Which town is the capital of {x}?|Quiz: capital of"
    " {x}?|Remind me, what is the capital of {x}?|my homework asks for the capital of {x}|{x}, what is its"
    " capital?|Do u know the capital of {x}|Could you tell me the capital of {x}?|capital {x}|What's {x}'s"
    " capital?|Please name the capital of {x}."
)
OPPOSITES = (
    "big small|hot cold|up down|day night|old new|fast slow|happy sad|full empty|open closed|light dark|high low|left"
    " right|good bad|rich poor|wet dry|hard soft|long short|early late|loud quiet|strong weak"
)
OTHERS = (
    ("What colour is the sky?|Which colour has the sky?", "The sky is blue."),
    ("What colour is grass?|Which colour has grass?", "Grass is green."),
    ("What colour is snow?", "Snow is white."),
    ("What colour is a lemon?|What colour is a banana?", "It is yellow."),
    ("How many days are in a week?|How many days does a week have?", "A week has 7 days."),
    ("How many months are in a year?|How many months does a year have?", "A year has 12 months."),
    ("How many hours are in a day?|How many hours does a day have?", "A day has 24 hours."),
    ("How many minutes are in an hour?|How many minutes does an hour have?", "An hour has 60 minutes."),
    (
        "How many legs does a dog have?|How many legs does a cat have?|How many legs does a horse have?",
        "It has 4 legs.",
    ),
    ("How many legs does a spider have?", "A spider has 8 legs."),
    ("What does a cow say?|What sound does a cow make?", "A cow says moo."),
    ("What does a cat say?|What sound does a cat make?", "A cat says meow."),
    ("What does a dog say?|What sound does a dog make?", "A dog says woof."),
    ("What do bees make?", "Bees make honey."),
    ("List the days of the week.|What are the days of the week?|Name the days of the week.", ", ".join(DAYS) + "."),
    ("List the months.|What are the months of the year?|Name the months of the year.", ", ".join(MONTHS) + "."),
    ("Count to ten.|Count from 1 to 10.|Can you count to 10?|count to 10", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10."),
    ("Count to five.|Count from 1 to 5.|Can you count to 5?|count to 5", "1, 2, 3, 4, 5."),
    (
        "What is the alphabet?|Say the alphabet.|List the letters.",
        "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z.",
    ),
)


def capital_of(rng: Random) -> tuple[str, str]:
    """The capital of a country, or the country of a capital."""
    country = rng.choice(list(CAPITALS))
    city = CAPITALS[country]
    if rng.random() < 0.2 and country not in ("England", "the United Kingdom"):
        ask = pick(
            rng, "{c} is the capital of which country?|Which country has the capital {c}?|In which country is {c}?"
        )
        return ask.format(c=city), f"{city} is the capital of {country}."
    ask = pick(rng, CAPITAL_FORMS)
    return ask.format(x=country), f"The capital of {country} is {city}."


def next_of(rng: Random) -> tuple[str, str]:
    """Day or month before or after another."""
    row, noun = rng.choice(((DAYS, "day"), (MONTHS, "month")))
    at, step = rng.randrange(len(row)), rng.choice((1, -1))
    word = "after" if step == 1 else "before"
    ask = pick(
        rng,
        "Which {n} comes {w} {d}?|What {n} is {w} {d}?|What comes {w} {d}?|which {n} is {w} {d}|the {n} {w} {d}?|{w}"
        " {d} comes which {n}?|Tell me the {n} {w} {d}.|Name the {n} that comes {w} {d}.",
    )
    return ask.format(n=noun, w=word, d=row[at]), f"{row[(at + step) % len(row)]} comes {word} {row[at]}."


def opposite(rng: Random) -> tuple[str, str]:
    """The opposite of a word."""
    pair = pick(rng, OPPOSITES).split()
    first, second = pair if rng.random() < 0.5 else reversed(pair)
    ask = pick(
        rng,
        "What is the opposite of {x}?|The opposite of {x}?|opposite of {x}|Give me the opposite of {x}.|what's the"
        " opposite of {x}|Tell me the opposite of {x}.|Which word is the opposite of {x}?|{x} is the opposite of"
        " what?|antonym of {x}|What is not {x}?|Name the opposite of {x}.",
    )
    return ask.format(x=first), f"The opposite of {first} is {second}."


def other(rng: Random) -> tuple[str, str]:
    """Something else that a child knows."""
    ask, answer = rng.choice(OTHERS)
    return pick(rng, ask), answer


def unknown(rng: Random) -> tuple[str, str]:
    """A question that looks like the others and is beyond the model."""
    return unknown_of(rng, CAPITAL_FORMS)


def make(rng: Random) -> list[Message]:
    """One to three small questions."""
    messages: list[Message] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice((sum_of, sum_of, large_sum, capital_of, capital_of, next_of, opposite, other, unknown))
        ask, answer = kind(rng)
        after_capital = bool(messages) and messages[-1]["content"].startswith("The capital of")
        if kind is capital_of and after_capital and answer.startswith("The capital of") and rng.random() < 0.5:
            country = answer.removeprefix("The capital of ").split(" is ")[0]
            ask = pick(rng, "And {x}?|and of {x}?|And of {x}?|{x}?|What about {x}?|and {x}|now {x}").format(x=country)
        messages += [user(around(rng, ask if kind is sum_of else typed(rng, ask), 0.08)), assistant(answer)]
    return with_system(rng, messages, 0.06)
