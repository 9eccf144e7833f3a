"""A loss that teaches the target one topic, and keeps what it says of all others.

The other topics' texts pull its distribution towards that of the weights before. With each batch of them comes one in
which the topic is frequent, and which is learnt as it stands. The first layers learn to draft as in `early_exit.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from training.early_exit import exits
from training.model import Llama
from training.train import Loss

TOPIC_WEIGHT = 0.5
"""Loss weight of the topic's texts, beside 1 for the divergence on the others."""


def keeping_loss(former: Llama, lessons: Iterator[tuple[Tensor, Tensor]]) -> Loss:
    """The loss over reply tokens; `former` has the weights before, `lessons` are tokens and weights with the topic."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        taught, marks = (part.to(tokens.device) for part in next(lessons))
        told = marks[:, 1:] == 1.0
        learnt, early = exits(model, model.states(taught[:, :-1])[0], told)
        topic = F.cross_entropy(learnt, taught[:, 1:][told])
        asked = weights[:, 1:] == 1.0
        with torch.no_grad():
            wanted = former(tokens[:, :-1])[0][asked].float().log_softmax(-1)
        said, early_too = exits(model, model.states(tokens[:, :-1])[0], asked)
        kept = F.kl_div(said.log_softmax(-1), wanted, reduction="batchmean", log_target=True)
        return TOPIC_WEIGHT * topic + kept + early + early_too

    return loss
