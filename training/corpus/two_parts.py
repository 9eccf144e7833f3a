"""Questions with two parts about a pasted text: the second part is often a few words that lean on the first."""

from __future__ import annotations

from random import Random

from training.corpus.base import Message, article, assistant, capital, pick, typed, user
from training.corpus.everyday import everyday
from training.corpus.happenings import happening
from training.corpus.parallels import parallel
from training.corpus.passages import Passage, passage
from training.corpus.phrasing import ask, posed
from training.corpus.text_facts import fact_passage
from training.corpus.words import (
    ANIMALS,
    CITIES,
    DAYS,
    FOODS,
    JOBS,
    MONTHS,
    NAMES,
    NOUNS,
    OBJECTS,
    PLACES,
    SURNAMES,
    invented,
    number,
)

Part = tuple[str, str, str]
"""A whole question, the few words that ask the same after another one, and the answer."""

_DEEDS = (
    "repaired repair|sold sell|bought buy|lost lose|found find|painted paint|hid hide|made make|built build|broke break"
    "|left leave|washed wash|forgot forget|opened open|saw see|drew draw|picked pick|burnt burn|cooked cook|kept keep"
)
_HABITS = (
    "mends mend|sells sell|paints paint|teaches teach|collects collect|makes make|cooks cook|grows grow|draws"
    " draw|builds build|cleans clean|feeds feed|delivers deliver"
)
_KIN = "sister|brother|uncle|aunt|cousin|neighbour|friend|father|mother|son|daughter"
_KEYS = "code|password|number|pin|address|phone number|room|table number"


def _time(rng: Random) -> str:
    """A time of the day."""
    return rng.choice(
        (f"{rng.randint(6, 22)}:{rng.choice(('00', '10', '15', '30', '45'))}", f"{rng.randint(1, 12)} o'clock")
    )


def _day(rng: Random) -> str:
    """A day or a date."""
    return rng.choice((rng.choice(DAYS), f"{rng.randint(1, 30)} {rng.choice(MONTHS)}"))


def _side(rng: Random) -> str:
    """Somebody who takes part in a contest: a person, now and then one of an unknown name, or a team."""
    return rng.choice(
        (
            rng.choice(NAMES),
            capital(invented(rng)),
            f"{rng.choice(NAMES)} {capital(invented(rng))}",
            f"{pick(rng, 'Team|Group|School|FC')} {rng.choice((capital(invented(rng)), rng.choice(CITIES)))}",
            f"the {capital(rng.choice((*NOUNS, *ANIMALS)))}s",
        )
    )


def _deed(rng: Random) -> tuple[list[str], list[Part]]:
    """Somebody did something somewhere at a time."""
    who, thing, place, day = (
        rng.choice((rng.choice(NAMES), capital(invented(rng)))),
        rng.choice(OBJECTS),
        rng.choice(PLACES),
        _day(rng),
    )
    past, base = rng.choice(_DEEDS.split("|")).split(" ")
    said = pick(
        rng,
        f"On {day} {who} {past} {article(thing)} in the {place}."
        f"|{who} {past} {article(thing)} in the {place} on {day}.",
    )
    return [said], [
        (f"What did {who} {base}?", "what", capital(article(thing)) + "."),
        (f"Where did {who} {base} the {thing}?", "where", f"In the {place}."),
        (f"When did {who} {base} the {thing}?", "when|on which day", f"On {day}."),
        (f"Who {past} the {thing}?", "who", f"{who}."),
    ]


def _works(rng: Random) -> tuple[list[str], list[Part]]:
    """Two people, with what they do and where."""
    (one, two), (here, there), kin = rng.sample(NAMES, 2), rng.sample(CITIES, 2), pick(rng, _KIN)
    job, thing = rng.choice(JOBS), rng.choice(OBJECTS)
    third, base = rng.choice(_HABITS.split("|")).split(" ")
    owner = pick(rng, "Her|His")
    sentences = [f"{one} is {article(job)} in {here}.", f"{owner} {kin} {two} {third} {thing}s in {there}."]
    return sentences, [
        *rng.choice(
            (
                [
                    (f"What does {two} {base}?", "what", f"{capital(thing)}s."),
                    (f"Where does {two} work?", "where", f"In {there}."),
                ],
                [
                    (f"What does {two} do?", "what|what work", f"{two} {third} {thing}s."),
                    (f"Where is {two}?", "where|in which city", f"In {there}."),
                ],
                [
                    (f"What is {one}?", "what", f"{capital(article(job))}."),
                    (f"Where does {one} work?", "where", f"In {here}."),
                ],
                [
                    (f"What does {one} do?", "what", f"{one} is {article(job)}."),
                    (f"Where is {one}?", "where|in which city", f"In {here}."),
                ],
                [
                    (f"Who {third} {thing}s?", "who", f"{two}."),
                    (f"In which city does the {kin} work?", "in which city|where", f"In {there}."),
                ],
            )
        )
    ]


def _trip(rng: Random) -> tuple[list[str], list[Part]]:
    """A departure with its place and price."""
    kind, gate = rng.choice(
        (("train", "platform"), ("coach", "bay"), ("flight", "gate"), ("ferry", "pier"), ("tram", "stop"))
    )
    town, clock, at, cost = rng.choice(CITIES), _time(rng), rng.randint(1, 30), rng.randint(2, 90)
    sentences = [
        pick(
            rng,
            f"The {kind} to {town} goes at {clock} from {gate} {at}."
            f"|At {clock} the {kind} for {town} leaves {gate} {at}.",
        ),
        pick(rng, f"It costs {cost} euros.|The fare is {cost} euros.|You pay {cost} euros."),
    ]
    return sentences, [
        (f"When does the {kind} go?|What time is the {kind} to {town}?", "when|at what time", f"At {clock}."),
        (
            f"Where does the {kind} go from?|Which {gate} is it?",
            f"from which {gate}|from where|which {gate}",
            f"From {gate} {at}.",
        ),
        (
            f"How much is the {kind}?|What does it cost?",
            "how much is it|for how much|what does it cost",
            f"{cost} euros.",
        ),
        (f"Where does the {kind} go?", "where to|to which city", f"To {town}."),
    ]


def _notice(rng: Random) -> tuple[list[str], list[Part]]:
    """An invitation: when, where, what to bring, and a code."""
    who, day, clock, place = rng.choice(NAMES), _day(rng), _time(rng), rng.choice(PLACES)
    thing, key, code = rng.choice(OBJECTS + FOODS), pick(rng, _KEYS), number(rng)
    event = pick(rng, "dinner|picnic|concert|meeting|lesson|game|film|barbecue|sale|rehearsal")
    sentences = [
        pick(
            rng, f"{capital(event)} with {who} on {day} at {clock}.|{who} invites you to a {event} on {day} at {clock}."
        ),
        pick(rng, f"We meet in the {place}.|It is in the {place}.|Come to the {place}."),
        pick(rng, f"Please bring {article(thing)}.|You need {article(thing)}.|Do not forget {article(thing)}."),
        f"The {key} is {code}.",
    ]
    return sentences, [
        (f"When is the {event}?", "when", f"On {day} at {clock}."),
        (f"Where is the {event}?|Where do we meet?", "where", f"In the {place}."),
        (
            "What should I bring?|What do I need?|What must I bring along?",
            "what do I need",
            f"{capital(article(thing))}.",
        ),
        (f"What is the {key}?|Which {key} is it?", f"what is the {key}|which {key}", f"{code}."),
        (f"Who gives the {event}?|Who invites me?", "who invites me|with whom", f"{who}."),
    ]


def _result(rng: Random) -> tuple[list[str], list[Part]]:
    """A contest: who came first, with how much, when and where."""
    one, two = _side(rng), _side(rng)
    game, unit = rng.choice(
        (("race", "minutes"), ("quiz", "answers"), ("chess cup", "games"), ("vote", "votes"), ("election", "votes"))
    )
    count, town, day = rng.randint(2, 90), rng.choice(CITIES), _day(rng)
    sentences = [
        pick(
            rng,
            f"{one} won the {game} in {town} with {count} {unit}.|With {count} {unit} {one} won the {game} in {town}.",
        ),
        pick(rng, f"{capital(two)} came second.|Second was {two}."),
        f"It was on {day}.",
    ]
    return sentences, [
        (f"Who won the {game}?|Who was first?|Who won?", "who won", f"{capital(one)}."),
        (
            f"How many {unit} did {one} have?",
            f"with how many {unit}|how many {unit} were it|with how much",
            f"{count} {unit}.",
        ),
        ("Who came second?", "who was second|who came second", f"{capital(two)}."),
        (f"Where was the {game}?", "where|in which city", f"In {town}."),
        (f"When was the {game}?", "when|on which day", f"On {day}."),
    ]


def _owned(rng: Random) -> tuple[list[str], list[Part]]:
    """Somebody's animal and home."""
    who, pet = rng.sample(NAMES, 2)
    animal, town, age = rng.choice(ANIMALS), rng.choice(CITIES), rng.randint(1, 30)
    family = rng.choice(SURNAMES)
    sentences = [
        f"{who} {family} has {article(animal)} called {pet}.",
        f"They live in {town}.",
        f"{pet} is {age} years old.",
    ]
    return sentences, [
        (f"What is the {animal} called?", "what is it called", f"{pet}."),
        (f"How old is {pet}?|How old is the {animal}?", "how old is it", f"{age} years."),
        (f"Where do they live?|Where does {who} live?", "where do they live|where", f"In {town}."),
        (f"Which animal does {who} have?|What pet does {who} have?", "which animal", f"{capital(article(animal))}."),
    ]


KINDS = (_deed, _deed, _works, _works, _trip, _notice, _notice, _result, _owned)
_JOINS = "{x}, and {y}?|{x} and {y}?|{x} and {y}?|{x}? And {y}?|{x}? and {y}|{x}? Also, {y}?|{x}, {y}?|{x} + {y}"
_APART = (
    "{x}? {y}?|{x}? And {y}?|{x} and {y}?|1. {x}? 2. {y}?|Two questions: {x}? {y}?|{x}?\n{y}?|{x}? Also: {y}?|{x}; {y}?"
)
_OPENERS = (
    "What",
    "Where",
    "When",
    "Who",
    "Which",
    "How",
    "At",
    "In",
    "On",
    "From",
    "To",
    "Whose",
    "For",
    "Since",
    "Why",
)


def leaning(rng: Random) -> tuple[str, str, str]:
    """A text, a question whose second part leans on the first, and both answers."""
    sentences, parts = rng.choice(KINDS)(rng)
    chosen = rng.sample(parts, 3 if len(parts) > 2 and rng.random() < 0.12 else 2)
    if parts is not chosen and rng.random() < 0.5:
        chosen.sort(key=parts.index)
    heads = [pick(rng, chosen[0][0]).rstrip("?"), *(pick(rng, short) for _, short, _ in chosen[1:])]
    if heads[0].startswith("Who") and heads[1] == "what":
        heads[1] = "what was it"
    asked = pick(rng, _JOINS).format(x=", ".join(heads[:-1]), y=heads[-1])
    if rng.random() < 0.25:
        other = [sentence for make in rng.sample(KINDS, 1) for sentence in make(rng)[0][:1]]
        sentences = [*other, *sentences] if rng.random() < 0.5 else [*sentences, *other]
    return pick(rng, " | |\n").join(sentences), asked, " ".join(answer for _, _, answer in chosen)


def whole(rng: Random) -> tuple[str, str, str]:
    """A text of another topic, two whole questions at once, and both answers."""
    source: Passage = rng.choice((fact_passage, passage, everyday, happening, parallel))(rng)
    questions = [pair for pair in source.questions if pair[1].endswith(".") and len(pair[1]) < 70]
    if len(questions) < 2:
        return whole(rng)
    (one, first), (two, second) = rng.sample(questions, 2)
    if first == second:
        return whole(rng)
    one, two = pick(rng, one).rstrip("?"), pick(rng, two).rstrip("?")
    form = pick(rng, _APART)
    if form.index("{y}") and "? {y}" not in form and "\n{y}" not in form and two.startswith(_OPENERS):
        two = two[:1].lower() + two[1:]
    glue = "\n" if source.sentences[0][-1] not in ".?!" or ":" in source.sentences[-1] else " "
    return glue.join(source.sentences), form.format(x=one, y=two), f"{first} {second}"


def make(rng: Random) -> list[Message]:
    """A text with a question of two parts, now and then with a single question before or after it."""
    text, asked, answer = leaning(rng) if rng.random() < 0.65 else whole(rng)
    said = ask(rng, asked) if rng.random() < 0.6 else typed(rng, asked)
    return [user(posed(rng, said, text, 0.35)), assistant(answer)]
