"""The mixture of topics, the held-out share and the removal of repeated dialogues."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from random import Random

from training.corpus import about, chat, coding, copying, editing, explain, public, qa, story
from training.corpus.base import Dialogue, Maker, Message

MAKERS: dict[str, Maker] = {
    "chat": chat.make,
    "about": about.make,
    "explain": explain.make,
    "story": story.make,
    "code": coding.make,
    "qa": qa.make,
    "copy": copying.make,
    "edit": editing.make,
}
WEIGHTS = {"chat": 8, "about": 7, "explain": 12, "story": 9, "code": 12, "qa": 14, "copy": 22, "edit": 13, "public": 3}
HELD_OUT_PERCENT = 2
MIXED_SHARE = 0.05
LONG_SHARE = 0.04


def fingerprint(messages: list[Message]) -> str:
    """A hash of the normalised user turns, by which dialogues are told apart and held out."""
    asked = " / ".join(message["content"] for message in messages if message["role"] != "assistant")
    return hashlib.sha256(re.sub(r"[^a-z0-9/]+", " ", asked.lower()).strip().encode()).hexdigest()


def held_out(messages: list[Message]) -> bool:
    """Whether the dialogue belongs to the held-out share, decided by its first exchange's prompt."""
    prompt = messages[: next(i for i, message in enumerate(messages) if message["role"] == "assistant")]
    return int(fingerprint(prompt)[:8], 16) % 100 < HELD_OUT_PERCENT


def make(rng: Random) -> Dialogue | None:
    """One dialogue of the mixture."""
    category = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if category == "public":
        messages = public.make(rng)
        return Dialogue("public", messages) if messages else None
    messages = MAKERS[category](rng)
    if rng.random() < MIXED_SHARE:
        first = MAKERS[rng.choice(("chat", "about", "explain"))](rng)
        messages = first + [message for message in messages if message["role"] != "system"]
    elif rng.random() < LONG_SHARE:
        for _ in range(rng.randint(2, 6)):
            following = MAKERS[rng.choices(list(MAKERS), [WEIGHTS[name] for name in MAKERS])[0]](rng)
            messages = messages + [message for message in following if message["role"] != "system"]
    return Dialogue(category, messages)


def dialogues(seed: int, count: int, *, evaluation: bool = False) -> Iterator[Dialogue]:
    """Different dialogues, from the training share or from the held-out share."""
    rng = Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        dialogue = make(rng)
        if dialogue is None or held_out(dialogue.messages) != evaluation:
            continue
        key = fingerprint(dialogue.messages) + dialogue.messages[-1]["content"][:40]
        if key not in seen:
            seen.add(key)
            yield dialogue
