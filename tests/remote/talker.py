"""A scripted server with a small model of its own, whose text a test can disturb."""

import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.remote.server import CHAT, Call, Scripted, serving

CHAT_KEY = CHAT.strip("/").replace("/", "__")
WORDS = (
    "the",
    "old",
    "red",
    "cat",
    "dog",
    "fox",
    "saw",
    "took",
    "a",
    "small",
    "blue",
    "lamp",
    "ring",
    "and",
    "then",
    "ran",
)
SALAD = [f"w{n}" for n in range(300)]
CHANCES = (0.6, 0.3, 0.1)

Change = Callable[[int, list[tuple[str, float]]], list[tuple[str, float]]]
"""Gets a place and its words with their probabilities, the likeliest first."""


class Talker:
    """Writes words; each place has three to choose from, which depend on the prompt."""

    def __init__(self, change: Change = lambda _, options: options, salad: float = 0.0, logprobs: bool = True) -> None:
        """`salad`: share of sampled words that are none of the three, by no seed."""
        self.change, self.salad, self.logprobs = change, salad, logprobs

    def answer(self, call: Call) -> None:
        parts = [json.dumps({"choices": [{"index": 0, **part}]}) for part in self._parts(call.body)]
        ends = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        call.send("".join(f"data: {part}\n\n" for part in [*parts, ends]) + "data: [DONE]\n\n")

    def _parts(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        prompt = body["messages"][-1]["content"]
        drawn = random.Random(f"{prompt} {body['seed']}")
        for place in range(body["max_tokens"]):
            some = random.Random(f"{prompt} {place}").sample(WORDS, 3)
            options = self.change(place, [(f" {word}", p) for word, p in zip(some, CHANCES, strict=True)])
            word = options[0][0]
            if body["temperature"]:
                word = drawn.choices([w for w, _ in options], [p for _, p in options])[0]
                word = f" {random.choice(SALAD)}" if random.random() < self.salad else word
            part: dict[str, Any] = {"delta": {"content": word}}
            if body.get("logprobs") and self.logprobs:
                told = [{"token": w, "logprob": math.log(p), "bytes": None} for w, p in options]
                part["logprobs"] = {"content": [{**told[0], "token": word, "top_logprobs": told}]}
            yield part


@contextmanager
def talking(talker: Talker, **pages: Any) -> Iterator[Scripted]:
    with serving(v1__models={"data": [{"id": "m"}]}, **pages, **{CHAT_KEY: talker.answer}) as one:
        yield one


def swapped(*places: int, by: float = 0.0) -> Change:
    """Exchanges the likeliest two words at some places, and makes their probabilities equal but for `by`."""

    def change(place: int, options: list[tuple[str, float]]) -> list[tuple[str, float]]:
        if place not in places:
            return options
        (one, p), (other, q), rest = options
        return [(other, (p + q) / 2 + by), (one, (p + q) / 2 - by), rest]

    return change


def tied(*places: int) -> Change:
    """Makes the likeliest two words at some places equally likely."""

    def change(place: int, options: list[tuple[str, float]]) -> list[tuple[str, float]]:
        (one, p), (other, q), rest = options
        return [(one, (p + q) / 2), (other, (p + q) / 2), rest] if place in places else options

    return change
