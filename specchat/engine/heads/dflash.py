"""DFlash (z-lab 2026, arXiv:2602.06036): a few layers guess all tokens of a block in one pass, as diffusion does.

Of the target's auxiliary hidden states each layer makes keys and values of the text; e is a token's embedding:

    c = norm(W [h1, h2, ...])                          of each token of the text before the pending one
    x = layers([e(pending), e(mask), e(mask), ...])    each row attends to c and to all rows of the block
    scores = V norm(x)

Row i guesses the token i places after the pending one; as DeepSpec trains them, the token i + 1 places after it.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.block_settings import MOST_BLOCK, BlockSettings, number
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import BlockLayer
from specchat.engine.heads.target import Embedding, Scores, StandIn, Target
from specchat.engine.heads.tensors import fits_target
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.model.weights import Weights
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.reference.layer import norm
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import Head

CONVOLVED = "layers.0.attention_conv.base_kernel"
"""A tensor that heads with DFlash2's layers have."""


class DFlashHead(StandIn):
    """Keys: "fc.weight", "hidden_norm.weight", "layers.i.*", "norm.weight", and "embed_tokens.weight" and
    "lm_head.weight" if they are not the target's; with a head of its own perhaps "d2t" and "t2d" as EAGLE-3."""

    family: ClassVar[Head] = "dflash"
    convolved: ClassVar[bool] = False
    """Whether its layers must have convolutions."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        self._given = given = BlockSettings.read(files, model.config, self.family)
        hidden, inputs = given.shape.hidden, len(given.recipe.aux_layers) * model.config.hidden
        with Weights(files, model.device) as weights:
            super().__init__(target, given.recipe, weights.count())
            fits_family(files, weights, self.family)
            fits_target(files, weights, model.config.hidden, hidden, inputs)
            self._block_size = self._size(files)
            tensors, eps = self._tensors, given.shape.recipe.norm.eps
            self._fc = tensors.read(weights, Matrix(("fc",), (hidden,), inputs))
            self._text_norm, self._norm = (
                tensors.read(weights, Norm(name, hidden, eps)) for name in ("hidden_norm", "norm")
            )
            kernel = given.kernel(files, self._block_size) if self.convolved or CONVOLVED in weights else None
            slots = model.context + MOST_BLOCK
            self._layers = [BlockLayer(weights, tensors, layer, slots, kernel) for layer in given.recipe.layers]
            self._embedding = Embedding(weights, tensors, model, hidden)
            self._scores = Scores(weights, tensors, model, given.proposes, hidden)
            self._more(files, weights)
        model.record_states(given.recipe.aux_layers)
        self.places = self.wanted = self._block_size - given.first
        """How many tokens after the pending one are guessed, and how many of these are asked for."""
        self._before: list[int] = []
        """The pending token and the drafted ones that are known: those before the place that is scored."""

    def _size(self, files: HeadFiles) -> int:
        """Rows of the block, the pending token's among them."""
        return number(files, self._given.known.block_size, "block_size", 2, MOST_BLOCK)

    def _more(self, files: HeadFiles, weights: Weights) -> None:
        """Read what a family has besides."""

    @torch.inference_mode()
    def write(self, tokens: Sequence[int], start: int) -> None:
        self._remember(start, start + len(tokens))

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Layout | None = None) -> Tensor:
        """The block's row that guesses what follows the last token, float32 [1, hidden].

        The pass is made where that is the pending token. What comes after it are drafted tokens, one at a time.
        """
        known = len(self.target.tokens)
        place = start + len(tokens) - 1 - known
        if not place:
            self._remember(start, known)
            self._guess(tokens[-1], known)
        self._before[place:] = tokens[-1:]
        return self._rows[place : place + 1]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        return self._scored(len(self._before) - 1).unsqueeze(0)

    def _scored(self, place: int) -> Tensor:
        """Scores float32 [vocab] of a place, what stands before it being `_before`."""
        return self._base[place]

    def _remember(self, first: int, last: int) -> None:
        """Make keys and values of slots first, ..., last - 1 of the target's hidden states there."""
        if first == last:  # a product takes at least one row
            return
        states = torch.cat([self.target.model.states(layer, first, last) for layer in self.recipe.aux_layers], -1)
        text = norm(self._text_norm, self._tensors.product(states, self._fc), self._tensors)
        for layer in self._layers:
            layer.remember(text, first)

    def _guess(self, pending: int, known: int) -> None:
        given = self._given
        x = self._embedding([pending, *[given.mask] * (self._block_size - 1)])
        for layer in self._layers:
            x = layer(x, known)
        self._block = norm(self._norm, x, self._tensors)
        """All rows of the block, float32 [block, hidden]."""
        self._rows = self._block[given.first :]
        """Those that guess, by place."""
        self._base = self._scores(self._rows[: self.wanted])
        """What they score by themselves, float32 [wanted, vocab]."""

    def memory(self) -> int:
        return super().memory() + sum(layer.memory() for layer in self._layers)


def fits_family(files: HeadFiles, weights: Weights, family: Head) -> None:
    """Check by its tensors that a head is of `family`.

    Raises:
        ModelError: it is of another.
    """
    marked = (name for name, one in HEADS.items() if any(mark in weights for mark in one.marks))
    theirs = next(marked, DFlashHead.family)
    if theirs != family:
        raise ModelError(f"{files.folder}: by its tensors this is a {theirs} head. Name it heads.{theirs} instead.")
