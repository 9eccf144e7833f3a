"""DSpark (DeepSeek 2026): DFlash with a bias by the previous token and a confidence for each position.

With p the token before a position, h its row of the block and u the row's own logits:

    scores = u + W2 z        z = W1[p]                                             vanilla
                             z = sigmoid(G [h, W1[p]] + b) * W1[p]                 gated
                             g, n, o = J [s, W1[p], h] + b,  z = tanh(o)           rnn, and s becomes
                                                             sigmoid(g) s + (1 - sigmoid(g)) tanh(n)
    chance = sigmoid(C [h, W1[p]] + b)      of acceptance at this position; also without W1[p]
"""

from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.heads.block_settings import MOST_RANK
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.recipe import Matrix
from specchat.engine.strategy import Head
from specchat.engine.weights.weights import Weights

INNER = {"vanilla": None, "gated": "gate_proj", "rnn": "joint_proj"}
"""Kinds of bias, and the name of each one's product besides W1 and W2."""


class DSparkHead(DFlashHead):
    """DSpark head. Keys: DFlash's; under "markov_head." W1 as "markov_w1.weight" [vocab, rank] and W2 as
    "markov_w2.weight"; with biases G and J there as "gate_proj" and "joint_proj", and C as "confidence_head.proj"."""

    family: ClassVar[Head] = "dspark"

    def _more(self, weights: Weights) -> None:
        known, shape = self._given.keys, self._given.shape
        rank, self._kind = known.number("markov_rank", 0, MOST_RANK), known.markov_head_type
        if self._kind not in INNER:
            raise ModelError(f"{known.path}: markov_head_type is {self._kind[:40]}, not one of {', '.join(INNER)}.")

        def matrix(name: str, outputs: int, inputs: int, bias: bool = True) -> Matrix:
            return self.tensors.read(weights, Matrix((name,), (outputs,), inputs, bias))

        prefix = "markov_head."
        self._w1 = self.tensors.table(weights, f"{prefix}markov_w1.weight", shape.vocab, rank) if rank else None
        self._w2 = self._inner = self._chances = None
        if rank:
            self._w2 = matrix(f"{prefix}markov_w2", self._given.proposes, rank, bias=False)
            if self._kind == "gated":
                self._inner = matrix(f"{prefix}gate_proj", rank, shape.hidden + rank)
            elif self._kind == "rnn":
                self._inner = matrix(f"{prefix}joint_proj", 3 * rank, 2 * rank + shape.hidden)
        self._sees_token = known.confidence_head_with_markov
        if known.enable_confidence_head:
            self._chances = matrix("confidence_head.proj", 1, shape.hidden + (rank if self._sees_token else 0))
        self._states = torch.zeros(self.places + 1, rank, device=weights.device)
        """The state s before each position."""
        self.chance: Tensor | None = None
        """Predicted acceptance probability of the last scored position, float32 [1]; None without a confidence head."""

    def logits_at(self, place: Tensor, token: Tensor) -> Tensor:
        h = self._rows.index_select(0, place)
        known = h[:, :0] if self._w1 is None else self._w1.index_select(0, token).float()
        if self._chances is not None:
            of = torch.cat([h, known], -1) if self._sees_token else h
            self.chance = self._keep("chance", self.tensors.product(of, self._chances).sigmoid()[0])
        base = super().logits_at(place, token)
        if self._w2 is None:
            return base
        return base + self._scores.scatter(self.tensors.product(self._latent(place, h, known), self._w2), 0.0)

    def _latent(self, place: Tensor, h: Tensor, token: Tensor) -> Tensor:
        """The vector z float32 [1, rank], after W1[p] `token`."""
        if self._inner is None:
            return token
        if self._kind == "gated":
            return self.tensors.product(torch.cat([h, token], -1), self._inner).sigmoid() * token
        state = self._states.index_select(0, place)
        gate, new, out = self.tensors.product(torch.cat([state, token, h], -1), self._inner).chunk(3, -1)
        self._states.index_copy_(0, place + 1, gate.sigmoid() * state + (1 - gate.sigmoid()) * new.tanh())
        return out.tanh()
