"""The trainable model: tensors of Llama's recipe as parameters, under Hugging Face's names, run by the reference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from specchat.engine import families
from specchat.engine.model.rope import tables
from specchat.engine.recipe import Attention
from specchat.engine.reference import layer as reference
from specchat.engine.reference.layer import embed
from specchat.engine.reference.ops import Context, attended
from specchat.engine.reference.tensors import Dense
from specchat.tune.parts import add

Cache = list[tuple[Tensor, Tensor]]
CONTEXT = 1024
"""Positions that a model knows."""


@dataclass(frozen=True)
class Shape:
    """The size of a model."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int = 3072
    head_dim: int = 64
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def as_dict(self) -> dict[str, Any]:
        """The fields under their names in config.json."""
        return asdict(self)


TARGET = Shape(
    hidden_size=256, intermediate_size=704, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2
)
DRAFT = Shape(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)


def causal(of: Attention, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Attention of whole texts in two blocks of rows, the first of which makes no scores of what comes later."""
    assert seen is not None
    length = query.shape[2]
    blocks = ((0, length // 2), (length // 2, length))
    return torch.cat(
        [attended(of, query[:, :, a:b], keys[:, :, :b], values[:, :, :b], seen[a:b, :b]) for a, b in blocks], 2
    )


class Llama(nn.Module):
    """The model with its embedding tied to the output."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        family = families.plain()
        told = {**shape.as_dict(), "max_position_embeddings": CONTEXT, "tie_word_embeddings": True}
        self.recipe = family.recipe(family.settings.model_validate(told))
        add(self, self.recipe.embed, *self.recipe.layers, self.recipe.norm)
        for name, table in zip(("cos", "sin"), tables(self.recipe.ropes[0], shape.head_dim, CONTEXT), strict=True):
            self.register_buffer(name, table, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 0.02 if "embed" in name else shape.hidden_size**-0.5
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    scale *= (2 * shape.num_hidden_layers) ** -0.5
                nn.init.normal_(parameter, std=scale)

    @property
    def tensors(self) -> Dense:
        """The parameters, by their names."""
        return Dense(dict(self.named_parameters()))

    def states(
        self, tokens: Tensor, past: Cache | None = None, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], Cache]:
        """Hidden states [batch, length, hidden] before the first layer and after each, and the cache after the tokens.

        Args:
            past: the cache before them.
            positions: int64 [batch, length]; those after `past` unless given.
            mask: bool [batch, 1, length, all], which entries a token sees; all up to itself unless given.
        """
        start = past[0][0].shape[2] if past else 0
        columns = torch.arange(start + tokens.shape[1], device=tokens.device)
        if positions is None:
            positions = columns[None, start:]
        seen = columns <= columns[start:, None] if mask is None else mask[:, :, None]
        rotation = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        attend = causal if past is None and mask is None and tokens.shape[1] > 1 else None
        kept: Cache = []

        def entries(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            if past:
                before = past[len(kept)]
                key, value = torch.cat((before[0], key), 2), torch.cat((before[1], value), 2)
            kept.append((key, value))
            return key, value

        tensors, context = self.tensors, Context(rotation, entries, seen, attend)
        made = [embed(self.recipe, tokens, tensors)]
        for layer in self.recipe.layers:
            made.append(reference.layer(layer, made[-1], tensors, context))
        return made, kept

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the next token, of hidden states after any of the layers."""
        return reference.logits(self.recipe, hidden, self.tensors)

    def forward(
        self, tokens: Tensor, past: Cache | None = None, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        """Logits of the next token at every position, and the cache."""
        made, kept = self.states(tokens, past, positions, mask)
        return self.logits(made[-1]), kept
