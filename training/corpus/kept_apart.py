"""The turns of the prompts written by hand, none of which the generator may say to the model."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from training.corpus.base import Message


def plain(text: str) -> str:
    """The text in small letters, with all else that is no digit as single blanks; as it is where nothing is left."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip() or text.strip()


@cache
def _written_by_hand() -> frozenset[str]:
    """The turns of both sets of prompts."""
    found = [tomllib.loads(path.read_text("utf-8")) for path in Path(__file__).parents[1].glob("by_hand*.toml")]
    return frozenset(plain(turn) for stored in found for prompt in stored["prompt"] for turn in prompt["turns"])


def kept_apart(messages: list[Message]) -> bool:
    """True if the user's text is reserved for evaluation."""
    return any(message["role"] == "user" and plain(message["content"]) in _written_by_hand() for message in messages)
