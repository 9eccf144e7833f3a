"""A loss that trains the target further while its first layers learn to draft.

It pulls the distribution of the first layers, through the last norm and the head, towards that of all layers:
LayerSkip's early-exit loss (Elhoushi et al. 2024, 4.1), with the model as its own teacher. Texts and guides are as in
its training.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.heads import Guide, head_loss
from training.model import Layer, Llama
from training.train import Loss

EXIT_LAYERS = 2
"""Layers before the early exit."""
EARLY_WEIGHT, GUIDE_WEIGHT = 0.15, 0.2
"""Loss weights of the early layers' divergence and of guided heads, beside 1 for the text."""


def states(model: Llama, tokens: Tensor) -> list[Tensor]:
    """Hidden states [batch, length, hidden] before the first layer and after each one."""
    made = [model.model.embed_tokens(tokens)]
    rope = model.rope(torch.arange(tokens.shape[1], device=tokens.device)[None])
    for layer in _layers(model):
        made.append(layer(made[-1], rope, None, None)[0])
    return made


def _layers(model: Llama) -> list[Layer]:
    return [layer for layer in model.model.layers if isinstance(layer, Layer)]


def exiting_loss(guide: Guide) -> Loss:
    """The loss over reply tokens; `guide` selects the guided heads."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        asked = weights[:, 1:] == 1.0
        made = states(model, tokens[:, :-1])
        last, early = (model.logits(model.model.norm(made[place][asked])).float() for place in (-1, EXIT_LAYERS))
        text = F.cross_entropy(last, tokens[:, 1:][asked])
        divergence = -(last.detach().softmax(-1) * early.log_softmax(-1)).sum(-1).mean()
        inputs = {at: layer.input_layernorm(made[at]) for at, layer in enumerate(_layers(model))}
        shown = head_loss(model, guide, inputs, tokens, weights == 1.0)
        return text + EARLY_WEIGHT * divergence + GUIDE_WEIGHT * shown

    return loss
