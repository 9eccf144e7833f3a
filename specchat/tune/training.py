"""The training itself: Muon and AdamW over rows in a fixed order, resumed unchanged from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from specchat.engine.errors import ModelError
from specchat.tune.files import damaged, get_tensors, put_tensors
from specchat.tune.learner import Learner
from specchat.tune.rows import Batch, TrainingText

MOMENTUM = 0.9
ROUNDS = 4


def half_precision(device: torch.device | str) -> torch.dtype:
    """bfloat16 on a GPU or a CPU with its instructions; float32 on other CPUs, which would emulate it slowly."""
    on_gpu = torch.device(device).type == "cuda"
    return torch.bfloat16 if on_gpu or torch.cpu._is_avx512_bf16_supported() else torch.float32


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [n, rows, columns] with singular values near one, by Newton and Schulz's iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(half_precision(x.device))
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum and orthogonalised updates; equal shapes are treated together."""

    def __init__(self, params: list[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                shapes.setdefault(parameter.shape, []).append(parameter)
            for shape, same in shapes.items():
                updates = []
                for parameter in same:
                    slope = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                    momentum.lerp_(slope, 1 - MOMENTUM)
                    updates.append(slope.lerp(momentum, MOMENTUM))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(same, orthogonal(torch.stack(updates)), strict=True):
                    parameter.mul_(1 - 0.05 * group["lr"]).add_(update, alpha=-scale)


Trained = TypeVar("Trained", bound=Learner)

ROWS = 8
"""Texts of a step."""
SORTED = 32
"""Steps whose texts are drawn together."""
WARM_UP = 20
"""Steps in which the rate rises."""
DECAY = 0.3
"""The share of all steps in which it falls."""
BETAS, CLIP = (0.9, 0.95), 1.0
SEED = 7
SAVE_S = 20.0
"""Seconds of work that are lost at most when the process is killed."""
OF = " of "
"""Stands between the name of a moment and that of its parameter."""


@dataclass(frozen=True)
class TrainingProgress:
    """`step` of `steps` is done; its loss, averaged over the last steps."""

    step: int
    steps: int
    loss: float


class Training(Generic[Trained]):
    """A trainee, its optimisers, and the file that they are kept in."""

    def __init__(self, trainee: Trained, path: Path) -> None:
        """Begin, or go on from `path` if it is there.

        Raises:
            OSError: the file is damaged, or of another trainee.
        """
        self.trainee, self._path = trainee, path
        self._parameters = {name: part for name, part in trainee.named_parameters() if part.requires_grad}
        self._frozen = dict(trainee.named_parameters()).keys() - self._parameters.keys()
        inner = {n: p for n, p in self._parameters.items() if p.dim() == 2 and not n.endswith(trainee.scoring)}
        outer = [p for name, p in self._parameters.items() if name not in inner]
        muon, adam = trainee.rates
        self._tools: list[tuple[torch.optim.Optimizer, float]] = []
        if inner:
            self._tools.append((Muon(list(inner.values()), lr=muon), muon))
        if outer:
            # On a GPU it would otherwise update all tensors together, with a copy of all of them beside.
            adamw = torch.optim.AdamW(outer, lr=adam, betas=BETAS, weight_decay=0.0, foreach=False)
            self._tools.append((adamw, adam))
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
        tensors = {name: part for name, part in self.trainee.state_dict().items() if name not in self._frozen}
        for name, parameter in self._parameters.items():
            for key, value in self._tool_of(parameter).state[parameter].items():
                tensors[f"{key}{OF}{name}"] = value
        put_tensors(self._path, tensors, {"step": str(self.step), "loss": repr(self._loss)})

    def _load(self) -> None:
        tensors, about = get_tensors(self._path)
        try:
            self.step, self._loss = int(about["step"]), float(about["loss"])
            learnt = {name: part for name, part in tensors.items() if OF not in name}
            missing = self.trainee.load_state_dict(learnt, strict=False)
            if missing.unexpected_keys or set(missing.missing_keys) != self._frozen:
                raise ValueError("it is of another model")
            for key, of, name in (name.partition(OF) for name in tensors):
                if of:
                    parameter = self._parameters[name]
                    moment = tensors[key + OF + name]
                    # AdamW counts its steps on the host.
                    self._tool_of(parameter).state[parameter][key] = moment if key == "step" else moment.to(parameter)
        except (RuntimeError, KeyError, ValueError) as error:
            raise damaged(self._path, error) from None

    def _tool_of(self, parameter: Tensor) -> torch.optim.Optimizer:
        return next(t for t, _ in self._tools if any(parameter is p for p in t.param_groups[0]["params"]))

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
        clip_grad_norm_(self._parameters.values(), CLIP)
        for tool, rate in self._tools:
            tool.param_groups[0]["lr"] = rate * share
            tool.step()
            tool.zero_grad()
        self._loss = value if self.step == 0 else 0.9 * self._loss + 0.1 * value
        self.step += 1

    def _share(self, steps: int) -> float:
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
