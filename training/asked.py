"""Writes prompts that the demo's target answers for heads to learn from: none that anything is measured with."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

from training.corpus.base import Message
from training.corpus.mixture import dialogues, fingerprint
from training.prompts import prompt_of

SEED = 77


def asked(count: int, seed: int = SEED) -> Iterator[list[Message]]:
    """Different prompts of `count` dialogues of the training share."""
    rng = Random(seed)
    seen = set[str]()
    for dialogue in dialogues(seed, count):
        prompt = prompt_of(rng, dialogue.messages)
        if (key := fingerprint(prompt)) not in seen:
            seen.add(key)
            yield prompt


def main() -> None:
    """Writes them, one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=6000, help="how many dialogues they are taken from")
    arguments = parser.parse_args()
    lines = (json.dumps({"messages": messages}, ensure_ascii=False) + "\n" for messages in asked(arguments.count))
    arguments.file.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
