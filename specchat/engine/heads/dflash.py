"""DFlash (z-lab 2026, arXiv:2602.06036): a few layers guess all tokens of a block in one pass, as diffusion does.

Of the target's states after some of its layers each layer makes keys and values of the text; e is a token's embedding:

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
from specchat.engine.heads.block_layer import BlockLayer, Rotary, Sight
from specchat.engine.heads.block_settings import BlockSettings
from specchat.engine.heads.block_tensors import Scores, fits_family
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.stand_in import StandIn
from specchat.engine.heads.target import Target
from specchat.engine.heads.tensors import Embedding, fits_target
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.rows import Linear
from specchat.engine.model.tree_layout import Layout
from specchat.engine.model.weights import Weights
from specchat.engine.strategy import Head

CONVOLVED = "layers.0.attention_conv.base_kernel"
"""A tensor that heads with DFlash2's layers have."""


class DFlashHead(StandIn):
    """Keys: "fc.weight", "hidden_norm.weight", "layers.i.*", "norm.weight", and "embed_tokens.weight" and
    "lm_head.weight" if they are not the target's; with a head of its own perhaps "d2t" and "t2d" as EAGLE-3."""

    family: ClassVar[Head] = "dflash"

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        self._given = given = BlockSettings.read(files, model.config, self.family)
        c, inputs = given.layer, len(given.states) * model.config.hidden
        turned = Rotary(c, model.context, model.device)
        with Weights(files, model.device) as weights:
            fits_family(files, weights, self.family)
            fits_target(files, weights, model.config.hidden, c.hidden, inputs)
            self._fc = Linear(weights.get("fc.weight", c.hidden, inputs), drafting=True)
            self._text_norm = RMSNorm(weights.get("hidden_norm.weight", c.hidden), c.norm_eps)
            kernel = given.kernel(files) if self.family == "dflash2" or CONVOLVED in weights else None
            self._layers = [
                BlockLayer(weights, f"layers.{i}.", c, model.context, turned, Sight(*sight), kernel)
                for i, sight in enumerate(zip(given.windows, given.causal, strict=True))
            ]
            self._norm = RMSNorm(weights.get("norm.weight", c.hidden), c.norm_eps)
            self._embedding = Embedding(weights, model, c.hidden)
            self._scores = Scores(weights, model, given)
            self._more(files, weights)
            super().__init__(target, weights.count())
        model.record_states(given.states)
        self.places = self.wanted = given.block - given.first
        """How many tokens after the pending one are guessed, and how many of these are asked for."""
        self._before: list[int] = []
        """The pending token and the drafted ones that are known: those before the place that is scored."""

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
        """Make keys and values of slots first, ..., last - 1 of the target's states there."""
        if first == last:  # a product takes at least one row
            return
        states = torch.cat([self.target.model.states(layer, first, last) for layer in self._given.states], -1)
        text = self._text_norm(self._fc(states))
        for layer in self._layers:
            layer.remember(text, first)

    def _guess(self, pending: int, known: int) -> None:
        given = self._given
        x = self._embedding([pending, *[given.mask] * (given.block - 1)])
        for layer in self._layers:
            x = layer(x, known)
        self._block = self._norm(x)
        """All rows of the block, float32 [block, hidden]."""
        self._rows = self._block[given.first :]
        """Those that guess, by place."""
        self._base = self._scores(self._rows[: self.wanted])
        """What they score by themselves, float32 [wanted, vocab]."""

    def memory(self) -> int:
        products = self._fc.memory() + self._scores.memory() + self._embedding.memory()
        return products + sum(layer.memory() for layer in self._layers)
