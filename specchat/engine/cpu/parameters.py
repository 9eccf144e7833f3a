"""What a compiled decoder has learnt: packed products, norms and the table of tokens, read once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.cpu.packed import Packed, add_layer, dense, looked_up
from specchat.engine.cpu.products import kernels_of
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.parts import EMBEDDING, HEAD, LAST_NORM
from specchat.engine.model.weights import Weights
from specchat.engine.pair import Quant

Floats = NDArray[np.float32]


class Parameters:
    """The weights of a model, as `passes` takes them.

    Attributes:
        table, extras, kernels: what `products.multiply` takes of all products, the head's last.
        norms: float32 [layers, 2, hidden]; `head_norms`, of query and key, [layers or 0, 2, head_dim].
        last_norm: float32 [hidden].
        tokens: those that the head scores, int64; None: all.
        embed: the table of tokens as it is stored, or the head's packed panels where these are the same.
    """

    def __init__(self, checkpoint: Checkpoint, quant: Quant | None) -> None:
        """Read them; layers that the checkpoint does not quantise are stored as `quant`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self._config = c = checkpoint.config
        self._packed = Packed()
        norms: list[list[Floats]] = []
        with Weights(checkpoint) as weights:
            asked = quant if weights.quant is None else None
            for index in range(c.layers):
                norms.append(add_layer(self._packed, weights, c, index, asked))
            embed = dense(weights.linear(EMBEDDING, c.vocab, c.hidden))
            head = embed if c.tied else dense(weights.linear(HEAD, c.vocab, c.hidden))
            self.last_norm: Floats = weights.get(f"{LAST_NORM}.weight", c.hidden).numpy()
        self.tokens = None if checkpoint.drafts is None else torch.tensor(checkpoint.drafts)
        panels = self._packed.add(head if self.tokens is None else head[self.tokens])
        shared = c.tied and self.tokens is None
        self.embed: Tensor | NDArray[Any] = panels if shared else embed.clone()  # no longer the file's
        self.table, self.extras = self._packed.table, self._packed.extras
        self.kernels = kernels_of(self.table)
        self.norms: Floats = np.stack([layer[:2] for layer in norms])
        of_heads = [layer[2:] for layer in norms if len(layer) > 2]
        self.head_norms: Floats = np.stack(of_heads) if of_heads else np.zeros((0, 2, c.head_dim), np.float32)

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """Their rows of the table, float32 [tokens, hidden]."""
        # A target may choose a padding token that a draft has no row for.
        known = [min(token, self._config.vocab - 1) for token in tokens]
        if isinstance(self.embed, Tensor):
            return embedding(torch.tensor(known), self.embed).float()
        return torch.from_numpy(looked_up(self.embed, known))

    def spread(self, scores: Tensor) -> Tensor:
        """Scores of the whole vocabulary, float32 [rows, vocab], of what the head made: -inf where it has no row."""
        if self.tokens is None:
            return scores[:, : self._config.vocab]
        whole = scores.new_full((len(scores), self._config.vocab), float("-inf"))
        return whole.index_copy_(1, self.tokens, scores[:, : len(self.tokens)])

    def memory(self) -> int:
        """Bytes held."""
        embed = self.embed.numel() * self.embed.element_size() if isinstance(self.embed, Tensor) else 0
        norms = sum(norms.nbytes for norms in (self.norms, self.head_norms, self.last_norm))
        return self._packed.memory() + embed + norms
