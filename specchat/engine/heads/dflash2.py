"""DFlash2 (z-lab 2026): DFlash with convolutions in its layers, and a selector that rescores the top candidates.

With u the logits of a position, h its row of the block and p the token before it, each top candidate scores

    u[token] + <A[p] * W h, B[token]>
"""

from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.heads.block_settings import MOST_RANK
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.recipe import Matrix
from specchat.engine.strategy import Head
from specchat.engine.weights.weights import Weights


class DFlash2Head(DFlashHead):
    """DFlash2 head. Keys: DFlash's, "layers.i.attention_conv.*", "layers.i.mlp_conv.*", and under "candidate_selector."
    A and B as "predecessor_codebook" and "successor_codebook" [vocab, rank], and W as "hidden_projection.weight"."""

    family: ClassVar[Head] = "dflash2"
    convolved: ClassVar[bool] = True

    def _more(self, weights: Weights) -> None:
        keys, shape = self._given.keys, self._given.shape
        rank, self._best = keys.number("selector_rank", 1, MOST_RANK), keys.number("selector_top_k", 1, shape.vocab)
        prefix = "candidate_selector."
        self._after = self.tensors.table(weights, f"{prefix}predecessor_codebook", shape.vocab, rank)
        self._next = self.tensors.table(weights, f"{prefix}successor_codebook", shape.vocab, rank)
        self._projection = self.tensors.read(weights, Matrix((f"{prefix}hidden_projection",), (rank,), shape.hidden))

    def logits_at(self, place: Tensor, token: Tensor) -> Tensor:
        base = super().logits_at(place, token)
        scores, tokens = base.topk(self._best)
        of_row = self.tensors.product(self._rows.index_select(0, place), self._projection)
        edge = self._after.index_select(0, token).float() * of_row
        whole = torch.full_like(base, float("-inf"))
        return whole.scatter_(1, tokens, scores + edge @ self._next.index_select(0, tokens[0]).float().T)
