"""Everyday texts with facts: a list of prices, a recipe, a message, a timetable, a contact, a report."""

from __future__ import annotations

from random import Random

from training.corpus.base import article, listing, pick
from training.corpus.passages import Passage
from training.corpus.words import CITIES, DAYS, FOODS, JOBS, NAMES, NOUNS, OBJECTS, PLACES, SURNAMES, invented, number

Asked = tuple[str, str]


def _clock(rng: Random) -> str:
    """A time of the day."""
    return f"{rng.randint(6, 22)}:{rng.choice(('00', '05', '15', '20', '30', '40', '45', '50'))}"


def prices(rng: Random) -> Passage:
    """Things with their prices, in lines or in one sentence."""
    things = rng.sample(OBJECTS + FOODS, rng.randint(3, 6))
    costs = [str(rng.randint(1, 99)) for _ in things]
    unit = pick(rng, "euros|dollars|pounds|francs")
    if rng.random() < 0.6:
        sign = pick(rng, ": | - | costs | = ")
        rows = [f"{thing}{sign}{cost} {unit}" for thing, cost in zip(things, costs, strict=True)]
    else:
        pairs = [f"{thing} for {cost} {unit}" for thing, cost in zip(things, costs, strict=True)]
        rows = [f"We have {listing(pairs)}."]
    asked: list[Asked] = []
    for thing, cost in zip(things, costs, strict=True):
        ask = (
            f"How much is the {thing}?|What does the {thing} cost?|What is the price of {thing}?|price of the {thing}?"
        )
        asked.append((ask, f"{cost} {unit}."))
        if costs.count(cost) == 1:
            asked.append((f"What costs {cost} {unit}?|What can I get for {cost} {unit}?", f"The {thing}."))
    return Passage(rows, asked, [])


def recipe(rng: Random) -> Passage:
    """Ingredients and time of a dish."""
    parts = rng.sample(FOODS, rng.randint(3, 5))
    counts = [str(rng.randint(2, 900)) for _ in parts]
    dish = f"{rng.choice(FOODS)} {pick(rng, 'soup|cake|pie|salad|stew|bake')}"
    minutes, heat, people = rng.randint(5, 90), rng.randrange(120, 240, 5), rng.randint(2, 12)
    needed = listing([f"{count} g of {part}" for count, part in zip(counts, parts, strict=True)])
    asked: list[Asked] = [
        ("How long does it bake?|How many minutes in the oven?|How long is the baking time?", f"{minutes} minutes."),
        ("How hot is the oven?|At what temperature do I bake it?|What temperature?", f"{heat} degrees."),
        ("For how many people is it?|How many people does it feed?|How many portions?", f"For {people} people."),
        ("What is the recipe for?|What do I make here?|Which dish is it?", f"It is for {dish}."),
    ]
    for count, part in zip(counts, parts, strict=True):
        asked.append((f"How much {part} do I need?|How many grams of {part}?|What amount of {part}?", f"{count} g."))
    rows = [
        f"Recipe for {dish}, for {people} people.",
        f"You need {needed}.",
        f"Mix everything and bake it for {minutes} minutes at {heat} degrees.",
    ]
    return Passage(rows, asked, [])


def message(rng: Random) -> Passage:
    """A letter about a meeting."""
    writer, reader, other = rng.sample(NAMES, 3)
    day, moved, clock, place = *rng.sample(DAYS, 2), _clock(rng), rng.choice(PLACES)
    bring, room = rng.choice(OBJECTS), f"{pick(rng, 'room|hall|office|gate')} {number(rng)}"
    rows = [
        f"Dear {reader},",
        f"our meeting on {day} has been moved to {moved} at {clock}.",
        f"We will meet in {room} beside the {place}.",
        f"Please bring your {bring}, and tell {other} about it.",
        f"{pick(rng, 'Best wishes|Yours|Kind regards|See you')}, {writer}",
    ]
    asked: list[Asked] = [
        ("Who wrote this?|Who is it from?|Who sent the message?|Who is the sender?", f"{writer} wrote it."),
        ("Who is it for?|Who gets the message?|To whom is it written?|Who is it addressed to?", f"It is for {reader}."),
        (
            "When is the meeting?|When will we meet?|What is the new day?|To which day was it moved?",
            f"On {moved} at {clock}.",
        ),
        ("When was the meeting planned at first?|Which day was it before?|What was the old day?", f"On {day}."),
        ("Where is the meeting?|Where do we meet?|In which room is it?|Which place?", f"In {room} beside the {place}."),
        ("What should I bring?|What do I have to bring?|What is needed?|What must be brought?", f"Your {bring}."),
        ("Who should be told?|Whom should I tell?|Who else has to know?", f"{other} should be told."),
        ("At what time is it?|What time?|What time does it begin?", f"At {clock}."),
    ]
    return Passage(rows, asked, [writer, reader, other])


def timetable(rng: Random) -> Passage:
    """Departures with times and places."""
    kind, gate = rng.choice((("train", "platform"), ("bus", "stop"), ("flight", "gate"), ("ferry", "pier")))
    towns = rng.sample(CITIES, rng.randint(2, 4))
    clocks, gates = [_clock(rng) for _ in towns], [str(rng.randint(1, 40)) for _ in towns]
    form = pick(
        rng,
        "The {k} to {t} leaves at {c} from {g} {n}.|{t} {c} {g} {n}|{t}: {c}, {g} {n}|At {c} the {k} to {t} leaves from"
        " {g} {n}.",
    )
    rows, asked = [], []
    for town, clock, one in zip(towns, clocks, gates, strict=True):
        rows.append(form.format(k=kind, t=town, c=clock, g=gate, n=one))
        asked += [
            (
                f"When does the {kind} to {town} leave?|When can I go to {town}?|What time is the {kind} to {town}?",
                f"At {clock}.",
            ),
            (
                f"Where does the {kind} to {town} leave?|Which {gate} for {town}?|From which {gate} do I go to {town}?",
                f"From {gate} {one}.",
            ),
        ]
        if clocks.count(clock) == 1:
            asked.append(
                (f"Where does the {kind} at {clock} go?|Which {kind} leaves at {clock}?", f"It goes to {town}.")
            )
    return Passage(rows, asked, [])


def contact(rng: Random) -> Passage:
    """A person's details."""
    first, last, job = rng.choice(NAMES), rng.choice(SURNAMES), rng.choice(JOBS)
    phone = " ".join(number(rng).replace(".", "") for _ in range(3))
    mail = f"{first.lower()}@{invented(rng)}.{pick(rng, 'com|org|net')}"
    city, house, years = (
        rng.choice(CITIES),
        f"{rng.randint(1, 99)} {rng.choice(NOUNS).capitalize()} Street",
        rng.randint(2, 40),
    )
    details = [
        ("Phone|Tel.|Telephone", phone, "phone number|telephone number|number to call"),
        ("Mail|E-mail|Email", mail, "email address|e-mail|mail address"),
        ("Address|Lives at", f"{house}, {city}", "address|home address"),
        ("Job|Works as|Profession", job, "job|profession"),
    ]
    rows = [f"{pick(rng, 'Name|Contact|Full name')}: {first} {last}"]
    asked: list[Asked] = [("What is the full name?|Whose card is it?|What is the name?", f"{first} {last}.")]
    for labels, value, names in rng.sample(details, rng.randint(2, 4)):
        rows.append(f"{pick(rng, labels)}: {value}")
        name = pick(rng, names)
        asked.append(
            (f"What is the {name}?|Give me the {name} of {first}.|What is {first}'s {name}?|{name}?", f"{value}.")
        )
    if rng.random() < 0.5:
        rows.append(f"{first} has been {article(job)} for {years} years.")
        asked.append((f"How long has {first} been {article(job)}?|Since how many years?", f"For {years} years."))
    return Passage(rows, asked, [first])


def report(rng: Random) -> Passage:
    """Something that happened, told in three or four sentences."""
    who, other = rng.sample(NAMES, 2)
    day, place, thing, count = rng.choice(DAYS), rng.choice(PLACES), rng.choice(OBJECTS), rng.randint(2, 90)
    cause = pick(rng, "it was raining|the road was blocked|the bridge was closed|the lights went out|nobody had a key")
    helper = pick(rng, "a neighbour|the police|a taxi driver|the teacher|an old woman|two students|the fire brigade")
    facts: list[tuple[str, list[Asked]]] = [
        (
            f"On {day} {who} went to the {place} to buy {article(thing)}.",
            [
                (f"Where did {who} go?|Where did {who} want to buy something?", f"To the {place}."),
                (f"Why did {who} go to the {place}?|What did {who} want to buy?", f"To buy {article(thing)}."),
                (f"When did {who} go there?|On which day did it happen?|What day was it?", f"On {day}."),
                ("Who went shopping?|Who is the text about?|Who went there?", f"{who} went to the {place}."),
            ],
        ),
        (
            f"The way took {count} minutes longer than usual, because {cause}.",
            [
                ("Why did it take longer?|What was the reason for the delay?|Why was it slow?", f"Because {cause}."),
                (
                    "How much longer did it take?|How long was the delay?|How many minutes were lost?",
                    f"{count} minutes.",
                ),
            ],
        ),
        (
            f"{other} waited at home and was worried.",
            [
                ("Who was worried?|Who waited?|Who stayed at home?", f"{other} was worried."),
                (f"Where did {other} wait?|Where was {other}?", f"{other} waited at home."),
                (f"How did {other} feel?", f"{other} was worried."),
            ],
        ),
        (
            f"In the end {helper} helped, and the {thing} was cheaper than expected.",
            [
                ("Who helped?|Who gave help in the end?|Who was helpful?", f"{helper.capitalize()} helped."),
                ("What was cheaper than expected?|What was cheap?", f"The {thing}."),
            ],
        ),
    ]
    kept = facts[: rng.randint(2, 4)]
    return Passage([said for said, _ in kept], [one for _, asked in kept for one in asked], [who, other])


KINDS = (prices, recipe, message, timetable, contact, report)


def everyday(rng: Random) -> Passage:
    """One of the texts."""
    return rng.choice(KINDS)(rng)
