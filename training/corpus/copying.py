"""Tasks whose reply repeats the prompt: the whole text, a part of it, or an entry looked up in it."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.sources import lines, paragraph, program, public_text, random_words, sentence, text
from training.corpus.words import NOUNS, RARE, any_word, code, invented, number

_REPEAT = (
    "Repeat the following text exactly:|Repeat this text:|Copy this:|Repeat after me:|Write this text again:|Say"
    " exactly this:|Please copy the text below.|Give the text back without any change.|Copy the following text word for"
    " word:|Echo this:|Repeat it:|Type this again, please:"
)
_REPEAT_AFTER = (
    "Repeat the text above.|Please copy this text exactly.|Write that again.|Repeat this word for word.|Copy it."
)


def _order(rng: Random) -> str:
    """An order to repeat what follows, put together from a verb, what it is called and how it is to be done."""
    verb = pick(rng, "Repeat|Copy|Write|Say|Echo|Type|Print|Give me|Return|Write out|Type out|Tell me|Output")
    what = pick(
        rng, "this|the following|this sentence|this line|this text|these words|the text below|what follows|it|that"
    )
    how = pick(
        rng, "|||| exactly| again| word for word| for me| unchanged| once| as it is| without changes| please|, please"
    )
    return pick(rng, "||||Please |Could you |Can you |Now ") + f"{verb} {what}{how}" + pick(rng, ":|:|:|.|")


def _ask(rng: Random, source: str, before: str, after: str) -> str:
    """The text with its instruction before or after it."""
    if rng.random() < 0.75:
        return typed(rng, pick(rng, before)) + pick(rng, "\n\n|\n| | ") + source
    return source + "\n\n" + typed(rng, pick(rng, after))


def repeat(rng: Random) -> list[Message]:
    """The whole text again."""
    source = text(rng)
    before = _REPEAT if rng.random() < 0.4 else _order(rng)
    messages = [user(_ask(rng, source, before, _REPEAT_AFTER)), assistant(source)]
    if rng.random() < 0.15:
        again = pick(rng, "Again please.|Once more.|And again.|Repeat it once more.")
        messages += [user(typed(rng, again)), assistant(source)]
    elif rng.random() < 0.15:
        source = text(rng)
        messages += [
            user(pick(rng, "And this:|Now this one:|The same with this:") + "\n\n" + source),
            assistant(source),
        ]
    return messages


def quoted(rng: Random) -> list[Message]:
    """A quoted phrase inside a request."""
    source = rng.choice((sentence, lambda r: random_words(r, 1, 10), public_text))(rng).split("\n")[0]
    ask = pick(
        rng,
        'Say "{x}"|Please say "{x}".|Write "{x}" for me.|Can you repeat "{x}"?|How do you write "{x}"?|Answer with'
        ' "{x}".|Just say: {x}|Reply with "{x}" only.',
    )
    return [user(ask.replace("{x}", source)), assistant(source)]


def twice(rng: Random) -> list[Message]:
    """A short text several times."""
    source = random_words(rng, 1, 8) if rng.random() < 0.6 else sentence(rng)
    count, word = rng.choice(
        [
            (2, "twice|two times|2 times"),
            (3, "three times|3 times"),
            (4, "four times|4 times"),
            (5, "five times|5 times"),
        ]
    )
    ask = pick(
        rng,
        "Write this {n}: {x}|Repeat {n}: {x}|Say this {n}, each on its own line: {x}|Please write the following"
        " {n}.\n\n{x}",
    )
    return [user(ask.replace("{n}", pick(rng, word)).replace("{x}", source)), assistant("\n".join([source] * count))]


def part(rng: Random) -> list[Message]:
    """One sentence or line of a text."""
    if rng.random() < 0.5:
        units = [sentence(rng) for _ in range(rng.randint(2, 6))]
        source, noun = " ".join(units), "sentence"
    else:
        units = lines(rng)
        source, noun = "\n".join(units), "line"
    order = ["first", "second", "third", "fourth", "fifth"]
    at = rng.randrange(min(len(units), 5))
    where = "last" if rng.random() < 0.25 else order[at]
    answer = units[-1] if where == "last" else units[at]
    ask = pick(
        rng,
        f"Copy only the {where} {noun}.|What is the {where} {noun}?|Repeat the {where} {noun}.|Give me the {where}"
        f" {noun} of this text.",
    )
    return [user(_ask(rng, source, ask, ask)), assistant(answer)]


def completion(rng: Random) -> list[Message]:
    """The rest of the sentence that begins with the given words."""
    units = [
        rng.choice((sentence, sentence, lambda r: random_words(r, 6, 12) + "."))(rng) for _ in range(rng.randint(2, 6))
    ]
    chosen = rng.choice(units)
    start = " ".join(chosen.split(" ")[:3])
    ask = pick(
        rng,
        f'Copy the sentence that begins with "{start}".|Which sentence starts with "{start}"?|Find the sentence that'
        f' starts with "{start}".',
    )
    return [user(_ask(rng, " ".join(units), ask, ask)), assistant(chosen)]


def lookup_entry(rng: Random) -> list[Message]:
    """Values looked up by their keys in a list."""
    keys = list(
        dict.fromkeys(
            rng.choice((rng.choice(NOUNS), rng.choice(RARE), invented(rng))) for _ in range(rng.randint(3, 10))
        )
    )
    values = [rng.choice((number(rng), code(rng), any_word(rng), random_words(rng, 2, 4))) for _ in keys]
    sign = rng.choice((": ", " = ", " -> ", " - "))
    table = "\n".join(key + sign + value for key, value in zip(keys, values, strict=True))
    ask = "What is the value of {k}?|Look up {k}.|What does the list say for {k}?|{k}?|Give me the entry for {k}."
    messages: list[Message] = []
    for index, at in enumerate(rng.sample(range(len(keys)), min(len(keys), rng.choice((1, 2, 3))))):
        question = pick(rng, ask).replace("{k}", keys[at])
        messages += [user(_ask(rng, table, question, question) if index == 0 else question), assistant(values[at])]
    return messages


def fenced(rng: Random) -> list[Message]:
    """Code copied into a fenced block."""
    source = program(rng)
    block = f"```python\n{source}\n```"
    shown = block if rng.random() < 0.5 else source
    before = (
        "Repeat this code:|Copy the following code:|Put this into a code block:|Format this as Python:|Show me this"
        " code again:"
    )
    return [
        user(_ask(rng, shown, before, "Repeat the code above.|Put this code into a code block.|Copy this code.")),
        assistant(block),
    ]


def quote_block(rng: Random) -> list[Message]:
    """A text given back as a Markdown quote, in bold, or in quotation marks."""
    source = paragraph(rng, 1, 3) if rng.random() < 0.6 else random_words(rng, 2, 15)
    ask, answer = rng.choice(
        [
            ("Write this as a quote:|Quote this text:|Make a Markdown quote of it:", f"> {source}"),
            ("Write this in bold:|Make this bold:|Bold, please:", f"**{source}**"),
            ("Put this in quotation marks:|Add quotation marks:", f'"{source}"'),
        ]
    )
    return [
        user(
            _ask(rng, source, ask, "Do that with this text, please.")
            if rng.random() < 0.01
            else pick(rng, ask) + "\n\n" + source
        ),
        assistant(answer),
    ]


TASKS = (repeat, repeat, repeat, repeat, quoted, twice, part, completion, lookup_entry, fenced, quote_block)


def make(rng: Random) -> list[Message]:
    """A copying task, now and then two."""
    messages = rng.choice(TASKS)(rng)
    if rng.random() < 0.12:
        messages = messages + rng.choice(TASKS)(rng)
    return with_system(rng, messages, 0.05)
