"""Short accounts of who did what, where and when, of others or of the writer, with a question to each part."""

from __future__ import annotations

from random import Random

from training.corpus.base import article, capital, pick
from training.corpus.passages import Passage
from training.corpus.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    JOBS,
    MONTHS,
    NAMES,
    OBJECTS,
    PLACES,
    invented,
)

Asked = tuple[str, str]

_DEEDS = (
    "left leave|lost lose|found find|bought buy|sold sell|hid hide|forgot forget|broke break|dropped drop|painted"
    " paint|washed wash|fixed fix|parked park|saw see|took take|put put|met meet|kept keep|cleaned clean|opened"
    " open|showed show|drew draw|built build|stored store|packed pack|wrapped wrap|read read|burnt burn|borrowed borrow"
)
_MOVES = (
    "walked walk|went go|ran run|rode ride|drove drive|travelled travel|flew fly|cycled cycle|sailed sail|hurried hurry"
)
_WISHES = (
    "call phone visit write come leave arrive start cook pay meet return begin travel move stop train sing swim rest"
)
_AT = "at the|in the|behind the|near the|under the|next to the|outside the|in front of the"
_WEATHER = "in the rain|in the snow|in the dark|by bus|on foot|by bike|with a friend|in a hurry|alone|by train"
_KIN = "sister|brother|uncle|aunt|cousin|neighbour|friend|grandfather|grandmother|teacher|colleague|son|daughter"
_OWN = {"I": "my", "He": "his", "She": "her"}
_GREETINGS = "Hi|Hello|Dear|Hey|Good morning"
_ENDS = "Love|Best|Cheers|See you|Bye|Yours|Kisses|Best wishes|Take care"


def _time(rng: Random) -> str:
    """When something happens."""
    kind = rng.choice(("day", "day", "day", "month", "hour", "part", "year"))
    if kind == "day":
        return f"on {rng.choice(DAYS)}" + pick(rng, "||| morning| evening")
    if kind == "month":
        return f"in {rng.choice(MONTHS)}"
    if kind == "hour":
        return pick(rng, "at {}|at {} o'clock").format(rng.randint(1, 12))
    if kind == "part":
        return pick(rng, "last night|this morning|yesterday|last week|after lunch|before breakfast|at noon")
    return f"in {rng.randint(1600, 2030)}"


def _thing(rng: Random) -> str:
    """A thing with or without a word before it."""
    before = rng.choice(("", "", rng.choice(COLOURS) + " ", rng.choice(ADJECTIVES) + " "))
    return before + rng.choice((rng.choice(OBJECTS), rng.choice(OBJECTS), rng.choice(ANIMALS)))


def _name(rng: Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.85 else capital(invented(rng))


def _place(rng: Random) -> str:
    return f"{pick(rng, _AT)} {rng.choice(PLACES)}" if rng.random() < 0.8 else f"in {rng.choice(CITIES)}"


def _deed(rng: Random, who: str, subject: str) -> tuple[str, list[Asked]]:
    """`subject` did something with a thing somewhere at a time; questions name `who`."""
    past, base = rng.choice(_DEEDS.split("|")).split(" ")
    thing, place, time = _thing(rng), _place(rng), _time(rng)
    has_place, has_time = rng.random() < 0.75, rng.random() < 0.6
    held = f"{_OWN[subject]} {thing}" if subject in _OWN and rng.random() < 0.5 else article(thing)
    said = f"{subject} {past} {held}" + (f" {place}" if has_place else "") + (f" {time}" if has_time else "")
    the = pick(rng, f"the {thing}|the {thing.split(' ')[-1]}")
    asked = [
        (f"What did {who} {base}?|what did {who} {base}", capital(article(thing)) + "."),
        (f"Who {past} {the}?|Who {past} something?", f"{who}."),
    ]
    if has_place:
        asked.append((f"Where did {who} {base} {the}?|Where did {who} {base} it?", capital(place) + "."))
    if has_time:
        asked.append((f"When did {who} {base} {the}?|When was that?", capital(time) + "."))
    return said, asked


def _move(rng: Random, who: str, subject: str) -> tuple[str, list[Asked]]:
    """`subject` went somewhere in some way or at some time."""
    past, base = rng.choice(_MOVES.split("|")).split(" ")
    where = rng.choice((f"to the {rng.choice(PLACES)}", f"to {rng.choice(CITIES)}"))
    how, time = pick(rng, _WEATHER), _time(rng)
    has_how = rng.random() < 0.5
    said = f"{subject} {past} {where} " + (how if has_how else time)
    asked = [
        (f"Where did {who} {base}?|Where did {who} {base} to?", capital(where) + "."),
        (f"Who {past} {where}?", f"{who}."),
    ]
    asked.append(
        (f"How did {who} {base} there?", capital(how) + ".")
        if has_how
        else (f"When did {who} {base} {where}?", capital(time) + ".")
    )
    return said, asked


def _plan(rng: Random, who: str, subject: str) -> tuple[str, list[Asked]]:
    """A plan of `subject`, with its time."""
    base, time = rng.choice(_WISHES.split(" ")), _time(rng)
    while time.startswith(("last", "this", "yester")):
        time = _time(rng)
    whom = (
        pick(rng, "||you |us |my mother |the boss |everybody ")
        if base in ("call", "phone", "visit", "meet", "pay")
        else ""
    )
    asked = [(f"When will {who} {base}?|When is {who} going to {base}?|when will {who} {base}", capital(time) + ".")]
    asked.append((f"What will {who} do {time}?", capital(f"{base} {whom}".strip()) + "."))
    return f"{subject} will {base} {whom}{time}", asked


def _told_once(asked: list[Asked]) -> list[Asked]:
    """The questions that have one answer."""
    heads = [ask for ask, _ in asked]
    return [(ask, answer) for ask, answer in asked if heads.count(ask) == 1]


def account(rng: Random) -> Passage:
    """Two to four sentences about one or two people, each after the first with he or she."""
    who = _name(rng)
    pronoun = rng.choice(("He", "She"))
    sentences: list[str] = []
    asked: list[Asked] = []
    heads: set[str] = set()
    for at in range(rng.choice((1, 2, 2, 3, 3, 4))):
        subject = who if at == 0 or rng.random() < 0.15 else pronoun
        kind = rng.choice((_deed, _deed, _move, _plan))
        said, questions = kind(rng, who, subject)
        if questions[0][0] not in heads:
            heads.add(questions[0][0])
            sentences.append(said)
            asked += questions
    if len(sentences) > 2 and rng.random() < 0.4:
        last = sentences.pop()
        sentences[-1] += " and " + " ".join(last.split(" ")[1:])
    return Passage([sentence + "." for sentence in sentences], _told_once(asked), [who])


def letter(rng: Random) -> Passage:
    """A message in the first person, with a greeting before it or the writer's name after it."""
    writer, reader = rng.sample(NAMES, 2)
    sentences: list[str] = []
    asked: list[Asked] = []
    heads: set[str] = set()
    for _ in range(rng.choice((1, 2, 2, 3))):
        kind = rng.choice((_deed, _move, _plan, _plan))
        said, questions = kind(rng, writer, "I")
        if questions[0][0] not in heads:
            heads.add(questions[0][0])
            sentences.append(said + ".")
            asked += questions
    if rng.random() < 0.4:
        thing, quality = rng.choice(OBJECTS + PLACES), rng.choice(ADJECTIVES)
        sentences.insert(rng.randint(0, len(sentences)), f"The {thing} is {quality}.")
        asked.append((f"What is the {thing} like?|How is the {thing}?", f"The {thing} is {quality}."))
    sentences[0] = f"{pick(rng, _GREETINGS)} {reader}{pick(rng, ', |! ')}" + sentences[0]
    asked.append(("Who wrote this?|Who is the message from?|Who sent it?", f"{writer}."))
    asked.append(("Who is it for?|To whom is it written?|Who gets the message?", f"{reader}."))
    return Passage([*sentences, f"{pick(rng, _ENDS)}, {writer}"], _told_once(asked), [])


def family(rng: Random) -> Passage:
    """Somebody's relative or pet, its name, colour, work and home."""
    first, second = rng.sample(NAMES, 2)
    kin, animal, colour = pick(rng, _KIN), rng.choice(ANIMALS), rng.choice(COLOURS)
    pet = rng.choice((rng.choice(NAMES), capital(invented(rng)), rng.choice(OBJECTS).capitalize()))
    city, job, age = rng.choice(CITIES), rng.choice(JOBS), rng.randint(2, 99)
    named = pick(rng, "called|named")
    plural = rng.random() < 0.5
    facts: list[tuple[str, list[Asked]]] = [
        (
            f"{pick(rng, 'My|Her|His|Our')} {kin} {first} has {article(colour)} {animal} {named} {pet}.",
            [
                (
                    f"What is the {animal} called?|What is the name of the {animal}?|the name of the {animal}?",
                    f"{pet}.",
                ),
                (f"What colour is the {animal}?", f"The {animal} is {colour}."),
                (f"Who has {article(animal)}?|Whose {animal} is it?", f"{first}."),
                (f"What is the {kin} called?|What is the name of the {kin}?", f"{first}."),
                (f"Which animal does {first} have?|What pet does {first} have?", f"{capital(article(animal))}."),
            ],
        ),
        (
            f"{'They live' if plural else first + ' lives'} in {city}.",
            [
                (
                    "Where do they live?|In which city do they live?|Where is their home?"
                    if plural
                    else f"Where does {first} live?|In which city does {first} live?",
                    f"In {city}.",
                )
            ],
        ),
        (
            f"{first} is {article(job)}.",
            [(f"What does {first} do?|What is the job of {first}?", f"{first} is {article(job)}.")],
        ),
        (f"{pet} is {age} years old.", [(f"How old is {pet}?|How old is the {animal}?", f"{age} years.")]),
        (f"{second} visits them {pick(rng, 'every')} {rng.choice(DAYS)}.", [("Who visits them?", f"{second}.")]),
    ]
    rest = rng.sample(facts[1:], rng.randint(1, 3))
    chosen = [facts[0], *rest]
    return Passage([said for said, _ in chosen], [pair for _, asked in chosen for pair in asked], [])


def happening(rng: Random) -> Passage:
    """One of the three."""
    found = rng.choices((account, letter, family), (45, 30, 25))[0](rng)
    return found if found.questions and found.sentences else happening(rng)
