"""Explanations of speculative decoding and of specchat's own terms."""

from __future__ import annotations

from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, capital, pick, typed, user
from training.corpus.explain_questions import QUESTIONS
from training.corpus.explain_terms import TERMS
from training.corpus.phrasing import around

_ASK = (
    "What is {t}?|Explain {t}.|what is {t} again?|What exactly is {t}?|Can you tell me what {t} is?|I keep reading"
    " about {t}. What is it?|Help me understand {t}.|What is meant by {t}?|Give me a definition of {t}.|Could you"
    " explain {t}?|In simple words, what is {t}?|how does {t} work in specchat|Why is there {t}?|Please tell me about"
    " {t}.|I am new to this: what is {t}?|What do I need to know about {t}?|Say something about {t}.|Teach me about"
    " {t}.|I have heard of {t}, what is it?|what's {t}|Explain {t} like I am five.|What is the idea of {t}?|What does"
    " {t} mean?|Can you explain {t}?|Tell me about {t}.|How does {t} work?|Explain {t} to me in simple words.|I do"
    " not understand {t}.|What do you mean by {t}?|Describe {t}.|Please explain {t} briefly.|{t}?|Define {t}."
)
_MORE = "Tell me more.|Can you say more about that?|More detail please.|Go on.|And then?|Explain a bit more.|Why?"
_SHORT = (
    "Shorter please.|Can you say that in one sentence?|In one sentence?|Too long. Shorter?|Sum it up.|Give me the short"
    " version."
)
_LIST = (
    "Give me the main points about {t}.|List the key facts about {t}.|{t} in bullet points, please.|Make a list of"
    " facts about {t}."
)


def term_turns(rng: Random) -> list[Message]:
    """A question about one term, and perhaps a follow-up."""
    names, first, rest = rng.choice(TERMS)
    term = pick(rng, names)
    lead = pick(rng, first)
    facts = list(rest)
    chance = rng.random()
    if chance < 0.2:
        ask = capital(pick(rng, _LIST).format(t=term))
        answer = f"Facts about {names.split('|')[0]}:\n\n" + "\n".join(f"- {fact}" for fact in [lead, *facts])
        return [user(typed(rng, ask)), assistant(answer)]
    ask = capital(pick(rng, _ASK).format(t=term))
    if chance < 0.6:
        return [user(around(rng, typed(rng, ask), 0.1)), assistant(" ".join([lead, *facts[:2]]))]
    follow = [user(typed(rng, ask)), assistant(" ".join([lead, facts[0]]))]
    if chance < 0.85:
        return [*follow, user(typed(rng, pick(rng, _MORE))), assistant(" ".join(facts[1:]))]
    return [*follow, user(typed(rng, pick(rng, _SHORT))), assistant(lead)]


def compare_turns(rng: Random) -> list[Message]:
    """A question that a fixed answer fits."""
    ask, answer = rng.choice(QUESTIONS)
    return [user(typed(rng, pick(rng, ask))), assistant(answer)]


def make(rng: Random) -> list[Message]:
    """One to three questions about terms and comparisons."""
    messages: list[Message] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        messages += rng.choice((term_turns, term_turns, compare_turns))(rng)
    return with_system(rng, messages)
