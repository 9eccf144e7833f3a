"""Writes prompts whose replies train heads on the demo pair; no measurement uses them."""

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
    """Distinct prompts from `count` dialogues of the training share."""
    rng = Random(seed)
    seen = set[str]()
    for dialogue in dialogues(seed, count):
        prompt = prompt_of(rng, dialogue.messages)
        if (key := fingerprint(prompt)) not in seen:
            seen.add(key)
            yield prompt


def main() -> None:
    """Write the prompts, one JSON object per line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=6000, help="number of dialogues to take them from")
    arguments = parser.parse_args()
    lines = (json.dumps({"messages": messages}, ensure_ascii=False) + "\n" for messages in asked(arguments.count))
    arguments.file.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
