"""The training itself: Muon and AdamW over rows in a fixed order, kept in a file from which it goes on unchanged."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

import torch

from specchat.engine.errors import ModelError
from specchat.tune.files import damaged
from specchat.tune.learner import Learner
from specchat.tune.optimisers import Optimisers
from specchat.tune.rows import Batch, TrainingText

Trained = TypeVar("Trained", bound=Learner)

ROWS = 8
"""Texts of a step."""
SORTED = 32
"""Steps whose texts are drawn together."""
WARM_UP = 20
"""Steps in which the rate rises."""
DECAY = 0.3
"""The share of all steps in which it falls."""
SEED = 7
SAVE_S = 20.0
"""Seconds of work that are lost at most when the process is killed."""


@dataclass(frozen=True)
class TrainingProgress:
    """`step` of `steps` is done; its loss, averaged over the last steps."""

    step: int
    steps: int
    loss: float


class Training(Generic[Trained]):
    """A trainee, its optimisers, and the file that holds them."""

    def __init__(self, trainee: Trained, path: Path) -> None:
        """Begin, or go on from `path` if it is there.

        Raises:
            OSError: the file is damaged, or of another trainee.
        """
        self.trainee, self._path = trainee, path
        self._optimisers = Optimisers(trainee, trainee.rates, lambda name: name.endswith(trainee.scoring))
        self.step = 0
        self._loss = 0.0
        if path.exists():
            self._load()

    def run(
        self, rows: Sequence[Path], steps: int, stopped: Callable[[], bool], planned: int | None = None
    ) -> Iterator[TrainingProgress]:
        """Train on `rows` up to step `steps`, or until `stopped`, and report each step. It is kept whatever ends it.

        Learning rates fall towards step `planned`, which is `steps` unless given.

        Raises:
            ModelError: the loss is no number.
            OSError: a row cannot be read, or the file cannot be written.
        """
        saved, whole = monotonic(), True
        try:
            while self.step < steps and not stopped():
                whole = False
                batch = Batch.of([TrainingText.read(path) for path in _batch(rows, self.step)])
                self._train(batch.to(self.trainee.device), self._share(planned or steps))
                whole = True
                yield TrainingProgress(self.step, steps, self._loss)
                if monotonic() - saved > SAVE_S:
                    self.save()
                    saved = monotonic()
        finally:
            if whole:
                self.save()

    def save(self) -> None:
        """Put weights and moments into the file.

        Raises:
            OSError: it cannot be written; it is as it was.
        """
        self._optimisers.save(self._path, {"step": str(self.step), "loss": repr(self._loss)})

    def _load(self) -> None:
        about = self._optimisers.load(self._path)
        try:
            self.step, self._loss = int(about["step"]), float(about["loss"])
        except (KeyError, ValueError) as error:
            raise damaged(self._path, error) from None

    def _train(self, batch: Batch, share: float) -> None:
        value, tokens = 0.0, len(batch.replied()[0])
        for part in self.trainee.parts(batch):
            loss = self.trainee.loss(part, SEED + self.step)
            if part is not batch:
                loss = loss * (len(part.replied()[0]) / tokens)
            value += loss.item()
            if not isfinite(value):
                raise ModelError(
                    f"The training went astray at step {self.step + 1:,}: its loss is no number. Delete "
                    f"{self._path.parent} to begin anew."
                )
            loss.backward()
        self._optimisers.step(share)
        self._loss = value if self.step == 0 else 0.9 * self._loss + 0.1 * value
        self.step += 1

    def _share(self, steps: int) -> float:
        """The share of the full rate at this step."""
        return min(1.0, (self.step + 1) / WARM_UP, (steps - self.step) / (steps * DECAY))


def _batch(rows: Sequence[Path], step: int) -> list[Path]:
    """The rows of a step: all once, in an order that changes from round to round.

    Those of a step are about as long, for they are padded: what is drawn for SORTED steps is sorted by its size.
    """
    count = min(ROWS, len(rows))
    steps = len(rows) // count
    turn, at = divmod(step, steps)
    order = _shuffled(len(rows), SEED + turn)
    first = at - at % SORTED
    drawn = order[first * count : min(first + SORTED, steps) * count]
    drawn.sort(key=lambda i: rows[i].stat().st_size)
    place = _shuffled(len(drawn) // count, SEED + step - at + first)[at - first]
    return [rows[i] for i in drawn[place * count : (place + 1) * count]]


def _shuffled(count: int, seed: int) -> list[int]:
    """The numbers below `count` in an order that belongs to `seed`."""
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return order
