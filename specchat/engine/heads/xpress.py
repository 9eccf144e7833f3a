"""XPress (2026, arXiv:2608.02438): DFlash refined by a small causal network over the block.

With p the token before row i of the block, h its row, m the mean of all rows and u the row's own logits:

    x[i] = F [D h, E m, W1[p]]
    y[i] = x[i] + sum over j <= i of L[i, j] * x[j]       L has a value for each channel
    z[i] = y[i] + mlp(y[i])
    scores = u + W2 z[i]

The paper refines all rows at once with six Jacobi iterations, fewer passes than rows on a GPU. A row depends only on
earlier rows, so here each row is refined once, in order. The tokens are the same wherever six iterations converge.
"""

from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.heads.block_settings import MOST_RANK
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.heads.rows import HeadRows
from specchat.engine.recipe import Gated, Matrix
from specchat.engine.reference.ops import gated_mlp
from specchat.engine.strategy import Head
from specchat.engine.weights.weights import Weights

PUBLISHED = ("xpress_head.", "w1", "mix.L", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "w2")
SPECULATORS = ("refiner_head.", "token_embed", "mix_l", "mlp_gate", "mlp_up", "mlp_down", "readout")
"""Prefix and names of W1, L, the parts of the mlp and W2, in the authors' files and in those of speculators."""


class XPressHead(DFlashHead):
    """XPress head. Keys: DFlash's; and under a prefix "down_h", "down_g", "in_proj" for D, E, F, and the names
    above."""

    family: ClassVar[Head] = "xpress"

    def _more(self, weights: Weights) -> None:
        given, shape, block, tensors = self._given, self._given.shape, self._block_size, self.tensors
        rank, ratio = given.keys.number("xpress_rank", 1, MOST_RANK), given.keys.number("xpress_mlp_ratio", 1, 16)
        named = given.keys.xpress_mlp_hidden is not None
        inner = given.keys.number("xpress_mlp_hidden", 1, 16 * MOST_RANK) if named else ratio * rank
        prefix, w1, mixer, gate, up, down, w2 = PUBLISHED if "xpress_head.w1.weight" in weights else SPECULATORS

        def matrix(name: str, outputs: int, inputs: int) -> Matrix:
            return tensors.read(weights, Matrix((f"{prefix}{name}",), (outputs,), inputs))

        self._w1 = tensors.table(weights, f"{prefix}{w1}.weight", shape.vocab, rank)
        self._of_row, self._of_block = (matrix(name, rank, shape.hidden) for name in ("down_h", "down_g"))
        fused = weights.get(f"{prefix}in_proj.weight", rank, 3 * rank)
        self._fused = tensors.put(Matrix(("of row and block",), (rank,), 2 * rank), fused[:, : 2 * rank])
        self._of_token = tensors.put(Matrix(("of token",), (rank,), rank), fused[:, 2 * rank :])
        self._mixer = tensors.table(weights, f"{prefix}{mixer}", rank, block, block)
        gate_up = Matrix((f"{prefix}{gate}", f"{prefix}{up}"), (inner, inner), rank)
        self._mlp = Gated(tensors.read(weights, gate_up), matrix(down, rank, inner))
        self._w2 = matrix(w2, self._given.proposes, rank)

    def _predict(self, last_two: Tensor, rows: HeadRows, wanted: int) -> Tensor:
        block, product = super()._predict(last_two, rows, wanted), self.tensors.product
        of_block = product(block.mean(0, keepdim=True), self._of_block).expand(len(block), -1)
        without = product(torch.cat([product(block, self._of_row), of_block], -1), self._fused)
        self._without = self._keep("without", without)
        """x float32 [block, rank] without the contribution of p."""
        self._x = self._keep("x", torch.zeros_like(without))
        if self._given.first:
            self._tell(torch.zeros(1, dtype=torch.int64, device=last_two.device), last_two[:1])
        return block

    def _tell(self, row: Tensor, token: Tensor) -> None:
        """Complete x of a row, now that the token before it is known."""
        of_token = self.tensors.product(self._w1.index_select(0, token).float(), self._of_token)
        self._x.index_copy_(0, row, self._without.index_select(0, row) + of_token)

    def logits_at(self, place: Tensor, token: Tensor) -> Tensor:
        row = place + self._given.first
        self._tell(row, token)
        # Rows that are not complete yet are zeros.
        y = self._x.index_select(0, row) + (self._mixer.index_select(1, row)[:, 0] * self._x.T).sum(1)
        z = y + gated_mlp(self._mlp, y, self.tensors)
        return super().logits_at(place, token) + self._scores.scatter(self.tensors.product(z, self._w2), 0.0)
