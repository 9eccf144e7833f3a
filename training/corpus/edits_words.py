"""Edits of words: replaced, renamed, swapped, left out, put in, set right or written in other letters."""

from __future__ import annotations

import re
from random import Random

from training.corpus.base import pick
from training.corpus.misspelt import MISSPELT, STATEMENTS
from training.corpus.passages import passage
from training.corpus.phrasing import mark, order, wish
from training.corpus.public import vocabulary
from training.corpus.sources import (
    paragraph,
    program,
    public_sentence,
    public_text,
    random_words,
    sentence,
    short_sentence,
)
from training.corpus.text_facts import fact_passage
from training.corpus.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    NAMES,
    NOUNS,
    OBJECTS,
    PYTHON,
    any_word,
    invented,
    number,
)

Edit = tuple[str, str, str]
"""A text, the request to change it, and the changed text."""

REPLACE = (
    "replace {x} with {y}|replace {x} by {y}|replace the word {x} with {y}|replace the word {x} by {y}|change {x} to"
    " {y}|change {x} into {y}|change the word {x} to {y}|write {y} instead of {x}|put {y} instead of {x}|use {y}"
    " instead of {x}|swap {x} for {y}|swap out {x} for {y}|substitute {y} for {x}|turn {x} into {y}|make {x} {y}|make"
    " it {y} instead of {x}|exchange {x} for {y}|put {y} in place of {x}|use {y} rather than {x}|replace every {x}"
    " with {y}|replace all {x} with {y}|change every {x} to {y}|find {x} and replace it with {y}|put {y} where {x}"
    " stands|say {y} instead of {x}|take out {x} and put in {y}|switch {x} to {y}|edit this so that {x} becomes"
    " {y}|rewrite this with {y} instead of {x}|write this with {y} in place of {x}|correct {x} to {y}|rename {x} to"
    " {y}|update {x} to {y}"
)
REPLACE_SAID = (
    "{x} should be {y}.|It should be {y}, not {x}.|Not {x} but {y}.|{x} -> {y}|{x} => {y}|s/{x}/{y}/|{y} instead of"
    " {x}|{y} instead of {x}, please.|I meant {y}, not {x}.|Where it says {x}, it should say {y}.|{x} is wrong, it is"
    " {y}.|{x} must become {y}.|The same text with {y} instead of {x}.|Same but {y} for {x}|I don't like {x}, use"
    " {y}.|I want {y} there, not {x}.|Every {x} becomes {y}.|There is a mistake: {x} has to be {y}.|The word {x}"
    " should be {y}."
)


SHORT = 0.7
"""Probability of a short text: many small edits teach more than few large ones."""


def prose(rng: Random) -> str:
    """A text to edit, short or a paragraph."""
    if rng.random() < SHORT:
        makers = (short_sentence, sentence, lambda r: random_words(r, 2, 8))
        return rng.choice(makers)(rng)
    chance = rng.random()
    if chance < 0.2:
        return paragraph(rng, 1, 3)
    if chance < 0.4:
        return public_sentence(rng)
    if chance < 0.65:
        return public_text(rng)
    return (passage if chance < 0.72 else fact_passage)(rng).text if chance < 0.88 else random_words(rng, 4, 20)


def _orders(rng: Random, forms: str, sayings: str, **gaps: str) -> str:
    """An order, or now and then a wish that is none."""
    return wish(rng, sayings, **gaps) if rng.random() < 0.25 else order(rng, forms, **gaps)


def replace(rng: Random) -> Edit:
    """One word or number replaced by another."""
    source = prose(rng)
    words = [word for word in re.findall(r"[A-Za-z]{3,}|\b\d+\b", source) if word not in ("The", "the", "and")]
    old = rng.choice(words or ["the"])
    new = number(rng) if old.isdigit() else rng.choice((any_word(rng), rng.choice(NOUNS), invented(rng)))
    return source, changed(rng, old, new), re.sub(rf"\b{re.escape(old)}\b", new, source)


def changed(rng: Random, old: str, new: str) -> str:
    """A request for one word in place of another, both pointed at in the same way."""
    style = mark(rng, "{}")
    return _orders(rng, REPLACE, REPLACE_SAID, x=style.replace("{}", old), y=style.replace("{}", new))


def rename(rng: Random) -> Edit:
    """A name, place, colour or animal changed everywhere."""
    if rng.random() < SHORT:
        source = " ".join(rng.choice((sentence, short_sentence))(rng) for _ in range(rng.randint(1, 2)))
    else:
        source = passage(rng).text + (" " + paragraph(rng, 1, 2) if rng.random() < 0.5 else "")
    for kind, pool in rng.sample([("name", NAMES), ("city", CITIES), ("colour", COLOURS), ("animal", ANIMALS)], 4):
        found = [word for word in pool if re.search(rf"\b{word}\b", source)]
        if found:
            old, new = rng.choice(found), rng.choice(pool) if rng.random() < 0.8 else invented(rng).capitalize()
            forms = (
                f"change the {kind} {{x}} to {{y}}|use the {kind} {{y}} instead of {{x}}|rename {{x}} to {{y}}|replace"
                f" the {kind} {{x}} with {{y}}|set the {kind} to {{y}} instead of {{x}}|call it {{y}} and not {{x}}"
                f"|exchange the {kind} {{x}} for {{y}}|change {{x}} to {{y}} everywhere"
            )
            said = (
                f"The {kind} should be {{y}}, not {{x}}.|The {kind} is {{y}} and not {{x}}.|I want the {kind} {{y}},"
                f" not {{x}}.|{{x}} is the wrong {kind}, it is {{y}}.|another {kind}: {{y}}, not {{x}}"
            )
            return source, _orders(rng, forms, said, x=old, y=new), re.sub(rf"\b{old}\b", new, source)
    return replace(rng)


def attribute(rng: Random) -> Edit:
    """A day, a price or the like set to something else; the request names the kind, not always the old value."""
    noun, thing = pick(rng, "meeting|party|concert|lesson|train|dinner|visit|match|call|walk"), rng.choice(OBJECTS)
    values = {
        "day": rng.sample(DAYS, 2),
        "time": [f"{rng.randint(1, 12)}:{rng.choice(('00', '15', '30', '45'))}" for _ in range(2)],
        "city": rng.sample(CITIES, 2),
        "room": [number(rng), number(rng)],
        "price": [f"{number(rng)} {pick(rng, 'euros|dollars')}" for _ in range(2)],
        "name": rng.sample(NAMES, 2),
        "colour": rng.sample(COLOURS, 2),
    }
    form = pick(
        rng,
        "The {noun} is on {day} at {time} in {city}.|{name} has a {noun} on {day} in room {room}.|{name} bought a"
        " {colour} {thing} for {price}.|My {colour} {thing} is in {city}.|On {day} {name} will bring the {colour}"
        " {thing} to {city}.|The {noun} with {name} starts at {time} in room {room} and costs {price}.|{name} lives"
        " in a {colour} house in {city}.|Please be in {city} on {day}, {name}.",
    )
    kind = rng.choice([one for one in values if "{" + one + "}" in form])
    old = {one: pair[0] for one, pair in values.items()}
    new = {**old, kind: values[kind][1]}
    kept = {"noun": noun, "thing": thing}
    forms = (
        f"change the {kind} to {{y}}|make the {kind} {{y}}|set the {kind} to {{y}}|make it {{y}} instead of {{x}}|use"
        f" another {kind}: {{y}}|update the {kind}, it is {{y}}|change the {kind} from {{x}} to {{y}}|put {{y}} as the"
        f" {kind}|let the {kind} be {{y}}|write the same with {{y}} as the {kind}|change {{x}} to {{y}}"
    )
    said = f"The {kind} is {{y}}, not {{x}}.|The {kind} should be {{y}}.|The {kind} has changed to {{y}}."
    ask = _orders(rng, forms, said, x=old[kind], y=new[kind])
    return form.format(**old, **kept), ask, form.format(**new, **kept)


def swap(rng: Random) -> Edit:
    """Two names in each other's places."""
    one, two = rng.sample(NAMES + CITIES, 2)
    verb = pick(rng, "met|called|helped|thanked|saw|followed|paid|invited|wrote to|waited for|married|asked")
    ending = pick(rng, " yesterday| in the park| at the station| again| on Monday||")
    source = f"{one} {verb} {two}{ending}."
    forms = "swap {x} and {y}|exchange {x} and {y}|switch {x} and {y}|swap the names {x} and {y}"
    return source, order(rng, forms, x=one, y=two), f"{two} {verb} {one}{ending}."


def remove_word(rng: Random) -> Edit:
    """A text without one of its words."""
    units = (random_words(rng, 3, 8) if rng.random() < 0.5 else sentence(rng)).split(" ")
    old = rng.choice(units[:-1])
    kept = [unit for unit in units if unit != old]
    forms = (
        "remove {x}|remove the word {x}|delete {x}|delete the word {x}|leave out {x}|take out {x}|drop the word {x}|cut"
        " {x}|take {x} away|erase {x}|write this without {x}|write it without the word {x}|get rid of {x}|strike {x}"
    )
    return " ".join(units), order(rng, forms, x=mark(rng, old)), " ".join(kept)


def add_word(rng: Random) -> Edit:
    """A word put before or after another."""
    units = (random_words(rng, 3, 8) if rng.random() < 0.5 else sentence(rng)).split(" ")
    at = rng.randrange(1, len(units) - 1)
    near, new = units[at], rng.choice((rng.choice(ADJECTIVES), rng.choice(COLOURS), any_word(rng)))
    where, place = rng.choice((("before", 0), ("after", 1)))
    forms = "put {y} {w} {x}|add {y} {w} {x}|insert {y} {w} {x}|add the word {y} {w} {x}|write {y} {w} {x}"
    if units.count(near) > 1:
        return add_word(rng)
    style = mark(rng, "{}")
    said = order(rng, forms.replace("{w}", where), x=style.replace("{}", near), y=style.replace("{}", new))
    return " ".join(units), said, " ".join([*units[: at + place], new, *units[at + place :]])


_UPPER = (
    "write this in capital letters|make it uppercase|put this text in upper case|convert this to upper case|make this"
    " all caps|turn this into capitals|write it in block letters|uppercase this|shout this|write everything in"
    " capitals|set this in all caps|change this to capital letters|capitalise everything|use only capital"
    " letters|make all letters big|print this in uppercase|write this in CAPS|make it loud, all capitals|transform it"
    " to uppercase"
)
_LOWER = (
    "write this in small letters|make it lowercase|put this text in lower case|convert this to lower case|lowercase"
    " this|use only small letters|remove the capital letters|write everything in lower case|make all letters"
    " small|turn this into small letters|set this in lowercase|don't use any capitals|transform it to lowercase"
)
_FIRST = (
    "capitalise every word|start each word with a capital letter|write this in title case|make the first letter of each"
    " word big|convert this to title case|capitalize each word"
)


def letters(rng: Random) -> Edit:
    """A text in capital or small letters, or each word with a capital."""
    makers = (sentence, short_sentence, lambda r: random_words(r, 1, 5), public_sentence)
    source = rng.choices(makers, (2, 4, 3, 1))[0](rng)
    chance = rng.random()
    if chance < 0.6:
        return source, order(rng, _UPPER), source.upper()
    if chance < 0.85:
        return source, order(rng, _LOWER), source.lower()
    source = random_words(rng, 2, 7).lower()
    return source, order(rng, _FIRST), " ".join(word[:1].upper() + word[1:] for word in source.split(" "))


def _slip(rng: Random, word: str) -> str:
    """The word misspelt: two letters swapped, one left out, doubled or mistaken."""
    cut = rng.randint(1, len(word) - 2)
    kind = rng.randrange(4)
    if kind == 0 and word[cut] != word[cut + 1]:
        return word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :]
    if kind == 1:
        return word[:cut] + word[cut + 1 :]
    if kind == 2:
        return word[:cut] + word[cut] + word[cut:]
    return word[:cut] + rng.choice("aeiouy" if word[cut] in "aeiouy" else "bdfgklmnprst") + word[cut + 1 :]


def fix_typo(rng: Random) -> Edit:
    """A slip named by the user, put right."""
    source = prose(rng)
    good = rng.choice(re.findall(r"\b[a-z]{4,}\b", source) or ["the"])
    if len(good) < 4 or (bad := _slip(rng, good)) == good:
        return fix_typo(rng)
    wrong = re.sub(rf"\b{good}\b", bad, source, count=1)
    if wrong.count(bad) != 1:
        return fix_typo(rng)
    forms = (
        "correct {x} to {y}|fix the typo {x}, it should be {y}|change {x} to {y}, it is misspelled|write {y}, not"
        " {x}|fix {x}, it is {y}|spell {x} as {y}|correct the spelling: {y}, not {x}"
    )
    return wrong, order(rng, forms, x=mark(rng, bad), y=mark(rng, good)), source if wrong != source else wrong


_FIX = (
    "fix the typos|fix the mistakes|correct this|correct the spelling|correct the mistakes|fix the spelling|fix this"
    "|proofread this|correct all mistakes|check the spelling|repair the spelling mistakes|write this correctly|clean up"
    " this text|fix the errors|correct the typos|remove the typos|spell this right|make this correct|fix the spelling"
    " mistakes|fix my spelling|correct my mistakes|check this for typos"
)


def fix_spelling(rng: Random) -> Edit:
    """Common words misspelt, and small slips of capitals and stops, put right without being named."""
    known = [word for word in vocabulary()[:1500] if word.islower()]
    good = (rng.choice(STATEMENTS) if rng.random() < 0.6 else public_sentence(rng)).replace("{n}", rng.choice(NAMES))
    words = [word for word in dict.fromkeys(re.findall(r"\b[a-z]{4,}\b", good)) if word in known or word in MISSPELT]
    bad = good
    for word in rng.sample(words, min(len(words), rng.choice((1, 1, 2, 3)))):
        bad = re.sub(rf"\b{word}\b", MISSPELT.get(word) or _slip(rng, word), bad, count=1)
    if rng.random() < 0.3 and good[0] == "I":
        bad = bad[0].lower() + bad[1:]
    if bad == good or not good[0].isupper():
        return fix_spelling(rng)
    return bad, order(rng, _FIX), good


def small_program(rng: Random) -> str:
    """One to three lines of Python that use one name twice or more."""
    a, b = rng.sample([*NOUNS, "x", "y", "n", "a", "b", "total", "items", invented(rng)], 2)
    n, m = rng.randint(0, 99), rng.randint(2, 99)
    return pick(
        rng,
        f"{a} = {n}\nprint({a} * {m})|{a} = {n}\n{b} = {a} + {m}|print({a} + {a})|{a} += {n}\nprint({a})|"
        f"{a} = {b}\n{a} = {a} - {n}|for {a} in range({n}):\n    print({a})|{a} = [{n}, {m}]\nprint(len({a}))|"
        f"def {b}({a}):\n    return {a} * {m}|if {a} > {n}:\n    print({a})|{a} = input()\nprint({a}, {b})",
    )


def rename_variable(rng: Random) -> Edit:
    """Code with one name changed."""
    source = small_program(rng) if rng.random() < SHORT else program(rng)
    names = [word for word in re.findall(r"\b[a-z_]{2,}\b", source) if word not in PYTHON]
    old = rng.choice(names or ["x"])
    new = rng.choice((rng.choice(NOUNS), rng.choice(OBJECTS), "total", "items", "value", "result", "count", "data"))
    forms = (
        "rename {x} to {y}|rename the variable {x} to {y}|use the name {y} instead of {x}|replace {x} by {y} in this"
        " code|call {x} {y}|change the name {x} to {y}|give {x} the new name {y}|refactor: rename {x} to {y}|change"
        " {x} to {y}|rename {x} into {y} everywhere|name it {y} instead of {x}|substitute {y} for {x} in the code"
    )
    left = pick(rng, "|`")
    block = "```python\n{}\n```"
    said = order(rng, forms, x=left + old + left, y=left + new + left)
    return (
        (block if rng.random() < 0.6 else "{}").replace("{}", source),
        said,
        block.replace("{}", re.sub(rf"\b{old}\b", new, source)),
    )


WORD_EDITS = (
    *[replace] * 5,
    rename,
    attribute,
    attribute,
    swap,
    remove_word,
    add_word,
    letters,
    letters,
    letters,
    fix_typo,
    fix_spelling,
    fix_spelling,
    rename_variable,
    rename_variable,
)
