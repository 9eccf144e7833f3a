"""Small edits and copies with short requests, many to a row: the task is learnt before its wordings."""

from __future__ import annotations

import re
from random import Random

from training.corpus.base import Message, assistant, capital, pick, user
from training.corpus.edits_words import REPLACE, REPLACE_SAID, Edit, small_program
from training.corpus.phrasing import mark
from training.corpus.public import vocabulary
from training.corpus.sources import odd, public_sentence, random_words, sentence, short_sentence
from training.corpus.words import NAMES, NOUNS, any_word

KEYWORDS = ("print", "for", "in", "range", "len", "def", "return", "if", "input")
"""Words of `small_program` that are no names."""


AGAIN = 0.4
"""Probability that the word to replace occurs once more."""


def _text(rng: Random) -> str:
    """A short text of sentences or of words."""
    if rng.random() < 0.6:
        return " ".join(rng.choice((short_sentence, short_sentence, sentence))(rng) for _ in range(rng.randint(1, 2)))
    return random_words(rng, 2, 8)


def _word_of(rng: Random, text: str) -> str:
    """A word of the text, without the marks around it."""
    return rng.choice([word.strip(".,!?'\"") for word in text.split()]) or "the"


def _replaced(text: str, old: str, new: str) -> str:
    """The text with every whole word `old`, with or without marks after it, replaced."""
    return " ".join(new + word[len(old) :] if word.rstrip(".,!?'\"") == old else word for word in text.split(" "))


def replace(rng: Random) -> Edit:
    """One word for another."""
    text = _text(rng)
    old = _word_of(rng, text)
    if rng.random() < AGAIN:
        words = text.split(" ")
        words[rng.randrange(len(words))] = old
        text = " ".join(words)
    new = rng.choice((any_word(rng), rng.choice(NOUNS), rng.choice(NAMES)))
    style = mark(rng, "{}")
    form = pick(rng, REPLACE if rng.random() < 0.75 else REPLACE_SAID)
    said = form.replace("{x}", style.replace("{}", old)).replace("{y}", style.replace("{}", new))
    return text, said, _replaced(text, old, new)


def rename(rng: Random) -> Edit:
    """One name of code for another."""
    text = small_program(rng)
    names = [word for word in re.findall(r"[a-z_]+", text) if word not in KEYWORDS]
    new = rng.choice(NOUNS)
    if not names or new in names:
        return rename(rng)
    old = rng.choice(names)
    said = pick(rng, "rename {x} to {y}|rename `{x}` to `{y}`|call {x} {y}|use {y} instead of {x}|replace {x} by {y}")
    block = "```python\n{}\n```"
    shown = block.replace("{}", text) if rng.random() < 0.7 else text
    answer = block.replace("{}", re.sub(rf"\b{old}\b", new, text))
    return shown, said.replace("{x}", old).replace("{y}", new), answer


def remove(rng: Random) -> Edit:
    """One word less."""
    words = random_words(rng, 3, 8).split(" ")
    old = rng.choice(words)
    said = pick(rng, "remove {x}|delete {x}|leave out {x}|take out the word {x}|write it without {x}")
    return " ".join(words), said.replace("{x}", mark(rng, old)), " ".join(word for word in words if word != old)


def add(rng: Random) -> Edit:
    """One word more."""
    words, new = list(dict.fromkeys(random_words(rng, 3, 7).split(" "))), any_word(rng)
    at, after = rng.randrange(len(words)), rng.random() < 0.5
    said = pick(rng, "put {y} {w} {x}|add {y} {w} {x}|insert {y} {w} {x}").replace(
        "{w}", "after" if after else "before"
    )
    said = said.replace("{y}", mark(rng, new)).replace("{x}", words[at])
    return " ".join(words), said, " ".join([*words[: at + after], new, *words[at + after :]])


def units(rng: Random) -> Edit:
    """Lines or sentences numbered, listed, joined, parted, or one of them left out."""
    if rng.random() < 0.4:
        parts, glue, kind = [short_sentence(rng) for _ in range(rng.randint(2, 4))], " ", "sentence"
    else:
        parts = [random_words(rng, 1, 3) for _ in range(rng.randint(2, 5))]
        glue, kind = rng.choice((("\n", "line"), (", ", "item")))
    text, last = glue.join(parts), len(parts) - 1
    forms = {
        "number them": "\n".join(f"{n}. {part}" for n, part in enumerate(parts, 1)),
        f"number the {kind}s": "\n".join(f"{n}. {part}" for n, part in enumerate(parts, 1)),
        "make a bullet list": "\n".join(f"- {part}" for part in parts),
        "list them with dashes": "\n".join(f"- {part}" for part in parts),
        f"put each {kind} on a new line": "\n".join(parts),
        "put them on one line with commas": ", ".join(parts),
        f"remove the last {kind}": glue.join(parts[:last]),
        f"delete the first {kind}": glue.join(parts[1:]),
        f"keep only the first {kind}": parts[0],
        f"give me the last {kind}": parts[last],
        "turn the order round": glue.join(reversed(parts)),
    }
    said, answer = rng.choice(list(forms.items()))
    return text, said, answer


def letters(rng: Random) -> Edit:
    """Capital or small letters."""
    makers = (_text, public_sentence, lambda r: random_words(r, 1, 4), lambda r: r.choice(vocabulary()))
    text = rng.choices(makers, (3, 2, 3, 2))[0](rng)
    if rng.random() < 0.6:
        return (
            text,
            pick(
                rng,
                "write this in capital letters|uppercase|in capitals|make it all caps|all caps|in caps|caps only|shout",
            ),
            text.upper(),
        )
    text = text.upper() if rng.random() < 0.6 else text
    return text, pick(rng, "write this in small letters|lowercase|make it lowercase"), text.lower()


def copy(rng: Random) -> Edit:
    """A few words, a list with commas, a short sentence or an odd spelling, unchanged."""
    listed = ", ".join(any_word(rng) for _ in range(rng.randint(2, 6)))
    text = rng.choice((listed, listed, random_words(rng, 1, 6), short_sentence(rng), public_sentence(rng), odd(rng)))
    said = (
        "repeat|repeat after me|copy|copy this|echo|say|write this again|type this|the same again|say it word for word"
    )
    return text, pick(rng, said), text


DRILLS = (replace, replace, replace, replace, rename, remove, add, units, units, *[letters] * 6, copy, copy, copy)


def make(rng: Random) -> list[Message]:
    """An edit, with its request before or after the text."""
    kind = rng.choice(DRILLS)
    text, said, answer = kind(rng)
    said = capital(said) if rng.random() < 0.7 else said
    if kind in (letters, units, copy) and rng.random() < 0.12:
        said = (pick(rng, "please |now |") + said + pick(rng, "| please| now")).upper()
    if rng.random() < 0.7:
        prompt = said.rstrip(".") + pick(rng, ": |:\n\n|:\n|\n\n|. ") + text
    else:
        prompt = text + pick(rng, "\n\n|\n") + said
    return [user(prompt), assistant(answer)]
