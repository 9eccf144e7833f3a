"""Questions about a text that the user pastes."""

from __future__ import annotations

import re
from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.everyday import everyday
from training.corpus.happenings import happening
from training.corpus.parallels import parallel
from training.corpus.passages import Passage, passage
from training.corpus.phrasing import ask, posed
from training.corpus.sources import paragraph, public_text
from training.corpus.text_facts import fact_passage

_BEFORE = (
    "Read this text and answer the question.|I pasted a text below.|Here is a text.|Answer from the text.|I have a"
    " question about this text.|Use the text to answer.|Read this:|Please read the following.|Look at this.|This is an"
    " email I got.|I got this message.|Read carefully.|My question is about this text.|Here is some information."
)
_QUOTE = (
    "Which sentence says so?|Quote the sentence.|Where does the text say that?|Show me the sentence.|How do you"
    " know?|Prove it.|Where did you read that?|quote it"
)
_UNTOLD = (
    "What is the weather like in the text?|Which song is played?|Who is the mayor?|What is the dog called?|What is"
    " the name of the hotel?|How tall is the tower?|What did they eat for breakfast?|Which language do they"
    " speak?|How many cats are there?|Which film did they see?"
)
UNTOLD = "The text does not say that."


def _quote(source: Passage, answer: str) -> str:
    """The sentence that alone holds words of the answer; "" where more than one might be meant."""
    words = set(re.findall(r"\w+", answer))
    held = [words & set(re.findall(r"\w+", sentence)) for sentence in source.sentences]
    own = [
        sum(len(word) for word in found if sum(word in other for other in held) == 1) if len(found) else 0
        for found in held
    ]
    best = max(own)
    return source.sentences[own.index(best)] if best > 2 and own.count(best) == 1 else ""


def by_pronoun(rng: Random, asked: str, name: str) -> str:
    """The question with he or she for the name."""
    subject, owner = rng.choice((("he", "his"), ("she", "her")))
    asked = re.sub(rf"\bthe (\w+) of {name}\b", rf"{owner} \1", asked)
    asked = re.sub(rf"\b{name}'s\b", owner, asked)
    return re.sub(rf"\b(does|did|has|is|was|will) {name}\b", rf"\1 {subject}", asked)


def _shown(rng: Random, source: Passage) -> str:
    """The passage, now and then between other text."""
    if source.sentences[0][-1] not in ".?!" or ":" in source.sentences[-1]:
        return "\n".join(source.sentences)
    if rng.random() < 0.8:
        return pick(rng, " | | |\n").join(source.sentences)
    parts = [source.text, paragraph(rng, 1, 3) if rng.random() < 0.5 else public_text(rng)]
    rng.shuffle(parts)
    return pick(rng, "\n\n| ").join(parts)


def make(rng: Random) -> list[Message]:
    """A text with one to four questions about it."""
    source = rng.choices((fact_passage, passage, everyday, happening, parallel), (25, 15, 20, 20, 20))[0](rng)
    questions = rng.sample(source.questions, min(len(source.questions), rng.choice((1, 1, 2, 3, 4))))
    asked, answer = questions[0]
    question = pick(rng, asked)
    if (
        source.names
        and (len(source.names) == 1 or source.sentences[0].startswith(source.names[0]))
        and rng.random() < 0.3
    ):
        question = by_pronoun(rng, question, source.names[0])
    said = ask(rng, question)
    shown = _shown(rng, source)
    first = rng.random() < 0.4
    prompt = posed(rng, said, shown, 1.0 if first else 0.0)
    if rng.random() < 0.2:
        prompt = typed(rng, pick(rng, _BEFORE)) + pick(rng, "\n\n|\n| ") + prompt
    messages = [user(prompt), assistant(answer)]
    for asked, answer in questions[1:]:
        messages += [user(typed(rng, pick(rng, "|||And |Now: |ok, |and ") + pick(rng, asked))), assistant(answer)]
    chance = rng.random()
    quoted = _quote(source, questions[-1][1])
    if chance < 0.15 and quoted:
        messages += [user(typed(rng, pick(rng, _QUOTE))), assistant(f'The text says: "{quoted}"')]
    elif chance < 0.23:
        messages += [user(typed(rng, pick(rng, _UNTOLD))), assistant(UNTOLD)]
    elif chance < 0.26:
        messages = [user(posed(rng, ask(rng, pick(rng, _UNTOLD)), shown, 0.4)), assistant(UNTOLD)]
    return with_system(rng, messages, 0.08)
