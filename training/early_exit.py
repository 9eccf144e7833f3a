"""A loss that trains the target further while its first layers learn to draft.

It pulls the distribution of the first layers, through the last norm and the head, towards that of all layers:
LayerSkip's early-exit loss (Elhoushi et al. 2024, 4.1), with the model as its own teacher. Texts and guides are as in
its training.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from training.heads import Guide, head_loss
from training.model import Llama
from training.train import Loss

EXIT_LAYERS = 2
"""Layers before the early exit."""
EARLY_WEIGHT, GUIDE_WEIGHT = 0.15, 0.2
"""Loss weights of the early layers' divergence and of guided heads, beside 1 for the text."""


def exits(model: Llama, made: list[Tensor], asked: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [n, vocabulary] of all layers after the `asked` tokens, and the early layers' weighted divergence."""
    last, early = (model.logits(made[place][asked]).float() for place in (-1, EXIT_LAYERS))
    divergence = -(last.detach().softmax(-1) * early.log_softmax(-1)).sum(-1).mean()
    return last, EARLY_WEIGHT * divergence


def exiting_loss(guide: Guide) -> Loss:
    """The loss over reply tokens; `guide` selects the guided heads."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        asked = weights[:, 1:] == 1.0
        made, _ = model.states(tokens[:, :-1])
        last, divergence = exits(model, made, asked)
        text = F.cross_entropy(last, tokens[:, 1:][asked])
        shown = head_loss(model, guide, made, tokens, weights == 1.0)
        return text + divergence + GUIDE_WEIGHT * shown

    return loss
