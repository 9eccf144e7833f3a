"""Short texts that say the same of several people or things, and notices with several names and numbers."""

from __future__ import annotations

from random import Random

from training.corpus.base import article, capital, listing, pick
from training.corpus.passages import Passage
from training.corpus.words import ANIMALS, CITIES, COLOURS, DAYS, FOODS, MONTHS, NAMES, OBJECTS, PLACES, SURNAMES

Asked = tuple[str, str]

_DOES = (
    "plays play|likes like|sells sell|paints paint|carries carry|brings bring|wants want|teaches teach|repairs repair"
    "|collects collect|cooks cook|hates hate|owns own|needs need|buys buy|studies study|feeds feed|watches watch"
)
_INTO = "goes into|belongs in|is for|leads to|stands on|lies in|hangs on|was put into|fits into|is in"
_NUMBERED = "port|room|box|slot|socket|shelf|drawer|gate|hook|bay|locker|line|row|page|track|pocket"
_TITLES = "Mr|Mrs|Ms|Dr"
_RANKS = "teacher|trainer|leader|doctor|guide|organiser|driver|director|owner|manager|cook"
_COURSES = "swimming|painting|cooking|dancing|chess|music|yoga|pottery|sewing|language|riding|computer"
_BILLS = "Invoice|Bill|Order|Ticket|Receipt|Booking"
_UNITS = "euros|dollars|pounds|francs|crowns"


def _joined(rng: Random, clauses: list[str]) -> list[str]:
    """The clauses as one sentence or one each."""
    if rng.random() < 0.7:
        return [pick(rng, ", |; |, ").join(clauses[:-1]) + pick(rng, ", |, and | and | while ") + clauses[-1] + "."]
    return [capital(clause) + "." for clause in clauses]


def doing(rng: Random) -> Passage:
    """Two or three people who do the same with different things."""
    people = rng.sample(NAMES, rng.choice((2, 3, 3)))
    things = rng.sample(OBJECTS + ANIMALS + FOODS, len(people))
    does, base = pick(rng, _DOES).split(" ")
    short = rng.random() < 0.3
    clauses = [
        f"{who}, {thing}" if short and at and rng.random() < 0.5 else f"{who} {does} the {thing}"
        for at, (who, thing) in enumerate(zip(people, things, strict=True))
    ]
    asked: list[Asked] = []
    for who, thing in zip(people, things, strict=True):
        asked.append((f"Who {does} the {thing}?|who {does} the {thing}", f"{who} {does} the {thing}."))
        asked.append((f"What does {who} {base}?|what does {who} {base}", f"{who} {does} the {thing}."))
    return Passage(_joined(rng, clauses), asked, [])


def placing(rng: Random) -> Passage:
    """Things of one kind, told apart by a colour, each with its numbered place."""
    colours = rng.sample(COLOURS, rng.choice((2, 2, 3)))
    thing, into, place = rng.choice(OBJECTS), pick(rng, _INTO), pick(rng, _NUMBERED)
    numbers = [str(number) for number in rng.sample(range(1, 100), len(colours))]
    left_out = rng.random() < 0.5
    last = into.rsplit(" ", 1)[-1]
    clauses, asked = [], []
    for at, (colour, number) in enumerate(zip(colours, numbers, strict=True)):
        clauses.append(f"the {colour} {thing} {last if at and left_out else into} {place} {number}")
        asked += [
            (
                f"Which {place} is for the {colour} {thing}?|What {place} has the {colour} {thing}?|Where does the"
                f" {colour} {thing} go?|Where is the {colour} {thing}?|{place} of the {colour} one?",
                f"{capital(place)} {number}.",
            ),
            (
                f"Which {thing} is for {place} {number}?|What is at {place} {number}?|What belongs to {place}"
                f" {number}?",
                f"The {colour} {thing}.",
            ),
        ]
    return Passage([capital(sentence) for sentence in _joined(rng, clauses)], asked, [])


def bill(rng: Random) -> Passage:
    """A bill: its number, its sum, its day, and who sent it."""
    kind, unit = pick(rng, _BILLS), pick(rng, _UNITS)
    name, cost = rng.randint(100, 99999), rng.randint(2, 999)
    day = rng.choice((f"{rng.randint(1, 28)} {rng.choice(MONTHS)}", rng.choice(DAYS)))
    sender = rng.choice(
        (
            f"the {rng.choice(OBJECTS + PLACES).capitalize()} {pick(rng, 'Hotel|Shop|Inn|Company|Market')}",
            f"{rng.choice(NAMES)} {rng.choice(SURNAMES)}",
        )
    )
    low = kind.lower()
    first = pick(rng, "{k} {n} for {c} {u} is due on {d}.|{k} {n} of {d} is for {c} {u}.|{k} {n}: {c} {u}, due on {d}.")
    sentences = [
        first.format(k=kind, n=name, c=cost, u=unit, d=day),
        pick(rng, "It was sent by|It comes from|It is from|It was written by") + f" {sender}.",
    ]
    asked: list[Asked] = [
        (f"How much is the {low}?|What does it cost?|How much must be paid?|How much is it?", f"{cost} {unit}."),
        (f"What is the number of the {low}?|Which {low} is it?|What number has the {low}?", f"{name}."),
        (f"Who sent the {low}?|Who sent it?|From whom is the {low}?", f"{capital(sender)}."),
    ]
    if "due" in first:
        asked.append((f"When is the {low} due?|When is it due?|Until when must it be paid?", f"On {day}."))
    return Passage(sentences, asked, [])


def course(rng: Random) -> Passage:
    """An announcement: what begins when, what to bring, and what somebody is called."""
    kind, rank = pick(rng, _COURSES), pick(rng, _RANKS)
    what = pick(rng, "course|class|trip|club|lesson|group")
    person = f"{pick(rng, _TITLES)} {rng.choice(SURNAMES)}" if rng.random() < 0.7 else rng.choice(NAMES)
    day, hour = rng.choice(DAYS), pick(rng, "{}|half past {}|{} o'clock")
    hour = hour.format(pick(rng, "two|three|four|five|six|seven|eight|nine|ten|eleven"))
    things = rng.sample(OBJECTS, rng.choice((1, 2, 3)))
    bring = listing([article(thing) for thing in things])
    city = rng.choice(CITIES)
    owner = pick(rng, "Our|The|My|Your")
    facts: list[tuple[str, list[Asked]]] = [
        (
            f"{owner} {kind} {what} {pick(rng, 'begins|starts')} on {day} at {hour}.",
            [
                (f"When does the {what} begin?|When does it start?|When is the {what}?", f"On {day} at {hour}."),
                (f"What begins on {day}?|What is on {day}?", f"The {kind} {what}."),
                (f"At what time does the {what} begin?|What time is the {what}?", f"At {hour}."),
            ],
        ),
        (
            f"{pick(rng, 'Bring|Please bring|Do not forget|You need')} {bring}.",
            [("What should I bring?|What do I need?|What must I bring?|What is needed?", f"{capital(bring)}.")],
        ),
        (
            f"The {rank} is {pick(rng, 'called|named')} {person}.",
            [
                (
                    f"What is the {rank} called?|What is the name of the {rank}?|Who is the {rank}?|{rank}'s name?",
                    f"{person}.",
                ),
                (f"Who is {person}?|What is {person}?", f"The {rank}."),
            ],
        ),
        (
            f"We meet in {city}.",
            [("Where do we meet?|In which city is it?|Where is it?", f"In {city}.")],
        ),
    ]
    kept = sorted(rng.sample(range(len(facts)), rng.choice((2, 3, 3))))
    if rng.random() < 0.3:
        rng.shuffle(kept)
    return Passage([facts[at][0] for at in kept], [one for at in kept for one in facts[at][1]], [])


def parallel(rng: Random) -> Passage:
    """One of the four."""
    return rng.choices((doing, placing, bill, course), (30, 30, 15, 25))[0](rng)
