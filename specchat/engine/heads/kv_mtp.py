"""Layers that draft from the target's own KV entries (Gemma 4's assistants, Gemma team 2026).

With e the target's embedding of the last token and h its last hidden state after the final norm, all at one position,

    x = layers(W [e, h])      each layer attends to the entries of the target's last layer of its kind
    scores = V norm(x)

For a further token h is U norm(x), at the same position over the same entries. A head of a small target scores the
tokens of a few centroids alone.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.kv_mtp_settings import kv_mtp
from specchat.engine.heads.target import DraftHead, Target
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.rope import tables
from specchat.engine.model.tree_layout import Layout
from specchat.engine.recipe import Attention, Gated, Matrix
from specchat.engine.reference.layer import layer
from specchat.engine.reference.ops import Attended, Context, norm
from specchat.engine.weights.weights import Weights

TABLE, ORDER = "model.embed_tokens", "masked_embedding.token_ordering"


class KvMtpHead(DraftHead):
    """The layers as a head. Keys: "pre_projection.weight", "post_projection.weight", "model.*" as in a model of the
    target's family, but for keys and values; "masked_embedding.centroids.weight" and ".token_ordering" if any."""

    def __init__(self, files: HeadFiles, target: CachedModel[Target]) -> None:
        """Read the weights.

        Raises:
            ModelError: settings or weights missing, damaged, unknown, or for another target.
        """
        model = target.model
        given = kv_mtp(files, model.config, "kv-mtp")
        recipe, known = given.shape.recipe, given.keys
        with Weights(files, model.device) as weights:
            super().__init__(target, given.recipe, weights.count())
            tensors, hidden = self.tensors, recipe.hidden
            self._before = tensors.read(weights, Matrix(("pre_projection",), (hidden,), 2 * model.config.hidden))
            self._after = tensors.read(weights, Matrix(("post_projection",), (model.config.hidden,), hidden))
            self._layers = [tensors.read_layer(weights, one) for one in given.recipe.layers]
            self._norm = tensors.read(weights, recipe.norm)
            self._head = Matrix((TABLE,), (recipe.vocab,), hidden)
            self._centroids: Matrix | None = None
            if known.use_ordered_embeddings:
                self._top = known.centroid_intermediate_top_k
                self._rows = tensors.table(weights, f"{TABLE}.weight", recipe.vocab, hidden)
                of_centroids = Matrix(("masked_embedding.centroids",), (known.num_centroids,), hidden)
                self._centroids = tensors.read(weights, of_centroids)
                self._order = _order(weights, recipe.vocab).view(known.num_centroids, -1)
            else:
                tensors.read(weights, self._head)
        turns = {rope: tables(rope, rope.width, model.context + 1) for rope in recipe.ropes if rope}
        self._turns = {rope: [table.to(model.device) for table in pair] for rope, pair in turns.items()}
        self._known = torch.empty(0)
        self._entries: list[tuple[Tensor, Tensor]] = []
        """KV entries of the text that each layer attends to."""
        self._states: list[Tensor] = []
        """h of each token of the draft."""
        model.record_states((model.config.layers,))

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Nothing: the target's own entries are read."""

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Return the row that predicts the token after the last one, float32 [1, hidden]."""
        model, known = self.target.model, len(self.target.tokens)
        place = start + len(tokens) - 1 - known
        if not place:
            self._states = [model.final_norm(model.states(model.config.layers, known - 1, known))]
            self._known = torch.tensor([known], device=model.device)
            self._entries = [self._of_text(one.attention, known) for one in self._layers]
        x, following = self.run(tokens[-1:], self._states[place], self._known, self._entries)
        self._states[place + 1 :] = [following]
        return x

    @property
    def capturable(self) -> bool:
        """True for layers without experts: captured passes here have no kernels for them."""
        return all(isinstance(one.feed, Gated) for one in self._layers)

    @property
    def read_layers(self) -> list[int]:
        """The target's layer whose KV entries each layer attends to."""
        return [one.attention.share for one in self._layers if one.attention.share is not None]

    def run(
        self,
        token: Sequence[int] | Tensor,
        state: Tensor,
        known: Tensor,
        entries: Sequence[tuple[Tensor, Tensor]],
        attend: Attended | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the row after a token and the next state h.

        Args:
            token: int [1], `state` its h.
            known: int64 [1], tokens of the text, on the device.
            entries: KV entries for each layer, as `attend` takes them; without it those attended to.
        """
        x = self.tensors.product(torch.cat([self.target.model.embed(token), state], -1), self._before)
        for of, held in zip(self._layers, entries, strict=True):
            rotation = None
            if (rope := of.attention.rope) is not None:
                cos, sin = (table.index_select(0, known) for table in self._turns[rope])
                rotation = cos, sin
            x = layer(of, x, self.tensors, Context(rotation, partial(_same, held), attend=attend))
        x = norm(self._norm, x, self.tensors)
        return x, self.tensors.product(x, self._after)

    def _of_text(self, of: Attention, known: int) -> tuple[Tensor, Tensor]:
        """KV entries that a layer attends to, from the position after `known` tokens."""
        assert of.share is not None
        # The last token's own entry is not there yet, and its window is counted from the one before.
        first = max(0, known - 1 - of.window) if of.window else 0
        return self.target.model.kv_entries(of.share, first, known)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        if self._centroids is None:
            return self.tensors.product(hidden, self._head)
        whole = hidden.new_full((len(hidden), self.vocab), float("-inf"))
        best = self.tensors.product(hidden, self._centroids).topk(self._top).indices
        for row, chosen in enumerate(best):
            tokens = self._order.index_select(0, chosen).flatten()
            whole[row].index_copy_(0, tokens, self._rows.index_select(0, tokens).float() @ hidden[row])
        return whole


def _same(entries: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return entries


def over_rings(known: Tensor) -> Attended:
    """Attention of one row after `known` int64 [1] tokens over all that the target's cache holds: a ring where its
    layer has a window. Keys and values are as they are stored."""

    def attend(of: Attention, query: Tensor, keys: Tensor, values: Tensor, _: Tensor | None) -> Tensor:
        places = torch.arange(keys.shape[1], device=known.device)
        # The text's last position in each place of the ring; what a pass wrote after the text stands further back.
        positions = known - 1 - torch.remainder(known - 1 - places, keys.shape[1])
        seen = positions >= (torch.clamp(known - 1 - of.window, min=0) if of.window else 0)
        rows = query.view(of.kv_heads, -1, of.head_dim).to(keys.dtype)
        scores = of.scale * (rows @ keys.transpose(-1, -2)).float()
        weights = scores.where(seen, float("-inf")).softmax(-1)
        return (weights.to(values.dtype) @ values).float().view_as(query)

    return attend


def _order(weights: Weights, vocab: int) -> Tensor:
    """The tokens in the order of their centroids, int64 [vocab].

    Raises:
        ModelError: they are missing, or not each token once.
    """
    found = weights.integers(ORDER, vocab)
    if not torch.equal(found.sort().values, torch.arange(vocab, device=found.device)):
        raise ModelError(f"{weights.folder}: tensor {ORDER} does not hold each of {vocab} tokens once.")
    return found
