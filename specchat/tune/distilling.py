"""The course of a draft's training: a divergence chosen by held-out replies, then rounds on what it gets wrong."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.draft import DIVERGENCES, Divergence, DraftLearner, HeldOut, held_out
from specchat.tune.files import put_json
from specchat.tune.rows import SUFFIX, TrainingText
from specchat.tune.target import FrozenTarget
from specchat.tune.training import Training

TRIED = 10
"""One of so many steps is spent on each divergence before one is chosen."""
ROUNDS = 3
"""Rounds of equal length; after each, replies are weighed by what the draft gets wrong."""
CHOICE = "choice.json"
SEED = 7


@dataclass(frozen=True)
class DistilProgress:
    """`step` of `steps` by `divergence`, with the averaged loss, and what held-out replies said at first and last."""

    step: int
    steps: int
    divergence: Divergence
    loss: float
    before: HeldOut
    held_out: HeldOut


@dataclass(frozen=True)
class Distilled:
    """A trained draft, with held-out figures before and after."""

    learner: DraftLearner
    divergence: Divergence
    before: HeldOut
    after: HeldOut


class Distilling:
    """The training of one draft, in a folder from which it goes on."""

    def __init__(
        self,
        target: FrozenTarget,
        draft: Checkpoint,
        adapted: bool,
        folder: Path,
        judged: Sequence[TrainingText],
        length: int,
    ) -> None:
        """Train `draft` for `target`; `judged` are held-out replies, drafted `length` tokens a step."""
        self._target, self._draft, self._adapted = target, draft, adapted
        self._folder, self._judged, self._length = folder, judged, length
        self.result: Distilled | None = None
        """The outcome, once `run` has ended unstopped."""

    def run(self, rows: Sequence[Path], steps: int, stopped: Callable[[], bool]) -> Iterator[DistilProgress]:
        """Train on `rows` up to step `steps`, or until `stopped`.

        Raises:
            ModelError: the loss is no number.
            OSError: a file cannot be read or written.
        """
        before = found = self._held_out(self._begun("forward", fresh=True).trainee)
        if (earlier := self._chosen()) is not None:
            chosen = earlier
        else:
            lengths: dict[Divergence, float] = {}
            for divergence in DIVERGENCES:
                training = self._begun(divergence)
                for at in training.run(rows, max(1, steps // TRIED), stopped, steps):
                    yield DistilProgress(at.step, steps, divergence, at.loss, before, found)
                if stopped():
                    return
                lengths[divergence] = self._held_out(training.trainee).length
                del training  # the next one takes as much memory
            chosen = max(lengths, key=lambda one: lengths[one])
            put_json(self._folder / CHOICE, {"divergence": chosen, "tokens_a_step": lengths})
        training = self._begun(chosen)
        found = self._held_out(training.trainee)
        for number in range(ROUNDS):
            end = steps * (number + 1) // ROUNDS
            if training.step >= end:
                continue
            for at in training.run(self._focused(training.trainee, rows, number), end, stopped, steps):
                yield DistilProgress(at.step, steps, chosen, at.loss, before, found)
            if stopped():
                return
            found = self._held_out(training.trainee)
        self.result = Distilled(training.trainee, chosen, before, found)

    def _begun(self, divergence: Divergence, fresh: bool = False) -> Training[DraftLearner]:
        """The training by a divergence, resumed where it stopped, or a `fresh` one."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(SEED)
            learner = DraftLearner(self._target, self._draft, divergence, self._adapted).to(self._target.device)
        return Training(learner, self._folder / f"{'fresh' if fresh else divergence}{SUFFIX}")

    def _chosen(self) -> Divergence | None:
        try:
            divergence = json.loads((self._folder / CHOICE).read_bytes())["divergence"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return next((one for one in DIVERGENCES if one == divergence), None)

    def _held_out(self, learner: DraftLearner) -> HeldOut:
        return held_out(learner, self._judged, self._length)

    def _focused(self, learner: DraftLearner, rows: Sequence[Path], number: int) -> list[Path]:
        """The rows of round `number`; those that the draft gets wrong most, one half, come twice from the second on."""
        if number == 0:
            return list(rows)
        file = self._folder / f"round-{number}.json"
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            often = set(json.loads(file.read_bytes())["twice"])
            return [row for row in rows for _ in range(1 + (row.name in often))]
        shares = {row: float(learner.right(TrainingText.read(row)).float().mean()) for row in rows}
        worst = sorted(rows, key=lambda row: shares[row])[: len(rows) // 2]
        put_json(file, {"twice": [row.name for row in worst]})
        return [row for row in rows for _ in range(1 + (row in worst))]
