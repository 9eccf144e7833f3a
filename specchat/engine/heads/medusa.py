"""Medusa-1 (Cai et al. 2024): each head guesses a further place from one state of the target.

Head i is given the target's last state after the final norm, h, at the token before the pending one, and guesses the
token i + 1 places after the pending one:

    h = h + silu(W h + b)      for each of its blocks
    scores = V h
"""

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor
from torch.nn.functional import silu

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.foreign import Foreign, checked
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.stand_in import StandIn
from specchat.engine.heads.target import Target
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.rows import Linear
from specchat.engine.model.tree_layout import Layout
from specchat.engine.model.weights import Weights

Head = tuple[list[Linear], Linear]
"""Its blocks, and what gives scores."""


class _Keys(Foreign):
    medusa_num_layers: int = Field(1, ge=0, le=16, description="a number up to 16")


class MedusaHeads(StandIn):
    """All heads of a target, which stand for a draft model: a pass over the i-th drafted token is one of head i."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights; their keys are "i.j.linear.weight" and ".bias" of block j of head i, and "i.n.weight".

        Raises:
            ModelError: weights missing, damaged, or for another target.
        """
        model = target.model
        blocks = checked(_Keys, files.settings, str(files.folder / "config.json")).medusa_num_layers
        with Weights(files, model.device) as weights:
            # Published settings tell of fewer heads than there are.
            self._heads: list[Head] = []
            while f"{len(self._heads)}.{blocks}.weight" in weights:
                self._heads.append(_head(weights, len(self._heads), blocks, model.config))
            if not self._heads:
                raise ModelError(
                    f"{files.folder} holds no Medusa heads with {blocks} block{'s' * (blocks != 1)} each: tensor "
                    f"0.{blocks}.weight is missing."
                )
            super().__init__(target, weights.count())
        self._last = model.config.layers
        model.record_states([self._last])
        self._next = 0

    @property
    def places(self) -> int:
        """How many tokens after the pending one are guessed."""
        return len(self._heads)

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Layout | None = None) -> Tensor:
        """The state that the head of this place has before its scores, the same for each token: heads see no drafts."""
        known = len(self.target.tokens)
        self._next = runs.depths[0] if runs is not None else start + len(tokens) - 1 - known
        hidden = self.target.model.normed(self.target.model.states(self._last, known - 1, known))
        for linear in self._heads[self._next][0]:
            hidden = hidden + silu(linear(hidden))
        return hidden.expand(len(tokens), -1)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._heads[self._next][1](hidden[:1]).expand(len(hidden), -1)

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Nothing: the target's states are all there is to know."""

    def memory(self) -> int:
        return sum(linear.memory() for blocks, out in self._heads for linear in (*blocks, out))


def _head(weights: Weights, index: int, blocks: int, c: ModelConfig) -> Head:
    out = f"{index}.{blocks}.weight"
    if (shape := weights.shape(out)) != (c.vocab, c.hidden):
        raise ModelError(
            f"{weights.folder}: these heads are for another target: tensor {out} has shape {list(shape)}, and this "
            f"target has {c.vocab} tokens and a hidden size of {c.hidden}."
        )

    def block(j: int) -> Linear:
        # Blocks made by repeating a list are one, which safetensors stores once.
        name = f"{index}.{j if f'{index}.{j}.linear.weight' in weights else 0}.linear"
        return Linear(weights.get(f"{name}.weight", c.hidden, c.hidden), weights.get(f"{name}.bias", c.hidden), True)

    return [block(j) for j in range(blocks)], Linear(weights.get(out, c.vocab, c.hidden), drafting=True)
