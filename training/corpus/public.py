"""Public texts from a folder that may be absent: stories and chats for variety, and sentences to copy."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from random import Random

from training.corpus.base import Message, assistant, user

CHATS = ("oasst_en_100", "chatterbot_english", "taskmaster4", "topicalchat_valid", "self_instruct_seed")


def folder() -> Path:
    """The folder of the public texts: SPECCHAT_CORPUS, or shared/data/corpus beside the repository."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "corpus"
    return Path(os.environ.get("SPECCHAT_CORPUS", default))


@cache
def stories() -> tuple[str, ...]:
    """The texts of tinystories_1000.json."""
    path = folder() / "tinystories_1000.json"
    return tuple(json.loads(path.read_text("utf-8"))) if path.exists() else ()


@cache
def chats() -> tuple[tuple[Message, ...], ...]:
    """Short conversations of the listed files."""
    found: list[tuple[Message, ...]] = []
    for name in CHATS:
        path = folder() / f"{name}.jsonl"
        if not path.exists():
            continue
        for line in path.read_text("utf-8").splitlines():
            messages = json.loads(line)["messages"]
            if len(messages) >= 2 and [m["role"] for m in messages[:2]] == ["user", "assistant"]:
                short = messages[: len(messages) // 2 * 2][:6]
                if sum(len(m["content"]) for m in short) < 1600:
                    found.append(tuple({"role": m["role"], "content": m["content"].strip()} for m in short))
    return tuple(found)


@cache
def sentences() -> tuple[str, ...]:
    """Sentences of the stories and chats, in their order."""
    texts = [*stories(), *(message["content"] for chat in chats() for message in chat)]
    split = (part.strip() for text in texts for part in re.split(r"(?<=[.!?])\s+", text))
    return tuple(part for part in split if 15 < len(part) < 200 and part.isascii())


def make(rng: Random) -> list[Message] | None:
    """A story to a bare request, or one of the chats; None where the folder is absent."""
    if not chats() and not stories():
        return None
    if stories() and (not chats() or rng.random() < 0.4):
        return [user("Write a story in the style of a children's book."), assistant(rng.choice(stories()))]
    return list(rng.choice(chats()))
