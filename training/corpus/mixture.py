"""The mixture of topics, the held-out share and the removal of repeated dialogues."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from random import Random

from training.corpus import (
    about,
    beyond,
    changes,
    chat,
    coding,
    copying,
    drills,
    editing,
    explain,
    explain_keys,
    facts,
    followups,
    qa,
    story,
    sums,
    two_parts,
)
from training.corpus.base import Dialogue, Maker, Message
from training.corpus.kept_apart import kept_apart

MAKERS: dict[str, Maker] = {
    "chat": chat.make,
    "about": about.make,
    "facts": facts.make,
    "beyond": beyond.make,
    "explain": explain.make,
    "keys": explain_keys.make,
    "story": story.make,
    "code": coding.make,
    "qa": qa.make,
    "copy": copying.make,
    "edit": editing.make,
    "drill": drills.make,
    "sums": sums.make,
    "two": two_parts.make,
    "change": changes.make,
}
WEIGHTS = {
    "chat": 6,
    "about": 8,
    "facts": 8,
    "beyond": 8,
    "explain": 4,
    "keys": 2,
    "story": 9,
    "code": 6,
    "qa": 17,
    "copy": 14,
    "edit": 30,
    "drill": 30,
    "sums": 22,
    "two": 14,
    "change": 10,
}
HELD_OUT_PERCENT = 2
FOLLOWED_SHARE = 0.08
ON_CHAT_SHARE = 0.08
LONG_SHARE = 0.04
LONG_LIMIT = 3600
"""Characters of the longest chats: about 1,000 tokens."""


def fingerprint(messages: list[Message]) -> str:
    """Hash of the normalised user turns, which identifies and holds out dialogues."""
    asked = " / ".join(message["content"] for message in messages if message["role"] != "assistant")
    return hashlib.sha256(re.sub(r"[^a-z0-9/]+", " ", asked.lower()).strip().encode()).hexdigest()


def held_out(messages: list[Message]) -> bool:
    """True for the held-out share, decided by the first prompt."""
    prompt = messages[: next(i for i, message in enumerate(messages) if message["role"] == "assistant")]
    return int(fingerprint(prompt)[:8], 16) % 100 < HELD_OUT_PERCENT


def topic(rng: Random, weights: Mapping[str, int]) -> str:
    """A category, as often as its weight says."""
    return rng.choices(list(weights), list(weights.values()))[0]


def long_chat(rng: Random, messages: list[Message], weights: Mapping[str, int]) -> list[Message]:
    """A chat that goes on with other topics, up to a length between a third and the whole of the longest."""
    limit = rng.randint(LONG_LIMIT // 3, LONG_LIMIT)
    while True:
        added = followups.follow_up(rng) if rng.random() < 0.2 else MAKERS[topic(rng, weights)](rng)
        grown = messages + [message for message in added if message["role"] != "system"]
        if sum(len(message["content"]) for message in grown) > limit:
            return messages
        messages = grown


def make(rng: Random, long_share: float, weights: Mapping[str, int]) -> Dialogue:
    """One dialogue of the mixture; the given share of them are long chats."""
    category = topic(rng, weights)
    messages = MAKERS[category](rng)
    if rng.random() < long_share:
        return Dialogue(category, long_chat(rng, messages, weights))
    chance = rng.random()
    if chance < FOLLOWED_SHARE:
        messages = messages + followups.follow_up(rng)
    elif chance < FOLLOWED_SHARE + ON_CHAT_SHARE:
        messages = messages + followups.on_chat(rng, messages)
    return Dialogue(category, messages)


def dialogues(
    seed: int,
    count: int,
    *,
    evaluation: bool = False,
    long_share: float = LONG_SHARE,
    weights: Mapping[str, int] = WEIGHTS,
) -> Iterator[Dialogue]:
    """Different dialogues, from the training share or from the held-out share, none with a turn written by hand."""
    rng = Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        dialogue = make(rng, long_share, weights)
        if held_out(dialogue.messages) != evaluation or kept_apart(dialogue.messages):
            continue
        key = fingerprint(dialogue.messages) + dialogue.messages[-1]["content"][:40]
        if key not in seen:
            seen.add(key)
            yield dialogue
