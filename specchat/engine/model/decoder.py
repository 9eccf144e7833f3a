"""The base of the native decoders on the processor: compiled, and the reference."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.model.aux_states import AuxHiddenStates
from specchat.engine.model.cache import KVCache
from specchat.engine.model.copies import CacheEntries, CopiedCache, Tail
from specchat.engine.model.mutual import read_picture, stretches
from specchat.engine.model.passes import NOTHING, ChainParameters, PassRows, Skip
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import Layout
from specchat.engine.pictures.rows import PictureRows
from specchat.engine.protocol.picture_ids import FIRST
from specchat.engine.weights.config import ModelConfig


class CachedDecoder(CopiedCache):
    """A loaded model on the processor with its KV cache; subclasses run the passes."""

    config: ModelConfig
    context: int
    cache: KVCache
    compiled: ClassVar[bool] = False
    """True where compiled functions run the model."""
    device: ClassVar[torch.device] = torch.device("cpu")
    aux_states: AuxHiddenStates | None = None
    """Recorded auxiliary hidden states; None before `record_states`."""
    pictures: PictureRows | None = None
    """None for a model that reads no pictures: their tokens have the embedding of its last token."""

    def embed(self, tokens: Sequence[int] | Tensor, normed: bool = True) -> Tensor:
        """Input of the first layer: float32 [len(tokens), hidden]; without `normed` before any norm of embeddings."""
        embedded = self._embed(tokens, normed)
        return embedded if self.pictures is None else self.pictures.put(embedded, tokens)

    @abstractmethod
    def _embed(self, tokens: Sequence[int] | Tensor, normed: bool) -> Tensor:
        """`embed` without pictures."""

    @abstractmethod
    def turn(self, first: int, places: Tensor) -> None:
        """Let the entries from `first` on turn by `places`, float32 [entries, width / 2], one for each rotation."""

    @abstractmethod
    def run_layers(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        """Run consecutive layers, writing their KV entries.

        Args:
            x: float32 [rows, hidden] before them, at most PREFILL_ROWS; it is not changed.
            skip: see `forward`. Attention whose KV entries other layers share is never skipped.

        Returns:
            float32 [rows, hidden], bit for bit those of a pass over all layers at this place.
        """

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Write the KV entries of `tokens` from position `start` on; return their hidden states.

        They are PREFILL_ROWS at most, or a picture. Earlier KV entries from `start` on are void, and so are those after
        the written ones. With `layout` the tokens are nodes of a tree: `keep` then copies one path of it to the cache.

        Returns:
            float32 [len(tokens), hidden], before the final norm. Row r is bit for bit what it would be alone.
        """
        found, layers = [], range(self.config.layers)
        for part, mutual in stretches(tokens, self.pictures):
            x, rows = self.embed(tokens[part]), PassRows(tokens[part], start + part.start, layout)
            read = read_picture(self, x, rows, skip) if mutual else self.run_and_record(x, layers, rows, skip)
            found.append(read)
        return found[0] if len(found) == 1 else torch.cat(found)

    def run_and_record(self, x: Tensor, layers: range, rows: PassRows, skip: Skip = NOTHING) -> Tensor:
        """Run `run_layers`, and record the auxiliary hidden states on the way, `x` included."""
        done, recorded = layers.start, () if self.aux_states is None or skip != NOTHING else self.aux_states.layers
        deep = self._deep(rows.tokens)
        for layer in sorted({*recorded, *range(1, deep + 1)}):
            if not layers.start <= layer <= layers.stop:
                continue
            x = self.run_layers(x, range(done, layer), rows, skip)
            if layers.start < layer <= deep and self.pictures is not None:
                x = self.pictures.add(x, rows.tokens, layer)
            done = layer
            if self.aux_states is not None and layer in recorded:
                self.aux_states.put(layer, x, rows.start, rows.layout)
        return self.run_layers(x, range(done, layers.stop), rows, skip)

    def _deep(self, tokens: Sequence[int]) -> int:
        """Number of first layers after which pictures among `tokens` add rows."""
        return self.pictures.deep if self.pictures is not None and max(tokens) >= FIRST else 0

    def record_states(self, layers: Sequence[int]) -> AuxHiddenStates:
        """Record the hidden states after these numbers of layers for all later tokens; 0: the embeddings."""
        kept = () if self.aux_states is None else self.aux_states.layers
        self.aux_states = AuxHiddenStates([*kept, *layers], self.config.hidden, self.context)
        return self.aux_states

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """Recorded hidden states after `layer` layers at positions first, ..., last - 1; see `AuxHiddenStates.at`."""
        assert self.aux_states is not None
        return self.aux_states.at(layer, first, last)

    def kv_entries(self, layer: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer at positions first, ..., last - 1: float32 [kv_heads, last - first, head_dim]."""
        return self.cache.read(layer, first, last)

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Copy the KV entries of `rows`, a path of a tree, to the cache from position `start` on."""
        self._keep_entries(rows, start)
        if self.aux_states is not None:
            self.aux_states.keep(rows, start)

    @abstractmethod
    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        """Copy keys and values of these rows of the tree KV scratch."""

    @abstractmethod
    def final_norm(self, hidden: Tensor) -> Tensor:
        """Final norm alone: float32 [rows, hidden]."""

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Head alone: float32 [rows, hidden] -> float32 [rows, vocab]; its rounding may differ from `logits`."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: float32 [rows, hidden] -> float32 [rows, vocab]."""

    def logits_after(self, tokens: Sequence[int], start: int, layout: Layout | None = None) -> Tensor:
        """`logits` of `forward`."""
        return self.logits(self.forward(tokens, start, layout=layout))

    def draft_chain(
        self, tokens: Sequence[int], start: int, chain: ChainParameters, skip: Skip
    ) -> list[tuple[int, float]]:
        """Draft a chain in one call after `tokens`, which run from position `start` on as in `forward`.

        Returns:
            tokens and their probabilities; none where the model does not support it, or its scores are not numbers.
        """
        del tokens, start, chain, skip
        return []

    @property
    def embedding_product(self) -> NDArray[Any] | None:
        """The embeddings, PRODUCT [1] (`cpu/primitives/records.py`); None where they are not those of a table."""
        return None

    @property
    def vocab(self) -> int:
        """Columns of the logits."""
        return self.config.vocab

    @property
    def block(self) -> int:
        """Limit of the tokens in one `write`."""
        return PREFILL_ROWS

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Write the KV entries of `tokens` from position `start` on."""
        self.forward(tokens, start)

    def reusable(self, length: int, _: int) -> int:
        """The most tokens, up to `length`, after which a text may go on from what the cache holds."""
        return self.cache.reusable(length)

    def entries(self) -> CacheEntries:
        return CacheEntries([*self.cache.entries, *([] if self.aux_states is None else [self.aux_states.positions])])

    def tail(self, held: int) -> Tail | None:
        return self.cache.tail(held)

    def reach(self, length: int, held: int, tail: Tail | None) -> int:
        return self.cache.reusable(length, None if tail is None else self.cache.marks(tail))

    def resume(self, token_ids: Sequence[int], held: int, tail: Tail | None) -> None:
        if tail is not None:
            self.cache.resume(held, tail)

    @property
    def recurrent(self) -> bool:
        """True where a text that is rolled back far needs a checkpoint."""
        return bool(self.config.recipe.recurrent)

    def checkpoint(self) -> None:
        """Let texts go on from where the last pass began, even if they are rolled back there much later."""
        self.cache.checkpoint()

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at position `start`."""
        return self.logits_after([token], start)[0]

    def likeliest(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """Likeliest token after each of `tokens`, from position `start` on, without `skip`; the cache is restored."""
        put_back = self.cache.saved(start, start + len(tokens))
        try:
            likeliest: list[int] = self.logits(self.forward(tokens, start, skip)).argmax(-1).tolist()
        finally:
            put_back()
        return likeliest

    @abstractmethod
    def memory(self) -> int:
        """Bytes of weights, cache and recorded hidden states; a table used as embeddings and head may count twice."""

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.config.parameters()
