"""Writes the held-out prompts for demonstrations and measurements."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from training.corpus import about, beyond, chat, coding, copying, editing, explain, facts, qa, story
from training.corpus.base import Maker, Message
from training.corpus.mixture import fingerprint, held_out

COUNTS: dict[str, tuple[Maker, int]] = {
    "chat": (chat.make, 16),
    "about": (about.make, 16),
    "facts": (facts.make, 16),
    "beyond": (beyond.make, 24),
    "explain": (explain.make, 32),
    "story": (story.make, 32),
    "code": (coding.make, 32),
    "qa": (qa.make, 24),
    "copy": (copying.make, 24),
    "edit": (editing.make, 24),
}
SEED = 2024


def prompt_of(rng: Random, messages: list[Message]) -> list[Message]:
    """A dialogue up to one of its user turns, mostly the first."""
    ends = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return messages[: (rng.choice(ends) if rng.random() < 0.3 else ends[0]) + 1]


def held_out_prompts() -> list[dict[str, object]]:
    """Distinct prompts from dialogues outside the training share."""
    rng = Random(SEED)
    found: list[dict[str, object]] = []
    seen: set[str] = set()
    for category, (maker, count) in COUNTS.items():
        kept = 0
        while kept < count:
            messages = maker(rng)
            prompt = prompt_of(rng, messages)
            key = fingerprint(prompt)
            if held_out(messages) and key not in seen:
                seen.add(key)
                kept += 1
                found.append({"id": f"{category}-{kept:02d}", "category": category, "messages": prompt})
    return found


def write(path: Path) -> None:
    """Write the prompts, one JSON object per line."""
    path.write_text("".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in held_out_prompts()), "utf-8")
