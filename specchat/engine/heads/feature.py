"""Common base of the EAGLE heads (Li et al. 2024): they predict the target's next feature from this one and a token.

The KV entry of token x[s] also carries the feature f[s - 1] and has position s - 1. Features of the text come from the
target. A draft token's feature is the head's own output one position earlier.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.layer import HeadLayer
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.heads.rows import HeadRows, chain, nodes
from specchat.engine.heads.target import DraftHead, Embedding, Target
from specchat.engine.memory.vectors import LANES
from specchat.engine.model.copies import CacheEntries, CopiedCache
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Layout
from specchat.engine.recipe import Layer
from specchat.engine.weights.weights import Weights


class FeatureHead(DraftHead, CopiedCache):
    """A head that feeds features and tokens to its layers."""

    _embedding: Embedding | None = None
    """Embedding of a head that may have its own."""

    def __init__(self, target: CachedModel[Target], recipe: HeadRecipe, parameters: int) -> None:
        """Initialise as `DraftHead`."""
        super().__init__(target, recipe, parameters)
        self._layers: list[HeadLayer] = []
        self.capacity = -(-(self.context + MAX_TREE_NODES) // LANES) * LANES
        """Slots of the layers' caches: the nodes of a tree follow the text."""
        self._made = torch.zeros(self.context + 1, recipe.feature, device=target.model.device)
        """The head's predicted feature at each position."""
        self._nodes: list[Tensor] = []
        """Features after the nodes of a tree, by row of its KV scratch."""
        self._path: dict[int, int] = {}
        """Latest scratch row at each depth of the tree."""

    def _read_layer(self, weights: Weights, of: Layer, compiled: bool) -> HeadLayer:
        """Read one of the layers; `compiled` is true if its shape allows a compiled function."""
        layer = HeadLayer(weights, self.tensors, of, self.capacity, compiled and self.target.model.compiled)
        self._layers.append(layer)
        return layer

    @abstractmethod
    def feature(self, states: Tensor) -> Tensor:
        """Feature float32 [rows, hidden] of the concatenated hidden states."""

    def features(self, first: int, last: int) -> Tensor:
        """The target's own features float32 [last - first, hidden] at positions first, ..., last - 1."""
        if first == last:  # a product takes at least one row
            return self._made[:0]
        return self.feature(torch.cat([self.target.model.states(layer, first, last) for layer in self.aux_layers], -1))

    def embed(self, tokens: Sequence[int] | Tensor) -> Tensor:
        """Token embeddings for the layer, float32 [len(tokens), hidden]."""
        return self.target.model.embed(tokens) if self._embedding is None else self._embedding(tokens)

    @property
    def table(self) -> Tensor | None:
        """The head's own embeddings, None if they are the target's."""
        return None if self._embedding is None else self._embedding.own

    @abstractmethod
    def step(self, embedded: Tensor, features: Tensor, rows: HeadRows) -> Tensor:
        """Run the layers on embedded tokens and the features before them: float32 [rows, hidden]."""

    @abstractmethod
    def next_features(self, hidden: Tensor) -> Tensor:
        """Features passed on to the next position, from the rows of `step`."""

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        return self._extend(tokens, start) if layout is None else self._level(tokens, start, layout)

    def _extend(self, tokens: Sequence[int], start: int, wanted: int = 0) -> Tensor:
        """Run over tokens from position `start` on; `wanted` as in `HeadRows`."""
        # No feature precedes the first token.
        tokens, first = (tokens[1:], 0) if start == 0 else (tokens, start - 1)
        last = first + len(tokens)
        if first == last:
            return self._made[:0]
        known = max(first, min(last, len(self.target.tokens)))
        features = torch.cat([self.features(first, known), self._made[known:last]])
        hidden, after = self.run(tokens, features, chain(first, len(tokens), wanted))
        self._made[last + 1 - len(hidden) : last + 1] = after
        return hidden

    def run(self, tokens: Sequence[int] | Tensor, features: Tensor, rows: HeadRows) -> tuple[Tensor, Tensor]:
        """Run over tokens and the features before them; return rows for `logits` and the features after them."""
        hidden = self.step(self.embed(tokens), features, rows)
        return hidden, self.next_features(hidden)

    def _level(self, tokens: Sequence[int], start: int, layout: Layout) -> Tensor:
        """Run one level of a tree: scratch row r has position start + r, and attends to the text and its own path."""
        if not layout.scratch_row:
            self._nodes, self._path = [], {}
        rows = len(tokens)
        seen = torch.zeros(rows, start + layout.scratch_row + rows, dtype=torch.bool)
        seen[:, :start] = True
        before = []
        for row, (depth, above) in enumerate(zip(layout.depths, layout.ancestors, strict=True)):
            self._path |= dict(enumerate(above, depth - len(above)))
            path = [self._path[place] for place in range(1, depth)]
            self._path[depth] = layout.scratch_row + row
            seen[row, [start + node for node in (*path, layout.scratch_row + row)]] = True
            before.append(self._nodes[path[-1]] if path else self._made[start])
        positions = torch.tensor([start + depth - 1 for depth in layout.depths])
        at = nodes(start + layout.scratch_row, positions.to(self._made.device), seen.to(self._made.device))
        hidden, after = self.run(tokens, torch.stack(before), at)
        self._nodes += after
        return hidden

    def entries(self) -> CacheEntries:
        return CacheEntries([part for layer in self._layers for part in layer.entries], shift=1)

    def memory(self) -> int:
        return super().memory() + sum(layer.memory() for layer in self._layers) + self._made.nbytes
