"""The head of P-EAGLE (2026, arXiv:2602.01469): EAGLE-3's, trained to predict several positions in one pass.

Positions after the text have neither token nor feature yet. The settings' mask token and a feature W m, with m
learnt, stand in for them.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.eagle3 import Eagle3Head
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.rows import HeadRows
from specchat.engine.heads.target import Target
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.strategy import MAX_DRAFT_LENGTH, Head
from specchat.engine.weights.weights import Weights


class PEagleHead(Eagle3Head):
    """P-EAGLE head. Keys: EAGLE-3's, and "mask_hidden", as long as a row of states."""

    kind: ClassVar[Head] = "peagle"

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        super().__init__(files, target)
        if (mask := self._given.keys.mask_token_id) is None:
            raise ModelError(f"{files.folder / 'config.json'} names no mask_token_id (or ptd_token_id, or pard_token).")
        self._mask, inputs = mask, len(self.aux_layers) * target.model.config.hidden
        with Weights(files, target.model.device) as weights:
            shape = weights.shape("mask_hidden")
            if shape not in ((inputs,), (1, inputs), (1, 1, inputs)):
                raise ModelError(f"{files.folder}: tensor mask_hidden has shape {list(shape)}, not {inputs} values.")
            with torch.inference_mode():
                self._unknown = self.feature(weights.get("mask_hidden", *shape).float().view(1, inputs))
        self._made[:] = self._unknown
        self._guessed = self._unknown
        self.wanted = 1
        """Number of positions that a pass up to the pending token predicts."""
        self.places = MAX_DRAFT_LENGTH
        self._masks = torch.full((self.places - 1,), self._mask, device=self._unknown.device)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        known = len(self.target.tokens)
        if start > known:  # draft tokens: predicted with the first
            return self._guessed[start - known :][: len(tokens)]
        further = self.wanted - 1 if start + len(tokens) > known else 0
        hidden = super().forward([*tokens, *[self._mask] * further], start)
        rows = len(hidden) - further
        self._guessed = hidden[rows - 1 :]
        return hidden[:rows]

    def predict(
        self, recent: Tensor, slots: Tensor, states: Sequence[Tensor], rows_at: Callable[[Tensor], HeadRows]
    ) -> None:
        """Predict all places, as `DFlashHead.predict`."""
        rows, masks = len(recent), self._masks
        slots = slots[:1] + torch.arange(rows + len(masks), device=slots.device)
        features = torch.cat([self.feature(torch.cat(list(states), -1)), self._unknown.expand(len(masks), -1)])
        hidden, _ = self.run(torch.cat([recent, masks]), features, rows_at(slots))
        self._guessed = self._keep("guessed", hidden[rows - 1 :])

    def logits_at(self, place: Tensor, token: Tensor) -> Tensor:
        """Logits float32 [1, vocab] at position `place` of the draft, whatever the `token` before it."""
        del token
        return self.logits(self._guessed.index_select(0, place))

    def next_features(self, hidden: Tensor) -> Tensor:
        return self._unknown.expand_as(hidden)
