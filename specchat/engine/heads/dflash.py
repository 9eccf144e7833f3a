"""DFlash (z-lab 2026, arXiv:2602.06036): a few layers predict a whole block in one pass, as in diffusion.

Each layer's keys and values of the text come from the target's auxiliary hidden states. e is a token's embedding:

    c = norm(W [h1, h2, ...])                          of each token before the pending one
    x = layers([e(pending), e(mask), e(mask), ...])    each row attends to c and to all rows of the block
    scores = V norm(x)

Row i predicts the token i positions after the pending one, or i + 1 positions as trained by DeepSpec.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.block_settings import MOST_BLOCK, block
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import BlockLayer
from specchat.engine.heads.rows import HeadRows, chain
from specchat.engine.heads.target import DraftHead, Embedding, Scores, Target
from specchat.engine.heads.tensors import fits_target
from specchat.engine.model.copies import CacheEntries, CopiedCache
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.recipe import Matrix, Norm
from specchat.engine.reference.ops import norm
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import Head
from specchat.engine.weights.weights import Weights

CONVOLVED = "layers.0.attention_conv.base_kernel"
"""A tensor of heads with DFlash2's layers."""

ENCODER = "encoder.fc", "encoder.output_norm_enc"
"""transformers' names of the first product and the norm after it (Muse's assistant)."""


class DFlashHead(DraftHead, CopiedCache):
    """DFlash head. Keys: "fc.weight", "hidden_norm.weight", "layers.i.*", "norm.weight", and "embed_tokens.weight" and
    "lm_head.weight" unless they are the target's; with "lm_head.weight" optionally "d2t" and "t2d" as in EAGLE-3."""

    family: ClassVar[Head] = "dflash"
    convolved: ClassVar[bool] = False
    """True if the layers must have convolutions."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        self._given = given = block(files, model.config, self.family)
        hidden, inputs = given.shape.hidden, len(given.recipe.aux_layers) * model.config.hidden
        with Weights(files, model.device) as weights:
            super().__init__(target, given.recipe, weights.count())
            fits_family(files, weights, self.family)
            fc, of_text = ENCODER if f"{ENCODER[0]}.weight" in weights else ("fc", "hidden_norm")
            fits_target(files, weights, model.config.hidden, hidden, inputs, fc)
            self._block_size = given.keys.number("block_size", 2, MOST_BLOCK)
            tensors, eps = self.tensors, given.shape.recipe.norm.eps
            self._fc = tensors.read(weights, Matrix((fc,), (hidden,), inputs))
            self._text_norm, self._norm = (tensors.read(weights, Norm(name, hidden, eps)) for name in (of_text, "norm"))
            convolved = self.convolved or CONVOLVED in weights
            kernel = self._kernel(given.shape.hidden) if convolved else None
            self.capacity = model.context + MOST_BLOCK
            self._layers = [BlockLayer(weights, tensors, one, self.capacity, kernel) for one in given.recipe.layers]
            self._embedding = Embedding(weights, tensors, model, hidden)
            self._scores = Scores(weights, tensors, model, given.proposes, hidden)
            self.places = self.wanted = self._block_size - given.first
            """Draft tokens of a block at most, and number wanted from the next pass."""
            self._more(weights)
        model.record_states(given.recipe.aux_layers)
        self._mask = given.keys.number("mask_token_id", 0, model.vocab - 1)
        self._before: list[int] = []
        """The pending token and the draft tokens before the position being scored."""

    def _kernel(self, hidden: int) -> tuple[int, int]:
        """Kernel size of the layers' convolutions over a block, and channels per group.

        Raises:
            ModelError: they are missing or out of range, or the group does not divide the channels.
        """
        given = self._given
        taps = given.keys.number("conv_kernel_size", 1, self._block_size)
        group = given.keys.number("conv_group_size", 1, hidden)
        if hidden % group:
            raise ModelError(f"{given.keys.path}: conv_group_size {group} does not divide hidden_size.")
        return taps, group

    def _more(self, weights: Weights) -> None:
        """Read the further tensors of a subclass."""

    @torch.inference_mode()
    def write(self, tokens: Sequence[int], start: int) -> None:
        self._write_text(start, start + len(tokens))

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Return the block's row that predicts the token after the last one, float32 [1, hidden].

        The pass runs when the last token is the pending one. Draft tokens follow one at a time.
        """
        known = len(self.target.tokens)
        place = start + len(tokens) - 1 - known
        if not place:
            self._write_text(start, known)
            device = self.target.model.device
            last_two = torch.tensor([*self.target.tokens[-1:], *tokens[-1:]], device=device)
            self._predict(last_two, chain(known, self._block_size), self.wanted)
        self._before[place:] = tokens[-1:]
        return self._rows[place : place + 1]

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        return self.logits_at(*torch.tensor([[len(self._before) - 1], self._before[-1:]], device=self._rows.device))

    def predict(
        self, recent: Tensor, slots: Tensor, states: Sequence[Tensor], rows_at: Callable[[Tensor], HeadRows]
    ) -> None:
        """Predict a block, as a captured graph needs it: all arguments are on the device.

        Args:
            recent: int [rows], the last tokens of the text with the pending one.
            slots: int64 [rows], of the tokens before each of them; their entries are written.
            states: the target's hidden states of those, float32 [rows, hidden] after each of `aux_layers`.
            rows_at: maps slots int64 [rows] to the rows there, which attend to the text and one another.
        """
        self._write(states, rows_at(slots))
        block = rows_at(slots[-1:] + torch.arange(1, self._block_size + 1, device=slots.device))
        self._predict(recent[-2:], block, self.places)

    def logits_at(self, place: Tensor, token: Tensor) -> Tensor:
        """Logits float32 [1, vocab] at position `place` of the draft, after `token`; int [1] both, places in order."""
        return self._base.index_select(0, place)

    def _write_text(self, first: int, last: int) -> None:
        """Write the KV entries of positions first, ..., last - 1 from the target's hidden states."""
        if first < last:  # a product takes at least one row
            states = [self.target.model.states(layer, first, last) for layer in self.aux_layers]
            self._write(states, chain(first, last - first))

    def _write(self, states: Sequence[Tensor], rows: HeadRows) -> None:
        """Write the KV entries that belong to `states`."""
        text = norm(self._text_norm, self.tensors.product(torch.cat(list(states), -1), self._fc), self.tensors)
        for layer in self._layers:
            layer.write_entries(text, rows)

    def _predict(self, last_two: Tensor, rows: HeadRows, wanted: int) -> Tensor:
        """Predict the block after the last two tokens of a text, or its only one; return its rows float32 [block,
        hidden]. `wanted` draft tokens are scored."""
        masks = last_two.new_full((self._block_size - 1,), self._mask)
        x = self._embedding(torch.cat([last_two[-1:], masks]))
        for layer in self._layers:
            x = layer(x, rows)
        block = norm(self._norm, x, self.tensors)
        self._rows = self._keep("rows", block[self._given.first :])
        """Rows that predict, by position in the draft."""
        self._base = self._keep("base", self._scores(self._rows[:wanted]))
        """Their logits before any correction, float32 [wanted, vocab]."""
        return block

    def entries(self) -> CacheEntries:
        return CacheEntries([part for layer in self._layers for part in layer.entries])

    def memory(self) -> int:
        return super().memory() + sum(layer.memory() for layer in self._layers)


def fits_family(files: HeadFiles, weights: Weights, family: Head) -> None:
    """Check from its tensors that a head is of `family`.

    Raises:
        ModelError: it is of another.
    """
    marked = (name for name, one in HEADS.items() if any(mark in weights for mark in one.marks))
    theirs = next(marked, DFlashHead.family)
    if theirs != family:
        raise ModelError(f"{files.folder}: by its tensors this is a {theirs} head. Name it heads.{theirs} instead.")
