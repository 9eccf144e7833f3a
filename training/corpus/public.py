"""Public texts from a folder that may be absent: sentences to copy and edit, and requests beyond the model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from training.corpus.base import Message

CHATS = ("oasst_en_100", "chatterbot_english", "taskmaster4", "topicalchat_valid", "self_instruct_seed")
ASKED = ("oasst_en_100", "chatterbot_english", "taskmaster4", "topicalchat_test", "self_instruct_seed", "gsm8k_train")


def folder() -> Path:
    """The folder of the public texts: SPECCHAT_CORPUS, or shared/data/corpus beside the repository."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "corpus"
    return Path(os.environ.get("SPECCHAT_CORPUS", default))


@cache
def stories() -> tuple[str, ...]:
    """The texts of tinystories_1000.json."""
    path = folder() / "tinystories_1000.json"
    return tuple(json.loads(path.read_text("utf-8"))) if path.exists() else ()


def _openings(name: str) -> Iterator[tuple[Message, ...]]:
    """The conversations of one file."""
    path = folder() / f"{name}.jsonl"
    if path.exists():
        for line in path.read_text("utf-8").strip().split("\n"):
            yield tuple(json.loads(line)["messages"])


@cache
def chats() -> tuple[tuple[Message, ...], ...]:
    """Short conversations of the listed files."""
    found: list[tuple[Message, ...]] = []
    for name in CHATS:
        for messages in _openings(name):
            short = messages[: len(messages) // 2 * 2][:6]
            if len(short) >= 2 and sum(len(message["content"]) for message in short) < 1600:
                found.append(short)
    return tuple(found)


@cache
def sentences() -> tuple[str, ...]:
    """Sentences of the stories and chats, in their order."""
    texts = [*stories(), *(message["content"].strip() for chat in chats() for message in chat)]
    split = (part.strip() for text in texts for part in re.split(r"(?<=[.!?])\s+", text))
    return tuple(part for part in split if 15 < len(part) < 200 and part.isascii())


@cache
def vocabulary() -> tuple[str, ...]:
    """The different words of the sentences, in their order; a few of our own where the public texts are not at hand."""
    found = (word for text in sentences() for word in re.findall(r"\b[A-Za-z][a-z]{2,}\b", text))
    return tuple(dict.fromkeys(found)) or (
        "perhaps",
        "because",
        "although",
        "Tuesday",
        "ours",
        "whenever",
        "Sir",
        "nil",
    )


@cache
def prompts() -> tuple[tuple[str, ...], ...]:
    """For each file its opening turns, which are beyond a tiny model; greetings and Python are left out."""
    found = []
    for name in ASKED:
        asked = {messages[0]["content"].strip() for messages in _openings(name)}
        kept = {text for text in asked if 4 <= len(text.split()) <= 90 and "python" not in text.lower()}
        if kept:
            found.append(tuple(sorted(kept)))
    return tuple(found)
