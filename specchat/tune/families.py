"""The families of heads that can be trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from specchat.engine.strategy import Head
from specchat.engine.weights.config import ModelConfig
from specchat.tune import dflash, eagle3, medusa
from specchat.tune.plan import TrainingSize
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import Trainee


@dataclass(frozen=True)
class TrainedFamily:
    """Training of the heads of one family.

    Attributes:
        layers: the layers whose states they look at, of a target with so many.
        begin: the untrained heads for a target with these replies.
        size: the size of the training for a target.
    """

    layers: Callable[[int], tuple[int, ...]]
    begin: Callable[[FrozenTarget, Sequence[Sequence[int]]], Trainee]
    size: Callable[[ModelConfig], TrainingSize]


SEED = 7


def untrained(head: Head, target: FrozenTarget, replies: Sequence[Sequence[int]]) -> Trainee:
    """Heads to be trained on the target's device, begun on the host, the same each time."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        return FAMILIES[head].begin(target, replies).to(target.device)


FAMILIES: Mapping[Head, TrainedFamily] = {
    "dflash": TrainedFamily(dflash.read_layers, dflash.DFlashTrainee, dflash.size),
    "eagle3": TrainedFamily(eagle3.read_layers, eagle3.Eagle3Trainee, eagle3.size),
    "medusa": TrainedFamily(medusa.read_layers, medusa.MedusaTrainee, medusa.size),
}
