"""A loss by which the target goes on learning while its first layers learn to draft.

What the first layers say, read by the last norm and the head, comes to be what all layers say: LayerSkip's early-exit
loss (Elhoushi et al. 2024, 4.1), taken of the model itself. The text and the heads that point are as in its training.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.heads import Guide, head_loss
from training.model import Layer, Llama
from training.train import Loss

EXIT = 2
"""Layers after which the target can be left."""
EARLY, SHOWN = 0.15, 0.2
"""Weights of the early layers' divergence, and of showing heads where to look, beside the text's 1."""


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
    """The loss, over the tokens of replies; `guide` says which heads are shown where to look."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        asked = weights[:, 1:] == 1.0
        made = states(model, tokens[:, :-1])
        last, early = (model.logits(model.model.norm(made[place][asked])).float() for place in (-1, EXIT))
        text = F.cross_entropy(last, tokens[:, 1:][asked])
        divergence = -(last.detach().softmax(-1) * early.log_softmax(-1)).sum(-1).mean()
        inputs = {at: layer.input_layernorm(made[at]) for at, layer in enumerate(_layers(model))}
        shown = head_loss(model, guide, inputs, tokens, weights == 1.0)
        return text + EARLY * divergence + SHOWN * shown

    return loss
