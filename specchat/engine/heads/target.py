"""What heads see of a target, wherever it runs, and what they have in common. They make tensors on the same device."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.decoding.cached import CachedModel, Model
from specchat.engine.errors import ModelError
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.heads.tensors import HeadTensors, proposed
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.decoder import NOTHING, Skip
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import Layout
from specchat.engine.model.weights import Weights
from specchat.engine.recipe import Matrix


class Target(Model, Protocol):
    """A decoder of our own that keeps hidden states. All tensors are on `device`."""

    @property
    def config(self) -> ModelConfig:
        """Its shapes."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its states are."""
        ...

    @property
    def vocab(self) -> int:
        """Columns of its logits."""
        ...

    @property
    def compiled(self) -> bool:
        """Whether compiled functions run on the processor that it runs on."""
        ...

    @property
    def packed_embeddings(self) -> NDArray[Any] | None:
        """As `CachedDecoder.packed_embeddings`."""
        ...

    def record_states(self, layers: Sequence[int]) -> object:
        """Keep the hidden states after so many layers too, 0 being the embeddings, of all tokens from here on."""
        ...

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """Those after `layer` layers in slots first, ..., last - 1: float32 [last - first, hidden]."""
        ...

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """What the first layer is given: float32 [len(tokens), hidden]."""
        ...

    def normed(self, hidden: Tensor) -> Tensor:
        """Final norm alone: float32 [rows, hidden]."""
        ...

    def projected(self, hidden: Tensor) -> Tensor:
        """Head alone: float32 [rows, hidden] -> float32 [rows, vocab], which the next pass may overwrite.

        Rows are at most those of a step.
        """
        ...


class StandIn(ABC):
    """Heads as a model with a cache: what is handed to them are tokens, what they see are the target's hidden states.

    The hidden states of slots 0, ..., len(target.tokens) - 1 are the target's own; tokens after these are drafted ones.
    """

    block = PREFILL_ROWS

    def __init__(self, target: CachedModel[Target], recipe: HeadRecipe, parameters: int) -> None:
        """`parameters` is the number of weights."""
        self.target, self.recipe = target, recipe
        self._tensors = HeadTensors()
        self._parameters = parameters
        self.vocab, self.context = target.model.vocab, target.model.context

    @abstractmethod
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, runs: Layout | None = None) -> Tensor:
        """As `HostModel.forward`; trees come level by level (`runs.Levels`), and nothing is ever left out."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Scores float32 [rows, vocab] of rows that `forward` made last, -inf where there are none."""

    def memory(self) -> int:
        """Bytes held."""
        return self._tensors.memory()

    def parameters(self) -> int:
        """Number of weights."""
        return self._parameters

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Put the entries of `tokens` into the cache from slot `start` on."""
        self.forward(tokens, start)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Scores float32 [vocab] after `token` at slot `start`."""
        return self.logits(self.forward([token], start))[0]

    def guesses(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """Nobody asks heads to leave something out."""
        raise NotImplementedError

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Nothing is kept of a tree: what stays is read again, with the target's own states."""
        return


class Embedding:
    """The head's own embeddings, or the target's where it has none: `own` is None then."""

    def __init__(self, weights: Weights, tensors: HeadTensors, target: Target, hidden: int) -> None:
        """Read them.

        Raises:
            ModelError: they are of another shape.
        """
        name, self._target = "embed_tokens.weight", target
        self.own = tensors.table(weights, name, target.vocab, hidden) if name in weights else None
        if self.own is None and hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name} is missing, and the target's has another size.")

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """float32 [len(tokens), hidden]."""
        if self.own is None:
            return self._target.embedded(tokens)
        return embedding(torch.tensor(tokens, device=self.own.device), self.own).float()


class Scores:
    """The matrix of a drafting head that scores tokens: its own, or the target's where it has none."""

    def __init__(self, weights: Weights, tensors: HeadTensors, target: Target, proposes: int, hidden: int) -> None:
        """Read it, for so many tokens that the head `proposes`.

        Raises:
            ModelError: weights missing, damaged, of other shapes, or a map of tokens that leads nowhere.
        """
        name = "lm_head"
        self._target, self._tensors = target, tensors
        self._own: Matrix | None = None
        if f"{name}.weight" in weights:
            self._tokens = proposed(weights, proposes, target.vocab)
            self._own = Matrix((name,), (proposes,), hidden)
            tensors.read(weights, self._own)
        elif proposes != target.vocab or hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name}.weight is missing, and the target's has another size.")

    def __call__(self, hidden: Tensor) -> Tensor:
        """float32 [rows, hidden] -> float32 [rows, vocab], -inf for tokens that are not proposed."""
        if self._own is None:
            return self._target.projected(hidden)
        return self.spread(self._tensors.product(hidden, self._own), float("-inf"))

    def spread(self, few: Tensor, others: float) -> Tensor:
        """Values float32 [rows, proposed tokens] as float32 [rows, vocab], other tokens having `others`."""
        if self._own is None:
            return few
        whole = few.new_full((len(few), self._target.vocab), others)
        return whole.index_copy_(1, self._tokens, few)
