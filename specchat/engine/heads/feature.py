"""What all EAGLE heads share (Li et al. 2024): they guess the target's next feature from this one and the next token.

The entry of token x[s] has the feature f[s - 1] besides, and stands in slot s - 1. The features of the text are the
target's own. Of a drafted token it is what the head made of the entry before.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.layer import HeadLayer, Places
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.heads.target import Embedding, StandIn, Target
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.model.weights import Weights
from specchat.engine.recipe import Layer


class FeatureHead(StandIn):
    """Feeds features and tokens to the layers of a head."""

    _embedding: Embedding | None = None
    """Of a head that may have its own."""

    def __init__(self, target: CachedModel[Target], recipe: HeadRecipe, parameters: int) -> None:
        """As `StandIn`."""
        super().__init__(target, recipe, parameters)
        self._layers: list[HeadLayer] = []
        self._made = torch.zeros(self.context + 1, recipe.feature, device=target.model.device)
        """The feature that the head guessed for each slot."""
        self._nodes: list[Tensor] = []
        """Those after the nodes of a tree, by row of its stash."""
        self._path: dict[int, int] = {}
        """Which row was last at each depth of the tree."""

    def _read_layer(self, weights: Weights, of: Layer, compiled: bool) -> HeadLayer:
        """One of the layers; `compiled` says whether its shape is one for a compiled function."""
        layer = HeadLayer(weights, self._tensors, of, self.context, compiled and self.target.model.compiled)
        self._layers.append(layer)
        return layer

    @property
    def looked_at(self) -> Sequence[int]:
        """The layers after which the target's hidden states make a feature."""
        return self.recipe.aux_layers

    @abstractmethod
    def feature(self, states: Tensor) -> Tensor:
        """What is made of those states side by side: float32 [rows, hidden]."""

    def features(self, first: int, last: int) -> Tensor:
        """The target's own features float32 [last - first, hidden] in slots first, ..., last - 1."""
        if first == last:  # a product takes at least one row
            return self._made[:0]
        return self.feature(torch.cat([self.target.model.states(layer, first, last) for layer in self.looked_at], -1))

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """What the layer is given of tokens: float32 [len(tokens), hidden]."""
        return self.target.model.embedded(tokens) if self._embedding is None else self._embedding(tokens)

    @property
    def table(self) -> Tensor | None:
        """The head's own embeddings, None where they are the target's."""
        return None if self._embedding is None else self._embedding.own

    @abstractmethod
    def step(self, embedded: Tensor, features: Tensor, at: Places) -> Tensor:
        """The layer over embedded tokens with the features before them: float32 [rows, hidden]."""

    @abstractmethod
    def fed_on(self, hidden: Tensor) -> Tensor:
        """The features that rows of `step` stand for."""

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Layout | None = None) -> Tensor:
        if runs is not None:
            return self._level(tokens, start, runs)
        # No feature comes before the first token of a text.
        tokens, first = (tokens[1:], 0) if start == 0 else (tokens, start - 1)
        last = first + len(tokens)
        if first == last:
            return self._made[:0]
        known = max(first, min(last, len(self.target.tokens)))
        features = torch.cat([self.features(first, known), self._made[known:last]])
        hidden = self.step(self.embedded(tokens), features, Places(first))
        self._made[first + 1 : last + 1] = self.fed_on(hidden)
        return hidden

    def guessed(self, slots: Tensor) -> Tensor:
        """The features that the head made for `slots` int64 on the device."""
        return self._made.index_select(0, slots)

    def chained(self, embedded: Tensor, features: Tensor, slots: Tensor) -> Tensor:
        """As `forward`, into `slots` int64 on the device, where a captured graph finds them each time."""
        hidden = self.step(embedded, features, Places(0, slots=slots))
        self._made.index_copy_(0, slots + 1, self.fed_on(hidden))
        return hidden

    def _level(self, tokens: Sequence[int], start: int, runs: Layout) -> Tensor:
        """Nodes of one level: node r of the stash stands in slot start + r, and sees the text and its own path."""
        if not runs.scratch_row:
            self._nodes, self._path = [], {}
        rows = len(tokens)
        seen = torch.zeros(rows, start + runs.scratch_row + rows, dtype=torch.bool)
        seen[:, :start] = True
        before = []
        for row, (depth, above) in enumerate(zip(runs.depths, runs.ancestors, strict=True)):
            self._path |= dict(enumerate(above, depth - len(above)))
            path = [self._path[place] for place in range(1, depth)]
            self._path[depth] = runs.scratch_row + row
            seen[row, [start + node for node in (*path, runs.scratch_row + row)]] = True
            before.append(self._nodes[path[-1]] if path else self._made[start])
        positions = torch.tensor([start + depth - 1 for depth in runs.depths])
        at = Places(start + runs.scratch_row, positions.to(self._made.device), seen.to(self._made.device))
        hidden = self.step(self.embedded(tokens), torch.stack(before), at)
        self._nodes += self.fed_on(hidden)
        return hidden

    def memory(self) -> int:
        return super().memory() + sum(layer.memory() for layer in self._layers) + self._made.nbytes
