"""Tasks whose reply repeats the prompt: the whole text, a part of it, or an entry looked up in it."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, capital, pick, typed, user
from training.corpus.phrasing import ask, mark, order, posed
from training.corpus.sources import (
    lines,
    paragraph,
    program,
    public_sentence,
    public_text,
    random_words,
    sentence,
    text,
)
from training.corpus.words import NAMES, NOUNS, RARE, any_word, code, invented, number

_REPEAT = (
    "repeat {t}|repeat {t} {h}|copy {t}|copy {t} {h}|copy {t} {h}|write {t} again|write {t} {h}|say {t}|say {t}"
    " {h}|echo {t}|echo {t} {h}|type {t} {h}|type {t} again|print {t}|print {t} {h}|output {t} {h}|return {t}"
    " {h}|give me {t} back {h}|give {t} back to me|reproduce {t} {h}|write out {t} {h}|type out {t}|write down {t}"
    " {h}|read {t} back to me|send {t} back|send {t} back {h}|say back {t}|show me {t} again|show {t} {h}|put {t}"
    " down {h}|recite {t}|quote {t} {h}|transcribe {t} {h}|duplicate {t}|answer with {t} only|answer with {t} and"
    " nothing else|reply with {t} {h}|respond with {t} {h}|make a copy of {t}|make an exact copy of {t}|give me an"
    " exact copy of {t}|tell me {t} {h}|parrot {t}|restate {t} {h}|mirror {t}|paste {t} again|paste {t} here|leave"
    " {t} as it is and print it"
)
_WHAT = (
    "this|this|this|the following|this sentence|this line|this text|these words|it|that|the words|what I write|what"
    " I wrote|my text|my words|the passage|the message|this message|this phrase|exactly this|everything|this string|the"
    " content|all of this|all of it|the whole thing|the whole text|the entire text"
)
_BELOW = "|the text below|what follows|the words below|what comes next|the lines below|what I say next"
_ABOVE = "|the text above|the above|what I just wrote|the words above|everything above|what stands above"
_HOW = (
    "exactly|exactly|word for word|verbatim|unchanged|once|as it is|as is|without changes|without any change|without"
    " changing anything|letter by letter|character for character|exactly as it is|exactly as written|one to one|in full"
    "|completely|precisely|faithfully|literally|again|one more time|the same way|with the same spelling|without"
    " leaving anything out|without mistakes|with all its marks|and do not change it|and add nothing|just as it"
    " stands|including the numbers"
)
_BARE = (
    "Repeat after me|Copy|Echo|Again|Verbatim|Word for word|Say after me|Exact copy|Copy this|Repeat|Same again|Copy"
    " task|Do not change anything, only copy|After me|Back to me, word for word|Copy and paste|Exactly the same text"
    " again, please|One copy of this, please|I want to read this again, unchanged|I need the same text once more"
    "|What did I write?|Can I have that again?|May I get this back, unchanged?|Simply the same text"
)
_AGAIN = (
    "Again please.|Once more.|And again.|Repeat it once more.|Say it again.|One more time.|Could you repeat that?|Write"
    " it again, please.|the same again|again|Again, exactly the same.|Do it once more.|can you say that again?"
)
_NEXT = (
    "And this:|Now this one:|The same with this:|Next:|This too:|Now copy this:|And now:|Same for this:|Do the same"
    " with|Another one:|This one as well:|Then this:"
)


def request(rng: Random, source: str) -> str:
    """A text with a request to repeat it, before or after it."""
    first = 1.0 if rng.random() < 0.7 else 0.0
    if rng.random() < 0.2:
        said = typed(rng, pick(rng, _BARE))
    else:
        what = pick(rng, _WHAT + (_BELOW if first else _ABOVE))
        said = order(rng, " ".join(pick(rng, _REPEAT).replace("{t}", what).replace("{h}", pick(rng, _HOW)).split()))
    return posed(rng, said, source, first)


def repeat(rng: Random) -> list[Message]:
    """The whole text again."""
    source = text(rng)
    messages = [user(request(rng, source)), assistant(source)]
    chance = rng.random()
    if chance < 0.15:
        messages += [user(typed(rng, pick(rng, _AGAIN))), assistant(source)]
    elif chance < 0.3:
        source = text(rng)
        messages += [user(pick(rng, _NEXT) + pick(rng, "\n\n|\n| ") + source), assistant(source)]
    return messages


def quoted(rng: Random) -> list[Message]:
    """A phrase inside a request."""
    source = rng.choice((sentence, lambda r: random_words(r, 1, 10), public_text, public_sentence))(rng).split("\n")[0]
    if '"' not in source and rng.random() < 0.7:
        forms = (
            "say {x}|write {x} for me|repeat {x}|answer with {x}|reply with {x} only|reply {x}|type {x}|print {x}|just"
            " say {x} and nothing else|respond only with {x}|write the words {x}|say the phrase {x}|say the sentence"
            " {x} again|copy {x} here|output {x}|tell me {x}|write {x} once"
        )
        return [user(order(rng, forms, x=f'"{source}"')), assistant(source)]
    asked = pick(
        rng,
        "Say: {x}|Please say: {x}|Just say: {x}|say {x}|repeat: {x}|repeat after me: {x}|echo {x}|print {x}|Now say {x}"
        "|Type {x}|Reply with: {x}|Answer only: {x}|Your answer has to be: {x}|Say the following words: {x}|copy this"
        " please: {x}|I say {x}, you say the same.|You answer: {x}",
    )
    return [user(asked.replace("{x}", source)), assistant(source)]


def twice(rng: Random) -> list[Message]:
    """A short text several times."""
    source = random_words(rng, 1, 8) if rng.random() < 0.6 else sentence(rng)
    count, word = rng.choice(
        [
            (2, "twice|two times|2 times|2x"),
            (3, "three times|3 times|3x"),
            (4, "four times|4 times"),
            (5, "five times|5 times"),
        ]
    )
    forms = "write this {n}|repeat this {n}|say this {n}|say this {n}, each on its own line|copy this {n}|print it {n}"
    said = order(rng, forms, n=pick(rng, word))
    return [user(posed(rng, said, source, 0.85)), assistant("\n".join([source] * count))]


_PART = (
    "copy only {w}|copy {w}|repeat {w}|repeat only {w}|give me {w}|give me {w} of this text|write {w} again|write down"
    " {w} only|quote {w}|tell me {w}|show me {w}|print {w}|pick {w}|extract {w}|read {w} to me|find {w}|return only {w}"
)
_PART_QUESTIONS = (
    "What is {w}?|what's {w}|Which one is {w}?|How does {w} go?|{w}?|What does {w} say?|what do we read in {w}?"
)


def part(rng: Random) -> list[Message]:
    """One sentence, line or word of a text."""
    chance = rng.random()
    if chance < 0.4:
        make_one = rng.choice((sentence, public_sentence))
        units = [make_one(rng) for _ in range(rng.randint(2, 6))]
        source, noun = " ".join(units), "sentence"
    elif chance < 0.75:
        units = lines(rng)
        source, noun = "\n".join(units), pick(rng, "line|line|item|entry")
    else:
        units = random_words(rng, 3, 9).split(" ")
        source, noun = " ".join(units), "word"
    named = ["first", "second", "third", "fourth", "fifth"]
    at = rng.randrange(min(len(units), 5))
    where = (
        "last" if rng.random() < 0.25 else rng.choice((named[at], named[at], ("1st", "2nd", "3rd", "4th", "5th")[at]))
    )
    answer = units[-1] if where == "last" else units[at]
    said = f"the {where} {noun}"
    if rng.random() < 0.4:
        return [
            user(posed(rng, ask(rng, capital(pick(rng, _PART_QUESTIONS).replace("{w}", said))), source)),
            assistant(answer),
        ]
    return [user(posed(rng, order(rng, _PART.replace("{w}", said)), source)), assistant(answer)]


def completion(rng: Random) -> list[Message]:
    """The rest of the sentence that begins with the given words, or the sentence that holds a word."""
    makers = (sentence, public_sentence, lambda r: random_words(r, 6, 12) + ".")
    units = [rng.choice(makers)(rng) for _ in range(rng.randint(2, 6))]
    chosen = rng.choice(units)
    start, held = " ".join(chosen.split(" ")[:3]), rng.choice(chosen.split(" ")).strip('.,!?"')
    if rng.random() < 0.5 and sum(held in unit for unit in units) == 1 and len(held) > 3:
        forms = "copy the sentence with {x}|find the sentence that has {x} in it|quote the sentence about {x}"
        said = order(rng, forms, x=mark(rng, held))
    else:
        forms = (
            "copy the sentence that begins with {x}|find the sentence that starts with {x}|complete {x}|quote the"
            " sentence beginning with {x}|write the sentence that starts {x}"
        )
        said = order(rng, forms, x=f'"{start}"')
    return [user(posed(rng, said, " ".join(units))), assistant(chosen)]


_ENTRY = (
    "What is the value of {k}?|Look up {k}.|What does the list say for {k}?|{k}?|Give me the entry for {k}.|what's next"
    " to {k}|What belongs to {k}?|{k} is what?|Which value does {k} have?|find {k}|And {k}?|what about {k}|Tell me the"
    " value for {k}.|What stands behind {k}?|I need {k}.|value of {k}"
)


def lookup_entry(rng: Random) -> list[Message]:
    """Values looked up by their keys in a list."""
    makers = (lambda: rng.choice(NOUNS), lambda: rng.choice(RARE), lambda: invented(rng), lambda: rng.choice(NAMES))
    keys = list(dict.fromkeys(rng.choice(makers)() for _ in range(rng.randint(3, 10))))
    values = [rng.choice((number(rng), code(rng), any_word(rng), random_words(rng, 2, 4))) for _ in keys]
    sign = rng.choice((": ", ": ", " = ", " -> ", " - ", ", ", "\t", " | "))
    table = "\n".join(key + sign + value for key, value in zip(keys, values, strict=True))
    messages: list[Message] = []
    for index, at in enumerate(rng.sample(range(len(keys)), min(len(keys), rng.choice((1, 2, 3))))):
        question = typed(rng, pick(rng, _ENTRY)).replace("{k}", keys[at])
        messages += [user(posed(rng, question, table, 0.4) if index == 0 else question), assistant(values[at])]
    return messages


_CODE = (
    "repeat this code|copy this code|copy the code|put this into a code block|format this as Python|format this as"
    " code|show me this code again|write this code again|make a code block of this|copy the program word for word|type"
    " this function again|print the code unchanged|give me the code back|wrap this in a code block|paste this snippet"
    " again|return this script as it is|repeat the snippet exactly|copy my code and change nothing"
)


def fenced(rng: Random) -> list[Message]:
    """Code copied into a fenced block."""
    source = program(rng)
    block = f"```python\n{source}\n```"
    said = order(rng, _CODE)
    return [user(posed(rng, said, block if rng.random() < 0.5 else source)), assistant(block)]


def quote_block(rng: Random) -> list[Message]:
    """A text given back as a Markdown quote, in bold, in italics, or in quotation marks."""
    source = paragraph(rng, 1, 3) if rng.random() < 0.4 else random_words(rng, 2, 15)
    forms, answer = rng.choice(
        [
            (
                "write this as a quote|quote this text in Markdown|make a Markdown quote of it|make it a"
                " blockquote|turn this into a quote block",
                f"> {source}",
            ),
            ("write this in bold|make this bold|put this in bold|set it in bold letters|bold this", f"**{source}**"),
            ("write this in italics|make this italic|put it in italics|italicise this", f"*{source}*"),
            (
                "put this in quotation marks|add quotation marks|put quotes around this|wrap this in double quotes",
                f'"{source}"',
            ),
        ]
    )
    return [user(order(rng, forms) + pick(rng, ":\n\n|\n\n|\n|: ") + source), assistant(answer)]


TASKS = (*[repeat] * 6, quoted, quoted, twice, part, completion, lookup_entry, fenced, quote_block)


def make(rng: Random) -> list[Message]:
    """A copying task, now and then two."""
    messages = rng.choice(TASKS)(rng)
    if rng.random() < 0.12:
        messages = messages + rng.choice(TASKS)(rng)
    return with_system(rng, messages, 0.05)
