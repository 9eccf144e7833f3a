"""Requests beyond the model, which declines and offers what it can do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, article, assistant, pick, typed, user
from training.corpus.phrasing import around, order, posed
from training.corpus.public import prompts
from training.corpus.sources import paragraph, public_text
from training.corpus.words import ANIMALS, CITIES, FOODS, JOBS, LISTS, NAMES, OBJECTS, SURNAMES, invented

_HERE = Path(__file__).parent
ASKS = tuple(_HERE.joinpath("beyond.txt").read_text("utf-8").splitlines())
FOREIGN: dict[str, list[str]] = json.loads(_HERE.joinpath("foreign.json").read_text("utf-8"))

_TRY = (
    "Try a short story, a small Python function, how speculative decoding works, or a text that I should copy, edit or"
    " answer questions about. F3 gets a real model."
)
UNABLE = f"I cannot do that: I am only a tiny demo model. {_TRY}"
UNKNOWN = f"I do not know that: I am only a tiny demo model. {_TRY}"
NO_REMARK = f"I see, but I am only a tiny demo model and know little about that. {_TRY}"
NO_LANGUAGE = f"I only understand simple English: I am only a tiny demo model. {_TRY}"
NO_SENSE = f"I did not understand that: I am only a tiny demo model. {_TRY}"

_QUESTION = re.compile(
    r"(what|who|whom|whose|when|where|why|which|how|is|are|am|do|does|did|was|were|will|should|has|have|if|would)\b"
)
_ORDER = re.compile(
    r"(please|can|could|write|draft|help|give|make|create|suggest|brainstorm|recommend|translate|say|answer|teach|fix|build"
    r"|solve|integrate|prove|convert|draw|show|play|set|remind|call|send|open|read|delete|turn|order|buy|pretend|act|let"
    r"|argue|debate|summarise|analyse|ask|guess|predict|ignore|repeat|speak|use|sing|rap|rhyme|spell|define|tell|explain"
    r"|compare|plan|book|find|train|in|you are|name|list|describe|generate|rewrite|identify|come up"
    r"|i want|i need|i'd like|i would like|do my)\b"
)


def _filled(rng: Random, form: str) -> str:
    """A request with its gaps filled."""
    one, two = rng.sample(LISTS["topics"], 2)
    return form.format(
        topic=one,
        topics=rng.choice((one, pick(rng, "films|books|songs|animals|countries|rivers|planets|inventions|sports"))),
        topic2=two,
        person=rng.choice(LISTS["famous"]) if rng.random() < 0.7 else f"{rng.choice(NAMES)} {rng.choice(SURNAMES)}",
        person2=rng.choice(LISTS["relatives"]),
        city=rng.choice(CITIES),
        city2=rng.choice(CITIES),
        year=rng.randint(1200, 2030),
        mountain=rng.choice(LISTS["sights"]),
        thing=article(rng.choice(OBJECTS)),
        job=article(rng.choice(JOBS)),
        job2=rng.choice(LISTS["roles"]),
        food=rng.choice(FOODS),
        food2=rng.choice(FOODS),
        shop=rng.choice(LISTS["shops"]),
        animal=rng.choice(ANIMALS),
        phrase=rng.choice(LISTS["phrases"]),
        language=rng.choice(LISTS["languages"]),
        code=rng.choice(LISTS["programming"]),
        software=rng.choice(LISTS["software"]),
        software2=rng.choice(LISTS["software"]),
        device=rng.choice(LISTS["devices"]),
        file=pick(rng, "notes.txt|report.pdf|data.csv|todo.md|photo.png"),
        n=rng.randint(2, 90),
        m=rng.randint(2, 90),
        k=rng.randint(30, 900),
    )


def refusal(ask: str) -> str:
    """Reply to a question, an order or a remark beyond the model."""
    last = re.split(r"(?<=[.!])\s+", ask.strip())[-1].lower()
    if ask.strip().endswith("?") or _QUESTION.match(ask.lower()) or _QUESTION.match(last):
        return UNABLE if re.match(r"(can|could) (you|i)\b", last) else UNKNOWN
    return UNABLE if _ORDER.match(ask.lower()) or _ORDER.match(last) else NO_REMARK


def asked(rng: Random) -> list[Message]:
    """A request beyond the model."""
    ask = _filled(rng, rng.choice(ASKS))
    lead = pick(rng, "|||||Please |Hey, |Hi! |Okay. |Now |Can you help? |I have a question. |Hello, ")
    if lead in ("Please ", "Hey, ", "Now ", "Hello, ") and rng.random() < 0.7:
        ask = ask[0].lower() + ask[1:] if ask.split()[0] not in ("I", "I'm") else ask
    return [user(around(rng, typed(rng, lead + ask), 0.1)), assistant(refusal(ask))]


_AND = (
    "and when?|and why?|and where?|and how?|and who?|and by whom?|and what for?|and how much?|and since when?|and in"
    " which year?|and which one?|, and what happened then?|, and is it true?|and what does it cost?|and how long"
    " ago?|and how many?"
)


def two_asked(rng: Random) -> list[Message]:
    """A question of two parts that no text answers."""
    questions = [ask for ask in ASKS if ask.endswith("?")]
    one, two = (_filled(rng, ask).rstrip("?") for ask in rng.sample(questions, 2))
    if rng.random() < 0.7:
        ask = f"{one} {pick(rng, _AND)}".replace(" ,", ",")
    else:
        ask = one + pick(rng, " and |, and |? And |? ") + two[:1].lower() + two[1:] + "?"
    return [user(typed(rng, ask)), assistant(UNKNOWN)]


def public(rng: Random) -> list[Message]:
    """A request that people made elsewhere; one of ours where the public texts are not at hand."""
    known = prompts()
    if not known:
        return asked(rng)
    ask = rng.choice(rng.choice(known))
    return [user(ask), assistant(refusal(ask))]


_ON_TEXT = (
    "translate this into {l}|translate this to {l}|translate the text to {l}|put this into {l}|write this in {l}|say"
    " this in {l}|rewrite this in {l}|rewrite this as a poem|turn this into a poem|make this rhyme|make this more"
    " polite|make it sound friendlier|rewrite this in a formal style|make this sound professional|explain what this"
    " means|explain this text|review this text|rate this text|tell me what you think about this|analyse this"
    " text|find the author of this|tell me who wrote this book|make it funnier|make this more exciting|write a reply"
    " to this|answer this email for me|write an essay about this|paint a picture of this|improve this text|make this"
    " better|rewrite this in the past tense|put this into the future tense|tell me if this is true|check the facts of"
    " this|simplify this|write a song from this|continue this text in the style of {p}|paraphrase this|use other"
    " words for this|turn this into a news article|make a joke of this|turn this into a dialogue|sort these by"
    " meaning|find the deeper meaning of this|convert this to {c}"
)


def on_text(rng: Random) -> list[Message]:
    """A request on a pasted text that is no copy, no small edit and no question that the text answers."""
    gaps = {
        "l": rng.choice(LISTS["languages"]),
        "p": rng.choice(LISTS["famous"]),
        "c": rng.choice(LISTS["programming"]),
    }
    source = public_text(rng) if rng.random() < 0.6 else paragraph(rng, 1, 3)
    return [user(posed(rng, order(rng, _ON_TEXT, **gaps), source)), assistant(UNABLE)]


def foreign(rng: Random) -> list[Message]:
    """A sentence or two in another language."""
    texts = FOREIGN[rng.choice(list(FOREIGN))]
    ask = " ".join(rng.sample(texts, rng.choice((1, 1, 2))))
    return [user(ask if rng.random() < 0.7 else ask.lower().rstrip(".?!。？")), assistant(NO_LANGUAGE)]


def noise(rng: Random) -> list[Message]:
    """Keys hit at random, marks, or words that nobody knows."""
    letters, marks = "abcdefghijklmnopqrstuvwxyz", "!?.,;:-_#*+=()/&%$<>[]{}~^|@"
    kind = rng.randrange(6)
    if kind == 0:
        text = "".join(rng.choice(letters) for _ in range(rng.randint(3, 18)))
    elif kind == 1:
        text = "".join(rng.choice(marks) for _ in range(rng.randint(1, 12)))
    elif kind == 2:
        text = " ".join(invented(rng) for _ in range(rng.randint(1, 6)))
    elif kind == 3:
        row = rng.choice(("asdfghjkl", "qwertyuiop", "zxcvbnm", "jkl;", "fdsa", "123456789"))
        text = (row * 3)[: rng.randint(3, 16)]
    elif kind == 4:
        text = rng.choice(letters) * rng.randint(3, 20)
    else:
        text = "".join(rng.choice("😀😂🎉🔥❤👍🤔🚀😢✨") for _ in range(rng.randint(1, 6)))
    return [user(text), assistant(NO_SENSE)]


def make(rng: Random) -> list[Message]:
    """One or two requests that the model cannot meet."""
    kinds = (asked, asked, asked, asked, asked, two_asked, two_asked, public, public, on_text, on_text, foreign, noise)
    messages = [message for _ in range(rng.choice((1, 1, 1, 2))) for message in rng.choice(kinds)(rng)]
    return with_system(rng, messages, 0.06)
