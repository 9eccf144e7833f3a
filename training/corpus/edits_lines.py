"""Edits of sentences, lines and marks: left out, added, numbered, joined, split or shortened."""

from __future__ import annotations

import re
from random import Random

from training.corpus.base import capital, listing, pick
from training.corpus.edits_words import SHORT, Edit, prose
from training.corpus.passages import passage
from training.corpus.phrasing import order
from training.corpus.sources import lines, odd, public_sentence, random_words, sentence, short_sentence
from training.corpus.text_facts import fact_passage


def units_of(rng: Random) -> list[str]:
    """Lines to edit, mostly few."""
    return lines(rng, 4 if rng.random() < SHORT else 9)


def sentences_of(rng: Random, low: int, high: int) -> list[str]:
    """Sentences of ours, of a passage or of public texts."""
    kind = rng.random()
    if rng.random() < SHORT:
        return [short_sentence(rng) for _ in range(rng.randint(low, min(high, 4)))]
    count = rng.randint(low, high)
    if kind < 0.35:
        return [sentence(rng) for _ in range(count)]
    if kind < 0.6:
        return [fact_passage(rng).sentences[0] for _ in range(count)]
    return [public_sentence(rng) for _ in range(count)]


_REMOVE = (
    "remove {w}|delete {w}|leave out {w}|drop {w}|cut {w}|take out {w}|take {w} away|write this without {w}|erase"
    " {w}|get rid of {w}|skip {w}|give me the text without {w}|strike out {w}"
)
_ADD_END = (
    "add {x} at the end|put {x} at the end|append {x}|write {x} at the end|end with {x}|add {x} to the end|attach {x}"
    " at the end|let it end with {x}|finish it with {x}|add {x} after it|add {x} below"
)
_ADD_START = (
    "add {x} at the beginning|put {x} at the beginning|prepend {x}|begin with {x}|start with {x}|put {x} in front|add"
    " {x} before it|add {x} at the start|write {x} first|put {x} before the text|add {x} at the top"
)


def remove_unit(rng: Random) -> Edit:
    """A text without one of its sentences or lines."""
    if rng.random() < 0.6:
        units, noun, glue = sentences_of(rng, 2, 5), "sentence", " "
    else:
        units, noun, glue = units_of(rng), pick(rng, "line|line|item|entry"), "\n"
    at = rng.choice((0, len(units) - 1, len(units) - 1, 1))
    where = "last" if at == len(units) - 1 else ("first", "second")[at]
    kept = units[:at] + units[at + 1 :]
    return glue.join(units), order(rng, _REMOVE.replace("{w}", f"the {where} {noun}")), glue.join(kept)


def add_unit(rng: Random) -> Edit:
    """A text with one sentence or line more."""
    if rng.random() < 0.6:
        source, extra = prose(rng), rng.choice((sentence, short_sentence, short_sentence, public_sentence))(rng)
        glue = " "
    else:
        *units, extra = units_of(rng)
        source, glue = "\n".join(units), "\n"
    quoted = extra if '"' in extra else f'"{extra}"'
    kind = pick(rng, "|||the sentence " if glue == " " else "|||the line ")
    if rng.random() < 0.6:
        return source, order(rng, _ADD_END, x=kind + quoted), f"{source}{glue}{extra}"
    return source, order(rng, _ADD_START, x=kind + quoted), f"{extra}{glue}{source}"


def numbered(rng: Random) -> Edit:
    """Lines with numbers."""
    units = units_of(rng)
    forms = (
        "number the lines|add line numbers|make a numbered list|put a number before each line|number these|turn this"
        " into a numbered list|make it a list with numbers|give every line a number|write these as 1, 2, 3|number the"
        " items|enumerate these lines|convert to a numbered list|list these with numbers"
    )
    source = rng.choice(("\n", "\n", ", ")).join(units)
    return source, order(rng, forms), "\n".join(f"{index}. {unit}" for index, unit in enumerate(units, 1))


def bullets(rng: Random) -> Edit:
    """Lines, or a list with commas, as bullets."""
    units = units_of(rng)
    source = rng.choice(("\n".join(units), ", ".join(units), ", ".join(units), listing(units), "; ".join(units)))
    forms = (
        "turn this into a bullet list|make bullets of it|write this as a list|make a bullet list|use bullet"
        " points|put this in bullet points|convert this to a bulleted list|make a list of this|list these|list these"
        " with dashes|format this as a list|bullet this|write every item on its own line with a dash|make it a"
        " Markdown list|split this into bullets|give me this as a list|make bullet points out of this"
    )
    return source, order(rng, forms), "\n".join(f"- {unit}" for unit in units)


def joined(rng: Random) -> Edit:
    """Lines as one line with commas."""
    units = units_of(rng)
    forms = (
        "put this on one line with commas|join the lines with commas|make one line of it, with commas|write these in"
        " one line, separated by commas|turn this into a comma-separated list|put commas between them|merge the lines"
        " with commas|make this a single line with commas|separate these by commas|put it all in one line"
    )
    return "\n".join(units), order(rng, forms), ", ".join(units)


def split_sentences(rng: Random) -> Edit:
    """Each sentence on its own line."""
    units = sentences_of(rng, 2, 5)
    forms = (
        "put each sentence on its own line|write one sentence per line|break the text into one line per"
        " sentence|start a new line after each sentence|split this into sentences|split this into lines|put every"
        " sentence on a new line|separate the sentences|give every sentence its own line|add a line break after each"
        " sentence"
    )
    return " ".join(units), order(rng, forms), "\n".join(units)


def shorten(rng: Random) -> Edit:
    """A passage cut to its first sentence."""
    units = passage(rng).sentences if rng.random() < 0.5 else sentences_of(rng, 2, 5)
    forms = (
        "shorten this|make it shorter|shorten the text|cut this down|make this shorter|sum this up in one"
        " sentence|keep only the first sentence|give me only the first sentence|shorten it to one sentence|reduce"
        " this to one sentence|say this in one sentence|make it brief|condense this|trim this|summarise this in one"
        " sentence|make a short version of this|cut everything after the first sentence|summarise this text|give me a"
        " short version|sum it up"
    )
    return " ".join(units), order(rng, forms), units[0]


def marks(rng: Random) -> Edit:
    """Marks taken away, put in or changed."""
    source = rng.choice((sentence, short_sentence, short_sentence, public_sentence))(rng)
    words = ", ".join(random_words(rng, 3, 8).split(" "))
    bare = re.sub(r"[^\w\s]", "", source)
    options = [
        (words, "remove the commas|remove all commas|delete the commas|take out the commas", words.replace(",", "")),
        (words, "use semicolons instead of commas|replace the commas with semicolons", words.replace(",", ";")),
        (words.replace(",", ""), "put commas between the words|separate the words by commas|add commas", words),
        (
            words,
            "put each word on its own line|write one word per line|break this into lines",
            words.replace(", ", "\n"),
        ),
        (
            source,
            "end with an exclamation mark|put an exclamation mark at the end|make it end with an exclamation mark",
            source.rstrip(".!?") + "!",
        ),
        (
            source,
            "remove the punctuation|delete all marks|take out all punctuation|write this without any punctuation",
            bare,
        ),
        (
            source.rstrip(".!?"),
            "add a full stop|add a full stop at the end|put a period at the end|end it with a full stop",
            source.rstrip(".!?") + ".",
        ),
        (
            source[:1].lower() + source[1:],
            "start with a capital letter|capitalise the first letter|make the first letter a capital|begin with a big"
            " letter",
            capital(source),
        ),
        (
            words.replace(", ", "  "),
            "remove the extra spaces|fix the spacing|clean up the spaces",
            words.replace(",", ""),
        ),
    ]
    text, forms, answer = rng.choice(options)
    return text, order(rng, forms), answer


def around_it(rng: Random) -> Edit:
    """A text between brackets, after a label or under a heading."""
    source = prose(rng) if rng.random() < 0.7 else odd(rng)
    word = capital(rng.choice(random_words(rng, 3, 5).split(" ")))
    forms, answer = rng.choice(
        [
            ("put this in brackets|put brackets around it|write it in parentheses", f"({source})"),
            ('add the heading "{x}"|put the title {x} above it|give it the heading {x}', f"# {word}\n\n{source}"),
            ('write "{x}:" in front of it|start with "{x}:"|begin the text with "{x}:"', f"{word}: {source}"),
            (
                "greet {x} at the beginning with Dear|start it with Dear {x}|begin with Dear {x}",
                f"Dear {word},\n\n{source}",
            ),
        ]
    )
    return source, order(rng, forms, x=word), answer


LINE_EDITS = (
    remove_unit,
    remove_unit,
    add_unit,
    add_unit,
    numbered,
    bullets,
    bullets,
    joined,
    split_sentences,
    shorten,
    shorten,
    marks,
    marks,
    around_it,
)
