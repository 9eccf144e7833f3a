"""A tune after which the target's first layers can draft: LayerSkip's early-exit loss (Elhoushi et al. 2024, 4.1).

What the first layers say, read by the last norm and the head, comes to be what all layers say. What these say stays
what a teacher says, the target as it was: the text hardly changes, and neither do the states that heads look at.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model import Layer, Llama
from training.train import Loss

EXIT = 2
"""Layers after which the target can be left."""
TAPPED = 3
"""Layers after which states are held to the teacher's."""
EARLY, HARD, HELD = 0.6, 0.1, 1.0
"""Weights of the early layers' divergence from the teacher, of the text itself, and of what states are apart."""


def states(model: Llama, tokens: Tensor) -> list[Tensor]:
    """Hidden states [batch, length, hidden] after each layer."""
    x = model.model.embed_tokens(tokens)
    rope, made = model.rope(torch.arange(tokens.shape[1], device=tokens.device)[None]), []
    for layer in model.model.layers:
        assert isinstance(layer, Layer)
        x, _ = layer(x, rope, None, None)
        made.append(x)
    return made


def exiting_loss(teacher: Llama) -> Loss:
    """The loss of a tune, over the tokens of replies."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        asked, shown = weights[:, 1:] == 1.0, tokens[:, :-1]
        with torch.no_grad():
            old = [state[asked].float() for state in states(teacher, shown)]
            truth = _logits(teacher, old[-1]).softmax(-1)
        new = [state[asked] for state in states(model, shown)]
        last, early = (_logits(model, new[place - 1]).log_softmax(-1) for place in (len(new), EXIT))
        apart = sum((n - o).square().sum() / o.square().sum() for n, o in zip(new[TAPPED:], old[TAPPED:], strict=True))
        text = F.nll_loss(last, tokens[:, 1:][asked])
        divergence = [-(truth * scores).sum(-1).mean() for scores in (last, early)]
        return divergence[0] + EARLY * divergence[1] + HARD * text + HELD * apart / max(1, len(new) - TAPPED)

    return loss


def _logits(model: Llama, hidden: Tensor) -> Tensor:
    """float32 [rows, vocab] after any layer."""
    out: Tensor = model.logits(model.model.norm(hidden)).float()
    return out
