"""Tasks whose reply is the pasted text with a small change."""

from __future__ import annotations

import re
from random import Random

from training.corpus.about import with_system
from training.corpus.base import Message, assistant, pick, typed, user
from training.corpus.edits_lines import LINE_EDITS
from training.corpus.edits_words import WORD_EDITS, changed
from training.corpus.phrasing import posed
from training.corpus.words import NOUNS, PYTHON

_UPPER = "Now all in capital letters.|And in upper case?|now in caps|Make that uppercase.|Same in capitals, please."
_BACK = "Show me the original again.|Undo that.|Go back to the original.|undo|Revert it.|I want the old version back."
_THEN = "Now |And |Then |Also |Okay, now |Good. Now |thx, now |"


def make(rng: Random) -> list[Message]:
    """An edit, now and then followed by a second edit of the same text."""
    source, said, answer = rng.choice(WORD_EDITS if rng.random() < 0.62 else LINE_EDITS)(rng)
    if not answer.strip():
        return make(rng)
    messages = [user(posed(rng, said, source)), assistant(answer)]
    chance = rng.random()
    if chance < 0.08 and len(answer) < 120:
        messages += [user(typed(rng, pick(rng, _UPPER))), assistant(answer.upper())]
    elif chance < 0.2:
        found = [word for word in re.findall(r"\b[a-z]{4,}\b", answer) if word not in PYTHON]
        if found:
            old, new = rng.choice(found), rng.choice(NOUNS)
            messages += [user(pick(rng, _THEN) + changed(rng, old, new)), assistant(re.sub(rf"\b{old}\b", new, answer))]
    elif chance < 0.25:
        messages += [user(typed(rng, pick(rng, _BACK))), assistant(source)]
    return with_system(rng, messages, 0.05)
