"""Questions about a text that the user pastes."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.passages import Passage, passage
from training.corpus.sources import paragraph, public_text
from training.corpus.text_facts import fact_passage

_ASK = (
    "{text}\n\n{q}|{text} {q}|{text}\n{q}|Read this text and answer the question.\n\n{text}\n\n{q}|Text:"
    " {text}\n\nQuestion:"
    " {q}|{q}\n\n{text}|Here is a text:\n\n{text}\n\n{q}|Answer from the text.\n\nText: {text}\nQuestion: {q}|I pasted"
    " a text below. {q}\n\n{text}"
)


def _quote(source: Passage, answer: str) -> str:
    """The sentence that shares most words with the answer."""
    words = set(answer.strip(".").split())
    return max(source.sentences, key=lambda sentence: len(words & set(sentence.strip(".").split())))


def make(rng: Random) -> list[Message]:
    """A text with one to four questions about it."""
    source = (fact_passage if rng.random() < 0.6 else passage)(rng)
    questions = rng.sample(source.questions, min(len(source.questions), rng.choice((1, 1, 2, 3, 4))))
    ask, answer = questions[0]
    form = pick(rng, _ASK)
    shown = source.text
    if rng.random() < 0.2:
        parts = [shown, paragraph(rng, 2, 6) if rng.random() < 0.5 else public_text(rng)]
        rng.shuffle(parts)
        shown = pick(rng, "\n\n| ").join(parts)
    messages = [user(form.replace("{text}", shown).replace("{q}", typed(rng, pick(rng, ask)))), assistant(answer)]
    for ask, answer in questions[1:]:
        messages += [user(typed(rng, pick(rng, "|||And |Now: ") + pick(rng, ask))), assistant(answer)]
    if rng.random() < 0.2:
        ask = pick(
            rng, "Which sentence says so?|Quote the sentence.|Where does the text say that?|Show me the sentence."
        )
        messages += [user(typed(rng, ask)), assistant(f'The text says: "{_quote(source, questions[-1][1])}"')]
    elif rng.random() < 0.1:
        ask = pick(
            rng,
            "What is the weather like in the text?|Which song is played?|What is the phone number?|Who is the"
            " mayor?|What is the dog called?",
        )
        messages += [user(typed(rng, ask)), assistant("The text does not say that.")]
    return with_system(rng, messages, 0.08)
