"""Medusa-1 (Cai et al. 2024): each head predicts one position from one hidden state of the target.

h is the target's last hidden state after the final norm, at the token before the pending one. Head i predicts the token
i + 1 positions after the pending one:

    h = h + silu(W h + b)      for each of its blocks
    scores = V h
"""

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import silu

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.settings import medusa
from specchat.engine.heads.target import DraftHead, Target
from specchat.engine.heads.tensors import HeadTensors
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.recipe import Matrix
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.weights import Weights

Head = tuple[list[Matrix], Matrix]
"""Blocks of a head, and its output matrix."""


class MedusaHeads(DraftHead):
    """All heads of a target as a draft model: a pass over the i-th draft token runs head i."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights; their keys are "i.j.linear.weight" and ".bias" of block j of head i, and "i.n.weight".

        Raises:
            ModelError: weights missing, damaged, or for another target.
        """
        model = target.model
        given = medusa(files, model.config, "medusa")
        blocks = given.keys.medusa_num_layers
        self._last = model.config.layers
        with Weights(files, model.device) as weights:
            super().__init__(target, given.recipe, weights.count())
            # Published settings name fewer heads than the files hold.
            self._heads: list[Head] = []
            while f"{len(self._heads)}.{blocks}.weight" in weights:
                self._heads.append(_head(weights, self.tensors, len(self._heads), blocks, model.config))
            if not self._heads:
                raise ModelError(
                    f"{files.folder} holds no Medusa heads with {blocks} block{'s' * (blocks != 1)} each: tensor "
                    f"0.{blocks}.weight is missing."
                )
        model.record_states(self.recipe.aux_layers)
        self._next = 0

    @property
    def places(self) -> int:
        """Number of tokens predicted after the pending one."""
        return len(self._heads)

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """The target's last hidden state, the same for each token: heads do not see draft tokens."""
        known = len(self.target.tokens)
        self._next = layout.depths[0] if layout is not None else start + len(tokens) - 1 - known
        return self.target.model.states(self._last, known - 1, known).expand(len(tokens), -1)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.logits_at(self._next, hidden[:1]).expand(len(hidden), -1)

    def logits_at(self, place: int, state: Tensor) -> Tensor:
        """Logits float32 [1, vocab] of head `place`, from the target's last hidden state float32 [1, hidden]."""
        hidden, (blocks, scores) = self.target.model.final_norm(state), self._heads[place]
        for matrix in blocks:
            hidden = hidden + silu(self.tensors.product(hidden, matrix))
        return self.tensors.product(hidden, scores)

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Do nothing: heads use only the target's hidden states."""


def _head(weights: Weights, tensors: HeadTensors, index: int, blocks: int, c: ModelConfig) -> Head:
    out = f"{index}.{blocks}.weight"
    if (shape := weights.shape(out)) != (c.vocab, c.hidden):
        raise ModelError(
            f"{weights.folder}: these heads are for another target: tensor {out} has shape {list(shape)}, and this "
            f"target has {c.vocab} tokens and a hidden size of {c.hidden}."
        )

    def block(j: int) -> Matrix:
        # Blocks made by repeating a list are the same tensor, stored once.
        name = f"{index}.{j if f'{index}.{j}.linear.weight' in weights else 0}.linear"
        return tensors.read(weights, Matrix((name,), (c.hidden,), c.hidden, bias=True))

    scores = Matrix((out.removesuffix(".weight"),), (c.vocab,), c.hidden)
    return [block(j) for j in range(blocks)], tensors.read(weights, scores)
