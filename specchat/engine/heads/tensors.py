"""What heads' tensors must be for a target, and their embeddings."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.errors import ModelError
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.target import Target
from specchat.engine.model.weights import Weights


def fits_target(files: HeadFiles, weights: Weights, target: int, hidden: int, inputs: int) -> None:
    """Check by the product that takes its states that a head is for a target of this hidden size.

    Raises:
        ModelError: it is not.
    """
    if (shape := weights.shape("fc.weight")) and shape != (hidden, inputs):
        raise ModelError(
            f"{files.folder}: this head is for another target or its config.json for another head: tensor fc.weight "
            f"has shape {list(shape)}, and with this target, whose hidden size is {target}, it is {[hidden, inputs]}."
        )


def proposed(weights: Weights, rows: int, vocab: int) -> Tensor:
    """The tokens int64 [rows] that a head with so many rows may propose.

    Raises:
        ModelError: the head's map leads to tokens that there are not, or contradicts itself.
    """
    tokens = torch.arange(rows, device=weights.device)
    if "d2t" in weights:
        tokens = tokens + weights.integers("d2t", rows)
    elif rows != vocab:
        raise ModelError(f"{weights.folder}: the head proposes {rows} of {vocab} tokens, and tensor d2t is missing.")
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocab:
        wrong = least if least < 0 else most
        raise ModelError(f"{weights.folder}: tensor d2t leads to token {wrong}, and the target has {vocab}.")
    if len(tokens.unique()) != rows:
        raise ModelError(f"{weights.folder}: tensor d2t leads to a token twice.")
    if "t2d" in weights:
        known = weights.integers("t2d", vocab)
        if int(known.sum()) != rows or not bool(known[tokens].all()):
            raise ModelError(f"{weights.folder}: tensors d2t and t2d are about different tokens.")
    return tokens


class Embedding:
    """The head's own embeddings, or the target's where it has none: `own` is None then."""

    def __init__(self, weights: Weights, target: Target, hidden: int) -> None:
        """Read them.

        Raises:
            ModelError: they are of another shape.
        """
        name, self._target = "embed_tokens.weight", target
        self.own = weights.get(name, target.vocab, hidden) if name in weights else None
        if self.own is None and hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name} is missing, and the target's has another size.")

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """float32 [len(tokens), hidden]."""
        if self.own is None:
            return self._target.embedded(tokens)
        return embedding(torch.tensor(tokens, device=self.own.device), self.own).float()

    def memory(self) -> int:
        """Bytes held."""
        return 0 if self.own is None else self.own.nbytes
