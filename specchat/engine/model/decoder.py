"""The Llama-family decoder in plain torch: Llama, Mistral, Qwen2, Qwen3, MiMo and what shares their shape."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.model.attention import causal_masks, may_share
from specchat.engine.model.cache import KVCache
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.going import Going
from specchat.engine.model.layer_weights import Product, read
from specchat.engine.model.layers import blocks, scripted
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.padding import joined
from specchat.engine.model.parts import EMBEDDING, HEAD, LAST_NORM
from specchat.engine.model.rope import tables
from specchat.engine.model.rows import PREFILL_ROWS, Linear
from specchat.engine.model.runs import STASH_ROWS, Runs, chain
from specchat.engine.model.taps import Taps
from specchat.engine.model.weights import Weights
from specchat.engine.pair import Quant


@dataclass(frozen=True)
class Skip:
    """Sub-layers left out of a forward pass (SWIFT): indices of layers whose attention or MLP is skipped."""

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()


NOTHING = Skip()


class CachedDecoder(ABC):
    """What decoders of our own on the processor share: all that follows from a pass and its logits."""

    config: ModelConfig
    context: int
    cache: KVCache
    compiled: ClassVar[bool] = False
    """Whether compiled functions run it, so that they can here."""
    device: ClassVar[torch.device] = torch.device("cpu")
    taps: Taps | None = None
    """The hidden states that are kept of a text, if any are."""

    @abstractmethod
    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """What the first layer is given: float32 [len(tokens), hidden]."""

    @abstractmethod
    def through(
        self, x: Tensor, first: int, last: int, start: int, runs: Runs | None = None, skip: Skip = NOTHING
    ) -> Tensor:
        """Take hidden states through layers first, ..., last - 1, writing these layers' entries from slot `start` on.

        Args:
            x: float32 [rows, hidden], at most PREFILL_ROWS, after `first` layers; it stays as it is.
            runs, skip: as for `forward`.

        Returns:
            float32 [rows, hidden], bit for bit what a pass over all layers has after `last` of them.
        """

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Runs | None = None) -> Tensor:
        """Write the entries of `tokens` (at most PREFILL_ROWS) to the cache from slot `start` on; their hidden states.

        Entries from `start` on count for nothing before, and those after the written ones for nothing afterwards. With
        `runs` the tokens are nodes of a tree: `keep` then puts one path of it into the cache.

        Returns:
            float32 [len(tokens), hidden], before the final norm. Row r is bit for bit what it would be alone.
        """
        return self.onward(self.embedded(tokens), 0, self.config.layers, start, runs, skip)

    def onward(
        self, x: Tensor, first: int, last: int, start: int, runs: Runs | None = None, skip: Skip = NOTHING
    ) -> Tensor:
        """As `through`, and keep what is tapped on the way, `x` too."""
        done = first
        if self.taps is not None and skip == NOTHING:
            for layer in self.taps.layers:
                if first <= layer <= last:
                    x, done = self.through(x, done, layer, start, runs), layer
                    self.taps.put(layer, x, start, runs)
        return self.through(x, done, last, start, runs, skip)

    def tap(self, layers: Sequence[int]) -> Taps:
        """Keep the hidden states after so many layers too, 0 being the embeddings, of all tokens from here on."""
        kept = () if self.taps is None else self.taps.layers
        self.taps = Taps([*kept, *layers], self.config.hidden, self.context)
        return self.taps

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """The hidden states after `layer` layers, which are tapped, in slots first, ..., last - 1; see `Taps.at`."""
        assert self.taps is not None
        return self.taps.at(layer, first, last)

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Put the entries of these rows of a tree, a path of it, into the cache from slot `start` on."""
        self._keep_entries(rows, start)
        if self.taps is not None:
            self.taps.keep(rows, start)

    @abstractmethod
    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        """Copy keys and values of these rows of the stash."""

    @abstractmethod
    def normed(self, hidden: Tensor) -> Tensor:
        """Final norm alone: float32 [rows, hidden]."""

    @abstractmethod
    def projected(self, hidden: Tensor) -> Tensor:
        """Head alone, as `logits` without the norm; it may be rounded otherwise."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: float32 [rows, hidden] -> float32 [rows, vocab]."""

    def scored(self, tokens: Sequence[int], start: int, runs: Runs | None = None) -> Tensor:
        """`logits` of what `forward` makes of `tokens`."""
        return self.logits(self.forward(tokens, start, runs=runs))

    def drafted(self, tokens: Sequence[int], start: int, going: Going, skip: Skip) -> list[tuple[int, float]]:
        """A chain drafted in one go after `tokens`, which go through from slot `start` on as in `forward`.

        Returns:
            tokens and their probabilities; none where this is not for this model, or its scores are no numbers.
        """
        del tokens, start, going, skip
        return []

    @property
    def packed_embeddings(self) -> NDArray[Any] | None:
        """float16, bfloat16 in int16 or float32 [panels, hidden, LANES]; None where torch looks tokens up."""
        return None

    @property
    def vocab(self) -> int:
        """Columns of the logits."""
        return self.config.vocab

    @property
    def block(self) -> int:
        """Most tokens of one `write`."""
        return PREFILL_ROWS

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put the entries of `tokens` into the cache from slot `start` on."""
        self.forward(tokens, start)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at slot `start`."""
        return self.scored([token], start)[0]

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """The likeliest token after each of `tokens` at slots start .. without `skip`; the cache stays as it is."""
        held = [part.narrow(1, start, len(tokens)) for part in (*self.cache.keys, *self.cache.values)]
        kept = [part.clone() for part in held]
        try:
            likeliest: list[int] = self.logits(self.forward(tokens, start, skip)).argmax(-1).tolist()
        finally:
            for part, before in zip(held, kept, strict=True):
                part.copy_(before)
        return likeliest

    @abstractmethod
    def memory(self) -> int:
        """Bytes of weights, cache and kept hidden states; a table that is looked up and multiplied may count twice."""

    def parameters(self) -> int:
        """Number of weights, a tied head counted once."""
        return self.config.parameters()


class Decoder(CachedDecoder):
    """A loaded model with its cache. Not thread-safe: one sequence at a time."""

    def __init__(
        self, checkpoint: Checkpoint, context: int | None = None, quant: Quant | None = None, drafting: bool = False
    ) -> None:
        """Read the weights; `context` caps the cache, in tokens; `quant` quantises what is not already
        part of a quantised checkpoint.

        A model that only drafts (`drafting`) is faster, and its rows may depend on each other.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        self.config = config = checkpoint.config
        self.context = min(config.longest, context or config.context)
        with Weights(checkpoint) as weights:
            self.embed = weights.get(f"{EMBEDDING}.weight", config.vocab, config.hidden)
            asked = quant if weights.quant is None else None
            self.layers = [read(weights, config, i, asked, drafting) for i in range(config.layers)]
            self.norm = RMSNorm(weights.get(f"{LAST_NORM}.weight", config.hidden), config.norm_eps)
            head = self.embed if config.tied else weights.get(f"{HEAD}.weight", config.vocab, config.hidden)
            self._tokens = None if checkpoint.drafts is None else torch.tensor(checkpoint.drafts)
            self.head = Linear(head if self._tokens is None else head[self._tokens], drafting=drafting)
        self.cache = KVCache(config.recipe, self.context)
        self._stashes: list[Tensor] = []
        self._blocks, self._fixed = self._prepared()
        self._padding = joined([p.padding for p in self._products()[1:]])

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        # A target may choose a padding token that a draft has no row for.
        return embedding(torch.tensor([min(token, self.config.vocab - 1) for token in tokens]), self.embed)

    @torch.inference_mode()
    def through(
        self, x: Tensor, first: int, last: int, start: int, runs: Runs | None = None, skip: Skip = NOTHING
    ) -> Tensor:
        rows = len(x)
        runs, stash = (chain(rows), []) if runs is None else (runs, self._stash())
        if start + max(depth + length for depth, length in zip(runs.depths, runs.lengths, strict=True)) > self.context:
            raise ValueError(f"{rows} tokens do not fit after {start} of {self.context}")
        extra = self._padding[rows] - rows
        return self._blocks(
            torch.cat([x, x[-1:].expand(extra, -1)]) if extra else x.clone(),
            rows,
            start,
            *self._fixed,
            [first <= i < last and i not in skip.attention for i in range(self.config.layers)],
            [first <= i < last and i not in skip.mlp for i in range(self.config.layers)],
            runs.depths,
            runs.lengths,
            runs.before,
            stash,
            runs.stashed,
        )

    def _keep_entries(self, rows: Sequence[int], start: int) -> None:
        for kept, cached in zip(self._stash(), (self.cache.keys, self.cache.values), strict=True):
            for into, of in zip(cached, kept, strict=True):
                into.narrow(1, start, len(rows)).copy_(of[list(rows)].transpose(0, 1))

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Final norm and head: float32 [rows, hidden] -> float32 [rows, vocab], -inf outside a draft vocabulary."""
        return self.projected(self.norm(hidden))

    def normed(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)

    @torch.inference_mode()
    def projected(self, hidden: Tensor) -> Tensor:
        logits = self.head(hidden)
        if self._tokens is None:
            return logits
        whole = logits.new_full((logits.shape[0], self.config.vocab), float("-inf"))
        return whole.index_copy_(1, self._tokens, logits)

    def arrangements(self) -> set[str]:
        """Which arrangements of the products are in use; see `rows` and `quantised`."""
        return {p.arrangement for p in self._products()}

    @property
    def threads(self) -> int:
        """The most that work on it."""
        return torch.get_num_threads()

    @property
    def exactness(self) -> str:
        """Why rows come out alike whatever goes with them, in words."""
        return "row-invariant products: " + ", ".join(sorted(self.arrangements()))

    def memory(self) -> int:
        products = sum(p.memory() for p in self._products())
        norms = 4 * self.config.hidden * (2 * self.config.layers + 1)
        tapped = 0 if self.taps is None else self.taps.memory()
        return products + norms + 4 * self.embed.numel() + self.cache.memory() + tapped

    def _stash(self) -> list[Tensor]:
        """Keys and values of a tree's nodes: float32 [layers, STASH_ROWS, kv_heads, head_dim], made when needed."""
        if not self._stashes:
            c = self.config
            shape = (c.layers, STASH_ROWS, c.kv_heads, c.head_dim)
            self._stashes = [torch.zeros(shape), torch.zeros(shape)]
        return self._stashes

    def _prepared(self) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
        """`blocks`, by TorchScript where it can make all of the products, and what it takes that never changes."""
        c = self.config
        products: list[Any] = self._products()[1:]
        biases: list[Tensor | None] = [None] * len(products)
        run: Callable[..., Tensor] = blocks
        operands = [p.operands for p in products if isinstance(p, Linear) and p.operands is not None]
        if len(operands) == len(products) and (fast := scripted()) is not None:
            run, products, biases = fast, [weight for weight, _ in operands], [bias for _, bias in operands]
        norms = [norm.weight for layer in self.layers for norm in (layer.attention_norm, layer.mlp_norm)]
        of_heads = [norm for layer in self.layers for norm in (layer.query_norm, layer.key_norm) if norm is not None]
        return run, (
            causal_masks(self.cache.capacity),
            may_share(c.kv_heads, c.heads // c.kv_heads, c.head_dim),
            self.cache.keys,
            self.cache.values,
            *tables(c.rope, c.head_dim, self.cache.capacity),
            c.heads,
            c.kv_heads,
            norms,
            self.norm.eps,
            [norm.weight for norm in of_heads],
            of_heads[0].eps if of_heads else self.norm.eps,
            products,
            biases,
        )

    def _products(self) -> list[Product]:
        return [self.head, *(p for layer in self.layers for p in layer.products)]
