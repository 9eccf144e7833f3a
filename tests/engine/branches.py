"""Enumerates what random choices can come to: exact laws in place of thousands of draws."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import pytest
import torch

from specchat.engine.decoding import acceptance, noise
from specchat.engine.decoding.sampler import Sampler

T = TypeVar("T")


class Branches:
    """Every outcome of the random choices of drafters, of the target and of the tests, with its exact probability."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script: list[int] = []
        self.choices: list[list[float]] = []
        monkeypatch.setattr(noise, "uniform", self.uniform)
        monkeypatch.setattr(acceptance, "gumbel_argmax", self.argmax)
        monkeypatch.setattr(Sampler, "pick", lambda _, scores, *__: self.argmax(scores.numpy()))

    def take(self, probabilities: list[float]) -> int:
        at = len(self.choices)
        self.choices.append(probabilities)
        return self.script[at] if at < len(self.script) else _possible(probabilities)[0]

    def argmax(self, scores: np.ndarray, *_: object) -> int:
        p = np.exp(scores.astype(np.float64))
        return self.take(list(p / p.sum()))

    def uniform(self, *_: object) -> "Coin":
        return Coin(self)

    def outcomes(self, run: Callable[[], T]) -> Iterator[tuple[T, float]]:
        """Depth-first over all choice sequences; `run` must do the same whenever the same is chosen."""
        pending: list[list[int]] = [[]]
        while pending:
            self.script, self.choices = pending.pop(), []
            value = run()
            free = [_possible(choice) for choice in self.choices[len(self.script) :]]
            taken = self.script + [possible[0] for possible in free]
            yield value, float(np.prod([c[i] for c, i in zip(self.choices, taken, strict=True)]))
            for at, possible in enumerate(free, len(self.script)):
                pending += [[*taken[:at], i] for i in possible[1:]]


def _possible(probabilities: list[float]) -> list[int]:
    return [i for i, p in enumerate(probabilities) if p > 0]


class Coin:
    """Stands for u in `u * q < p`: accepts with probability min(1, p / q)."""

    def __init__(self, branches: Branches) -> None:
        self.branches = branches

    def __mul__(self, q: torch.Tensor | float) -> "Weighed":
        return Weighed(self.branches, float(q))


class Weighed:
    def __init__(self, branches: Branches, q: float) -> None:
        self.branches, self.q = branches, q

    def __lt__(self, p: torch.Tensor | float) -> bool:
        accept = min(1.0, float(p) / self.q)
        return self.branches.take([accept, 1.0 - accept]) == 0
