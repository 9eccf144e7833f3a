"""What tells the families of heads that draft a block apart, and the product that scores their tokens."""

from collections.abc import Mapping

from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.heads.block_settings import BlockSettings
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.target import Target
from specchat.engine.heads.tensors import proposed
from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights
from specchat.engine.strategy import Head

MARKS: Mapping[Head, tuple[str, ...]] = {
    "xpress": ("xpress_head.w1.weight", "refiner_head.token_embed.weight"),
    "dspark": ("markov_head.markov_w1.weight", "confidence_head.proj.weight"),
    "dflash2": ("candidate_selector.hidden_projection.weight",),
}
"""Tensors that tell a family from DFlash, which is a part of each."""


def fits_family(files: HeadFiles, weights: Weights, family: Head) -> None:
    """Check by its tensors that a head is of `family`.

    Raises:
        ModelError: it is of another.
    """
    theirs = next((head for head, marks in MARKS.items() if any(mark in weights for mark in marks)), "dflash")
    if theirs != family:
        raise ModelError(f"{files.folder}: by its tensors this is a {theirs} head. Name it heads.{theirs} instead.")


class Scores:
    """The head of a drafting head: its own, or the target's where it has none."""

    def __init__(self, weights: Weights, target: Target, given: BlockSettings) -> None:
        """Read it.

        Raises:
            ModelError: weights missing, damaged, of other shapes, or a map of tokens that leads nowhere.
        """
        name, hidden = "lm_head.weight", given.layer.hidden
        self._target, self._own = target, None
        if name in weights:
            self._tokens = proposed(weights, given.proposes, target.vocab)
            self._own = Linear(weights.get(name, given.proposes, hidden), drafting=True)
        elif given.proposes != target.vocab or hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name} is missing, and the target's has another size.")

    def __call__(self, hidden: Tensor) -> Tensor:
        """float32 [rows, hidden] -> float32 [rows, vocab], -inf for tokens that are not proposed."""
        if self._own is None:
            return self._target.projected(hidden)
        return self.spread(self._own(hidden), float("-inf"))

    def spread(self, few: Tensor, others: float) -> Tensor:
        """Values float32 [rows, proposed tokens] as float32 [rows, vocab], other tokens having `others`."""
        if self._own is None:
            return few
        whole = few.new_full((len(few), self._target.vocab), others)
        return whole.index_copy_(1, self._tokens, few)

    def memory(self) -> int:
        """Bytes held."""
        return 0 if self._own is None else self._own.memory()
