"""Tasks whose reply is the pasted text with a small change."""

from __future__ import annotations

import re
from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.passages import passage
from training.corpus.sources import lines, paragraph, program, public_sentence, public_text, random_words, sentence
from training.corpus.text_facts import fact_passage
from training.corpus.words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    NAMES,
    NOUNS,
    OBJECTS,
    PYTHON,
    any_word,
    invented,
)

Edit = tuple[str, str, str]


def _prose(rng: Random) -> str:
    """A paragraph to edit."""
    chance = rng.random()
    if chance < 0.25:
        return paragraph(rng, 1, 5)
    if chance < 0.65:
        return public_text(rng)
    return (passage if chance < 0.75 else fact_passage)(rng).text if chance < 0.88 else random_words(rng, 5, 30)


def _sentences(rng: Random, low: int, high: int) -> list[str]:
    """Sentences of ours, of a passage or of public texts."""
    kind = rng.random()
    if kind < 0.35:
        return [sentence(rng) for _ in range(rng.randint(low, high))]
    if kind < 0.6:
        return [fact_passage(rng).sentences[0] for _ in range(rng.randint(low, high))]
    return [public_sentence(rng) for _ in range(rng.randint(low, high))]


def replace(rng: Random) -> Edit:
    """One word replaced by another."""
    source = _prose(rng)
    words = [word for word in re.findall(r"[A-Za-z]{3,}", source) if word not in ("The", "the", "and")]
    old = rng.choice(words or ["the"])
    new = rng.choice((any_word(rng), rng.choice(NOUNS), invented(rng)))
    ask = pick(
        rng,
        f'Replace "{old}" with "{new}".|Replace the word {old} by {new}.|Change {old} to {new}.|Write {new} instead of'
        f" {old}.|Swap {old} for {new}.",
    )
    return source, ask, re.sub(rf"\b{re.escape(old)}\b", new, source)


def rename(rng: Random) -> Edit:
    """A name, place, colour or animal changed everywhere."""
    source = passage(rng).text + " " + paragraph(rng, 1, 2)
    for kind, pool in rng.sample([("name", NAMES), ("city", CITIES), ("colour", COLOURS), ("animal", ANIMALS)], 4):
        found = [word for word in pool if re.search(rf"\b{word}\b", source)]
        if found:
            old, new = rng.choice(found), rng.choice(pool)
            ask = pick(
                rng,
                f"Change the {kind} {old} to {new}.|The {kind} should be {new}, not {old}.|Use the {kind} {new} instead"
                f" of {old}.",
            )
            return source, ask, re.sub(rf"\b{old}\b", new, source)
    return replace(rng)


def upper(rng: Random) -> Edit:
    """A text in capital or small letters."""
    chance = rng.random()
    if chance < 0.4:
        source = sentence(rng)
    else:
        source = random_words(rng, 2, 10) if chance < 0.6 else public_text(rng).split(". ")[0]
    if rng.random() < 0.6:
        return (
            source,
            pick(
                rng, "Write this in capital letters.|Make it uppercase.|Put this text in upper case.|All caps, please."
            ),
            source.upper(),
        )
    return (
        source,
        pick(rng, "Write this in small letters.|Make it lowercase.|Put this text in lower case."),
        source.lower(),
    )


def remove_sentence(rng: Random) -> Edit:
    """A text without one of its sentences."""
    units = _sentences(rng, 3, 5)
    at = rng.choice((0, len(units) - 1, len(units) - 1, 1))
    where = "last" if at == len(units) - 1 else ("first", "second")[at]
    kept = units[:at] + units[at + 1 :]
    ask = pick(rng, f"Remove the {where} sentence.|Delete the {where} sentence.|Leave out the {where} sentence.")
    return " ".join(units), ask, " ".join(kept)


def add_sentence(rng: Random) -> Edit:
    """A text with one sentence more."""
    source, extra = paragraph(rng, 1, 5), sentence(rng)
    if rng.random() < 0.6:
        return (
            source,
            pick(rng, f'Add this sentence at the end: "{extra}"|Add "{extra}" at the end.'),
            f"{source} {extra}",
        )
    return (
        source,
        pick(rng, f'Add this sentence at the beginning: "{extra}"|Put "{extra}" at the beginning.'),
        f"{extra} {source}",
    )


def numbered(rng: Random) -> Edit:
    """Lines with numbers."""
    units = lines(rng)
    ask = pick(rng, "Number the lines.|Add line numbers.|Make a numbered list.|Put a number before each line.")
    return "\n".join(units), ask, "\n".join(f"{index}. {unit}" for index, unit in enumerate(units, 1))


def bullets(rng: Random) -> Edit:
    """Lines, or a comma-separated list, as bullets."""
    units = lines(rng)
    source = ("\n" if rng.random() < 0.6 else ", ").join(units)
    return (
        source,
        pick(
            rng, "Turn this into a bullet list.|Make bullets of the lines.|Write this as a list.|Bullet points, please."
        ),
        "\n".join(f"- {unit}" for unit in units),
    )


def joined(rng: Random) -> Edit:
    """Lines as one comma-separated line."""
    units = lines(rng)
    return (
        "\n".join(units),
        pick(rng, "Put this on one line with commas.|Join the lines with commas.|Make one line of it, with commas."),
        ", ".join(units),
    )


def split_sentences(rng: Random) -> Edit:
    """Each sentence on its own line."""
    units = _sentences(rng, 2, 5)
    return (
        " ".join(units),
        pick(
            rng,
            "Put each sentence on its own line.|One sentence per line, please.|Break the text into one line per"
            " sentence.",
        ),
        "\n".join(units),
    )


def fix_typo(rng: Random) -> Edit:
    """A slip named by the user, put right."""
    source = paragraph(rng, 1, 4)
    good = rng.choice(re.findall(r"[a-z]{4,}", source) or ["the"])
    cut = rng.randint(1, len(good) - 2)
    bad = good[:cut] + good[cut + 1] + good[cut] + good[cut + 2 :]
    wrong = re.sub(rf"\b{good}\b", bad, source, count=1)
    ask = pick(rng, f'Fix the typo "{bad}".|Correct the spelling of "{bad}".|"{bad}" is misspelled, please correct it.')
    return wrong, ask, re.sub(rf"\b{bad}\b", good, wrong)


def rename_variable(rng: Random) -> Edit:
    """Code with one name changed."""
    source = program(rng)
    names = [word for word in re.findall(r"\b[a-z_]{2,}\b", source) if word not in PYTHON]
    old = rng.choice(names or ["x"])
    new = rng.choice(
        (rng.choice(NOUNS), rng.choice(OBJECTS), rng.choice(("total", "items", "value", "result", "count")))
    )
    ask = pick(
        rng,
        f"Rename {old} to {new}.|Rename the variable `{old}` to `{new}`.|Use the name {new} instead of {old}.|Replace"
        f" {old} by {new} in this code.",
    )
    block = "```python\n{}\n```"
    return block.format(source), ask, block.format(re.sub(rf"\b{old}\b", new, source))


def adjective(rng: Random) -> Edit:
    """A word put before every mention of another."""
    source = paragraph(rng, 1, 4)
    noun = rng.choice(
        [word for word in re.findall(r"[a-z]{4,}", source) if word in NOUNS or word in OBJECTS or word in ANIMALS]
        or ["the"]
    )
    word = rng.choice((rng.choice(ADJECTIVES), rng.choice(COLOURS)))
    ask = pick(rng, f'Put "{word}" before "{noun}".|Add the word {word} before {noun}.')
    return source, ask, re.sub(rf"\b{noun}\b", f"{word} {noun}", source)


EDITS = (
    replace,
    replace,
    replace,
    rename,
    rename,
    upper,
    remove_sentence,
    add_sentence,
    numbered,
    bullets,
    joined,
    split_sentences,
    fix_typo,
    rename_variable,
    rename_variable,
    adjective,
)


def _ask(rng: Random, source: str, ask: str) -> str:
    """The request before or after the text."""
    ask = typed(rng, ask) if '"' not in ask else ask
    if rng.random() < 0.25:
        ask = pick(rng, "Please |Can you |Could you |Now |I want you to |") + ask[:1].lower() + ask[1:]
    if rng.random() < 0.35 and "\n" not in source:
        return ask.rstrip(".?! ") + pick(rng, ": | : |:\n|:\n\n") + source
    return f"{ask}\n\n{source}" if rng.random() < 0.6 else f"{source}\n\n{ask}"


def make(rng: Random) -> list[Message]:
    """An edit, now and then followed by a second edit of the same text."""
    source, ask, answer = rng.choice(EDITS)(rng)
    messages = [user(_ask(rng, source, ask)), assistant(answer)]
    chance = rng.random()
    if chance < 0.1:
        messages += (
            [user(pick(rng, "Now all in capital letters.|And in upper case?")), assistant(answer.upper())]
            if len(answer) < 120
            else []
        )
    elif chance < 0.2:
        found = [word for word in re.findall(r"[a-z]{4,}", answer) if word not in PYTHON]
        if found:
            old, new = rng.choice(found), rng.choice(NOUNS)
            ask = pick(rng, f"Now replace {old} with {new}.|And change {old} to {new}.")
            messages += [user(ask), assistant(re.sub(rf"\b{old}\b", new, answer))]
    elif chance < 0.25:
        messages += [
            user(pick(rng, "Show me the original again.|Undo that.|Go back to the original.")),
            assistant(source),
        ]
    return with_system(rng, messages, 0.05)
