"""XPress (2026, arXiv:2608.02438): DFlash refined by a small causal network over the block.

With p the token before row i of the block, h its row, m the mean of all rows and u what the row scores by itself:

    x[i] = F [D h, E m, W1[p]]
    y[i] = x[i] + sum over j <= i of L[i, j] * x[j]       L has a value for each channel
    z[i] = y[i] + mlp(y[i])
    scores = u + W2 z[i]

The paper refines all rows at once, and again with the tokens that then score best, six times (Jacobi), which on a GPU
is fewer passes than there are rows. As a row depends on those before it alone, what that comes to is found here row by
row: the same tokens where six passes are enough, from one look at W2 for each.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import silu

from specchat.engine.heads.block_settings import MOST_RANK, number
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import joined
from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights
from specchat.engine.strategy import Head

PUBLISHED = ("xpress_head.", "w1", "mix.L", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "w2")
SPECULATORS = ("refiner_head.", "token_embed", "mix_l", "mlp_gate", "mlp_up", "mlp_down", "readout")
"""Prefix and names of W1, L, the parts of the mlp, and W2 in the authors' files and in those of speculators."""


class XPressHead(DFlashHead):
    """Keys: DFlash's, and after a prefix "down_h", "down_g" and "in_proj" for D, E and F, and the names above."""

    family: ClassVar[Head] = "xpress"

    def _more(self, files: HeadFiles, weights: Weights) -> None:
        known, c, block = self._given.known, self._given.layer, self._given.block
        rank = number(files, known.xpress_rank, "xpress_rank", 1, MOST_RANK)
        ratio = number(files, known.xpress_mlp_ratio, "xpress_mlp_ratio", 1, 16)
        inner = number(files, known.xpress_mlp_hidden or ratio * rank, "xpress_mlp_hidden", 1, 16 * MOST_RANK)
        prefix, w1, mixer, gate, up, down, w2 = PUBLISHED if "xpress_head.w1.weight" in weights else SPECULATORS
        self._w1 = weights.get(f"{prefix}{w1}.weight", c.vocab, rank)
        self._of_row = joined(weights, prefix, {"down_h": rank}, c.hidden)
        self._of_block = joined(weights, prefix, {"down_g": rank}, c.hidden)
        fused = weights.get(f"{prefix}in_proj.weight", rank, 3 * rank)
        self._fused, self._of_token = (
            Linear(one, drafting=True) for one in (fused[:, : 2 * rank], fused[:, 2 * rank :])
        )
        self._mixer = weights.get(f"{prefix}{mixer}", rank, block, block).permute(1, 2, 0).contiguous()
        self._gate_up = joined(weights, prefix, {gate: inner, up: inner}, rank)
        self._down = joined(weights, prefix, {down: rank}, inner)
        self._w2 = joined(weights, prefix, {w2: self._given.proposes}, rank)

    def _guess(self, pending: int, known: int) -> None:
        super()._guess(pending, known)
        mean = self._of_block(self._block.mean(0, keepdim=True)).expand(len(self._block), -1)
        self._without = self._fused(torch.cat([self._of_row(self._block), mean], -1))
        """x float32 [block, rank] but for what p adds."""
        self._x = torch.zeros_like(self._without)
        if self._given.first:
            self._tell(0, self.target.tokens[-1])

    def _tell(self, row: int, token: int) -> None:
        """The token before a row is known."""
        self._x[row] = self._without[row] + self._of_token(self._w1[token : token + 1].float())[0]

    def _scored(self, place: int) -> Tensor:
        row = self._given.first + place
        self._tell(row, self._before[place])
        y = self._x[row] + (self._mixer[row, : row + 1] * self._x[: row + 1]).sum(0)
        gate, up = self._gate_up(y.unsqueeze(0)).chunk(2, -1)
        z = y + self._down(silu(gate) * up)
        return self._base[place] + self._scores.spread(self._w2(z), 0.0)[0]

    def memory(self) -> int:
        products = (self._of_row, self._of_block, self._fused, self._of_token, self._gate_up, self._down, self._w2)
        held = self._w1.nbytes + self._mixer.nbytes
        return super().memory() + sum(one.memory() for one in products) + held
