"""Follow-ups that name what the last reply should have instead, without saying what stands there now."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.corpus.base import Message, assistant, capital, pick, typed, user
from training.corpus.copying import repeat
from training.corpus.words import CITIES, COLOURS, DAYS, FOODS, MONTHS, NAMES, NOUNS, OBJECTS, PLACES, number

Slots = dict[str, Callable[[Random], str]]
SLOTS: Slots = {
    "day": lambda rng: rng.choice(DAYS),
    "name": lambda rng: rng.choice(NAMES),
    "city": lambda rng: rng.choice(CITIES),
    "colour": lambda rng: rng.choice(COLOURS),
    "time": lambda rng: f"{rng.randint(1, 12)}:{rng.choice(('00', '15', '30', '45'))}",
    "month": lambda rng: rng.choice(MONTHS),
    "number": number,
    "food": lambda rng: rng.choice(FOODS),
    "place": lambda rng: rng.choice(PLACES),
    "thing": lambda rng: rng.choice(OBJECTS),
}
_TEXTS = (
    "Our meeting is on {day} at {time}.|hello {name}, the {noun} is in {city} on {day}|{name} will come in"
    " {month}.|Please buy {number} eggs for {day}.|The {colour} {thing} is in the {place}.|dear all, please be in"
    " the {place} at {time}|See you in {city}, {name}!|I like the {colour} {thing} best.|{name} has {number}"
    " stamps.|Closed in {month}.|We eat {food} on {day}.|The {noun} costs {number} euros|dinner at {time} with"
    " {name}|Happy birthday, {name}!|the train to {city} leaves at {time}|{name} found a {colour} {thing} in"
    " {city}.|my {noun} begins in {month} in the {place}|No {food} after {time}, please.|Dear {name}, thank you for"
    " the {thing}.|{day}: {food}|room {number}, {day}, {time}|I moved to {city} in {month}."
)
_ASKS = (
    "make it {y}|make it {y} instead|{y} instead|Make that {y}.|{y} instead, please.|no, {y}|No, {y}.|Actually,"
    " {y}.|sorry, I meant {y}|I meant {y}.|Sorry, {y}!|Change it to {y}.|change that to {y}|use {y} instead|Use {y},"
    " please.|it should be {y}|It has to be {y}.|oh, it is {y}|Better {y}.|and now with {y}|Now with {y}.|the same"
    " with {y}|The same, but {y}.|Can you make that {y}?|could you put {y} there|try {y}|what about {y}|write {y}"
    " instead|Wait, {y}.|Put {y} instead."
)
_KIND_ASKS = (
    "change the {k} to {y}|make the {k} {y}|another {k}: {y}|The {k} is {y}.|the {k} should be {y}|use {y} as the"
    " {k}|Sorry, the {k} is {y}.|set the {k} to {y}"
)
_WRITE = (
    "Please write:|Write:|write this:|Type:|Copy:|Repeat:|Say:|Write this down:|write down|Note this:|Put"
    " down:|take a note:|Echo:"
)


def changed(rng: Random, form: str, values: dict[str, str]) -> tuple[str, str]:
    """A request that changes one value of the form, and the changed text; the values are updated."""
    kind = rng.choice([name for name in SLOTS if "{" + name + "}" in form])
    old = values[kind]
    while values[kind] == old:
        values[kind] = SLOTS[kind](rng)
    said = pick(rng, _KIND_ASKS if rng.random() < 0.3 else _ASKS)
    ask = typed(rng, said).replace("{k}", kind).replace("{y}", values[kind])
    if rng.random() < 0.2:
        ask = pick(
            rng,
            f"change {old} to {values[kind]}|{values[kind]}, not {old}|not {old} but {values[kind]}|{old} is wrong,"
            f" {values[kind]} is right",
        )
    return capital(ask) if rng.random() < 0.3 else ask, form.format(**values)


def make(rng: Random) -> list[Message]:
    """A text that was copied, and one to three changes of it."""
    form = pick(rng, _TEXTS)
    values = {name: value(rng) for name, value in SLOTS.items()} | {"noun": rng.choice(NOUNS)}
    text = form.format(**values)
    if rng.random() < 0.7:
        said = pick(rng, _WRITE) + pick(rng, " | |\n|\n\n") + text
    else:
        said = text + pick(rng, "\n\n|\n") + pick(rng, "copy this|write this again|repeat that|say this")
    messages = [user(said), assistant(text)]
    if rng.random() < 0.1:
        messages = [*repeat(rng), *messages]
    for _ in range(rng.choice((1, 1, 2, 3))):
        ask, text = changed(rng, form, values)
        messages += [user(ask), assistant(text)]
    return messages
