"""Answers the handwritten prompts and sums to 20, and checks replies where a check exists; the rest is for a reader."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer

from training.corpus.base import Message, assistant, pick, user
from training.corpus.sums import LARGEST, value
from training.export import load
from training.generate import generate
from training.make_demo import DEMO
from training.model import Llama
from training.tokenizer import END, encode, token_id
from training.tokenizer import load as load_tokenizer

SETS = {"first": "by_hand.toml", "second": "by_hand_second.toml"}
"""Files of prompts by the name of their set; each set is judged apart."""

SUMS = (
    "What is {a} {s} {b}?|{a}{s}{b}|{a} {s} {b} = ?|how much is {a} {w} {b}?|what's {a} {w} {b}|can you calculate {a}"
    " {s} {b}|hi! what does {a} {w} {b} make?|{a} {w} {b} please|my homework: {a} {s} {b}|and what is {a} {s} {b}"
)
WORDS = {"+": "plus", "-": "minus", "*": "times"}


@dataclass(frozen=True)
class Judged:
    """A conversation with the model's replies, and True if the last one passes the check."""

    name: str
    messages: list[Message]
    met: bool

    @property
    def category(self) -> str:
        """Category of the prompt."""
        return self.name.partition("-")[0]


def prompts(name: str) -> list[dict[str, Any]]:
    """Prompts of a set: id, turns, and the check of the last reply."""
    text = Path(__file__).with_name(SETS[name]).read_text("utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["prompt"]
    return found


def meets(reply: str, exact: str | None, has: Sequence[str], lacks: Sequence[str] = ()) -> bool:
    """True if a reply is the exact text, or has an alternative of each wanted part and none of the unwanted."""
    if exact is not None:
        return reply.strip() == exact
    low = reply.lower()
    found = all(any(part.lower() in low for part in wanted.split("|")) for wanted in has)
    return found and not any(part.lower() in low for part in lacks)


def answers(
    model: Llama, tokenizer: Tokenizer, asked: list[dict[str, Any]], temperature: float = 0.0, seed: int = 1
) -> list[Judged]:
    """Replies to every turn of every prompt."""
    talks: list[list[Message]] = [[] for _ in asked]
    for turn in range(max(len(one["turns"]) for one in asked)):
        active = [at for at, one in enumerate(asked) if turn < len(one["turns"])]
        for at in active:
            talks[at].append(user(asked[at]["turns"][turn]))
        encoded = [encode(tokenizer, talks[at], reply=True)[0] for at in active]
        replies = generate(model, encoded, 320, token_id(tokenizer, END), [temperature] * len(active), seed=seed + turn)
        for at, reply in zip(active, replies, strict=True):
            talks[at].append(assistant(tokenizer.decode(reply, skip_special_tokens=True)))
    return [
        Judged(one["id"], talk, meets(talk[-1]["content"], one.get("exact"), one.get("has", ()), one.get("lacks", ())))
        for one, talk in zip(asked, talks, strict=True)
    ]


def counts(found: list[Judged]) -> dict[str, tuple[int, int]]:
    """Passed and total replies by category and of all."""
    sums: dict[str, tuple[int, int]] = {}
    for one in found:
        for name in (one.category, "all"):
            met, count = sums.get(name, (0, 0))
            sums[name] = (met + one.met, count + 1)
    return sums


def sums(
    model: Llama, tokenizer: Tokenizer, temperature: float = 0.0, count: int = 50, seed: int = 4
) -> dict[str, int]:
    """Right, declined and wrong replies to sums whose numbers and results are 0 to 20."""
    rng, asked = Random(2026), list[tuple[str, int]]()
    while len(asked) < count:
        sign, left, right = rng.choice("+-*+-"), rng.randint(0, LARGEST), rng.randint(0, LARGEST)
        if 0 <= (result := value(left, sign, right)) <= LARGEST:
            asked.append((pick(rng, SUMS).format(a=left, b=right, s=sign, w=WORDS[sign]), result))
    encoded = [encode(tokenizer, [user(ask)], reply=True)[0] for ask, _ in asked]
    replies = generate(model, encoded, 60, token_id(tokenizer, END), [temperature] * count, seed=seed)
    found = {"right": 0, "declined": 0, "wrong": 0}
    for (_, result), reply in zip(asked, replies, strict=True):
        said = tokenizer.decode(reply, skip_special_tokens=True)
        declined = "Python can tell" in said or "demo model" in said
        right = re.findall(r"-?\d+", said)[-1:] == [str(result)]
        found["declined" if declined else "right" if right else "wrong"] += 1
    return found


def main() -> None:
    """Print every conversation with its result, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEMO)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = load_tokenizer(options.folder / "target" / "tokenizer.json")
    model = load(options.folder / "target")
    for which in SETS:
        found = answers(model, tokenizer, prompts(which), options.temperature, options.seed)
        for one in found:
            print(f"{'ok ' if one.met else 'NOT'} {which} {one.name}")
            for message in one.messages:
                print(f"    {message['role']}: {message['content']!r}")
        for name, (met, count) in counts(found).items():
            print(f"{which} {name}: {met} of {count}")
    told = sums(model, tokenizer, options.temperature, seed=options.seed)
    print("sums to 20:", ", ".join(f"{count} {name}" for name, count in told.items()))


if __name__ == "__main__":
    main()
