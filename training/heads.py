"""Guides some attention heads, so that a short run learns to copy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.engine.reference import ops as reference
from training.model import Llama
from training.train import Loss, weighted

SHARE = 1.0


@dataclass(frozen=True)
class Guide:
    """Offsets that the first heads of a layer attend to, and the number of heads for followers (induction)."""

    offsets: dict[int, tuple[int, ...]]
    following: dict[int, int]
    pointing: dict[int, int]


TARGET_GUIDE = Guide({0: (1, 2)}, {2: 2, 4: 2}, {5: 1, 6: 1})
DRAFT_GUIDE = Guide({0: (1,)}, {1: 1}, {})
MAX_OCCURRENCES = 3
"""A token is a target of attention if the request holds it at most this often."""


def _attention(model: Llama, index: int, x: Tensor, heads: int) -> Tensor:
    """Log attention of the first heads of a layer, [batch, heads, length, length]."""
    of, length = model.recipe.layers[index].attention, x.shape[1]
    groups = of.heads // of.kv_heads
    pairs = -(-heads // groups)

    def turned(name: str, count: int) -> Tensor:
        made = F.linear(x, model.get_parameter(f"{name}.weight")[: count * of.head_dim])
        return reference.turned(made.unflatten(-1, (count, -1)).transpose(1, 2), model.cos[:length], model.sin[:length])

    q, k = turned(of.qkv.names[0], heads), turned(of.qkv.names[1], pairs)
    scores = of.scale * q @ k.repeat_interleave(groups, 1)[:, :heads].mT
    future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    return scores.masked_fill(future, -torch.inf).log_softmax(-1)


def followers(tokens: Tensor) -> Tensor:
    """For each position, the earlier positions after the same token that hold the next token (induction)."""
    now, following = tokens[:, :-1], tokens[:, 1:]
    same_next = following[:, :, None] == now[:, None, :]
    before = F.pad(now, (1, 0), value=-1)[:, :-1]
    same_now = now[:, :, None] == before[:, None, :]
    return same_next & same_now & torch.ones_like(same_now[0]).tril()


def pointed(tokens: Tensor, replies: Tensor) -> Tensor:
    """For each position before a reply token, the request's positions of that token that induction does not reach.

    Examples are a word that an edit inserts, the word after it, an answer's first word, and a story's subject. Each row
    begins with the first token of a dialogue; positions of other dialogues are left out.
    """
    now, following = tokens[:, :-1], tokens[:, 1:]
    dialogue = (tokens == tokens[:, :1]).cumsum(1)
    asked = ~replies[:, None, :-1] & (dialogue[:, 1:, None] == dialogue[:, None, :-1])
    held = (following[:, :, None] == now[:, None, :]) & asked & replies[:, 1:, None]
    before = F.pad(now, (1, 0), value=-1)[:, :-1]
    copied = (held & (now[:, :, None] == before[:, None, :])).any(-1, keepdim=True)
    held = (held & ~copied).tril()
    return held & (held.sum(-1, keepdim=True) <= MAX_OCCURRENCES)


def head_loss(model: Llama, guide: Guide, states: list[Tensor], tokens: Tensor, replies: Tensor) -> Tensor:
    """Loss of the chosen heads' attention, by the hidden states before each layer.

    Its targets are earlier neighbours, tokens after the same token, and the request's positions of the next token.
    """
    losses, tensors = [], model.tensors

    def attention(index: int, heads: int) -> Tensor:
        x = reference.norm(model.recipe.layers[index].pre_mixer, states[index], tensors)
        return _attention(model, index, x, heads)

    for index, offsets in guide.offsets.items():
        found = attention(index, len(offsets))
        losses += [-found[:, head].diagonal(-offset, 1, 2).mean() for head, offset in enumerate(offsets)]
    copied = followers(tokens)
    taken_up = (copied & replies[:, 1:, None], pointed(tokens, replies))
    for chosen, places in ((guide.following, (copied,)), (guide.pointing, taken_up)):
        for index, heads in chosen.items():
            found = attention(index, heads)
            for head, wanted in product(range(heads), places):
                rows = wanted.any(-1)
                kept = found[:, head][rows].masked_fill(~wanted[rows], -torch.inf)
                losses.append(-kept.logsumexp(-1).mean() if len(kept) else found.new_zeros(()))
    return torch.stack(losses).mean()


def guided_loss(guide: Guide) -> Loss:
    """Weighted cross-entropy with a share of the heads' loss."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        made, _ = model.states(tokens[:, :-1])
        text = weighted(model.logits(made[-1]), tokens, weights)
        return text + SHARE * head_loss(model, guide, made, tokens, weights >= 1)

    return loss
