"""A head's view of its target, and the common base of heads. Tensors are on the target's device."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding

from specchat.engine.decoding.cached import CachedModel, Decoder, HostModel
from specchat.engine.errors import ModelError
from specchat.engine.heads.files import FoundHeads
from specchat.engine.heads.recipe import HeadRecipe
from specchat.engine.heads.tensors import HeadTensors, draft_vocabulary, scatter
from specchat.engine.model.norm import capped
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.model.tree_layout import Layout
from specchat.engine.recipe import Experts, Matrix
from specchat.engine.strategies import HEADS
from specchat.engine.strategy import resolved
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import read_dense_table
from specchat.engine.weights.weights import Weights


@runtime_checkable
class Target(Decoder, Protocol):
    """A decoder of our own that records hidden states. All tensors are on `device`."""

    @property
    def config(self) -> ModelConfig:
        """Shapes of the model."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of its hidden states."""
        ...

    @property
    def vocab(self) -> int:
        """Columns of its logits."""
        ...

    @property
    def compiled(self) -> bool:
        """True if compiled functions run on its processor."""
        ...

    @property
    def embedding_product(self) -> NDArray[Any] | None:
        """The embeddings, as `CachedDecoder.embedding_product`."""
        ...

    def record_states(self, layers: Sequence[int]) -> object:
        """Record hidden states after these layer counts, 0 being the embeddings, of all tokens from here on."""
        ...

    def states(self, layer: int, first: int, last: int) -> Tensor:
        """Hidden states after `layer` layers at positions first, ..., last - 1: float32 [last - first, hidden]."""
        ...

    def kv_entries(self, layer: int, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer at positions first, ..., last - 1: float32 [kv_heads, last - first, head_dim]."""
        ...

    def embed(self, tokens: Sequence[int] | Tensor, normed: bool = True) -> Tensor:
        """Input of the first layer: float32 [len(tokens), hidden]; without `normed` before any norm of embeddings."""
        ...

    def final_norm(self, hidden: Tensor) -> Tensor:
        """Apply the final norm: float32 [rows, hidden]."""
        ...

    def project(self, hidden: Tensor) -> Tensor:
        """Apply the output matrix: float32 [rows, hidden] -> float32 [rows, vocab], which the next pass may overwrite.

        Rows are at most those of a step.
        """
        ...


class DraftHead(ABC):
    """Heads as a cached model: they take tokens, and read the target's hidden states.

    Positions 0, ..., len(target.tokens) - 1 have the target's own hidden states. Later tokens are draft tokens.
    """

    block = PREFILL_ROWS

    def __init__(self, target: CachedModel[Target], recipe: HeadRecipe, parameters: int) -> None:
        """Initialise with the number of weights, `parameters`."""
        self.target, self.recipe = target, recipe
        self.tensors = HeadTensors()
        self._parameters = parameters
        self._held: dict[str, Tensor] = {}
        self.vocab, self.context = target.model.vocab, target.model.context

    @property
    def aux_layers(self) -> Sequence[int]:
        """Layer counts after which it reads the target's hidden states."""
        return self.recipe.aux_layers

    @property
    def capturable(self) -> bool:
        """True if every pass launches the same work, as a captured graph needs: experts only where they are stacked."""
        feeds = [layer.feed for layer in self.recipe.layers]
        return all(not isinstance(of, Experts) or self.tensors.stack(of.each.down) is not None for of in feeds)

    @abstractmethod
    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Run a pass, as `HostModel.forward`; trees come level by level, and `skip` is unused."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits float32 [rows, vocab] of rows of the last `forward`, -inf for tokens not proposed."""

    def memory(self) -> int:
        """Bytes held."""
        return self.tensors.memory() + sum(one.nbytes for one in self._held.values())

    def _keep(self, name: str, made: Tensor) -> Tensor:
        """Return `made`; on a GPU in memory that stays, as each place of a draft is a graph of its own."""
        if made.device.type == "cpu":
            return made
        if name not in self._held:
            self._held[name] = torch.empty_like(made)
        return self._held[name].copy_(made)

    def parameters(self) -> int:
        """Number of weights."""
        return self._parameters

    def write(self, tokens: Sequence[int], start: int) -> None:
        """Write the KV entries of `tokens` from position `start` on."""
        self.forward(tokens, start)

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at position `start`."""
        return self.logits(self.forward([token], start))[0]

    def likeliest(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        """Unsupported: heads have no layers to skip."""
        raise NotImplementedError

    def keep(self, rows: Sequence[int], start: int) -> None:
        """Keep nothing of a tree: accepted tokens are read again, with the target's own states."""
        return


def read_heads(found: FoundHeads, target: CachedModel[Target]) -> tuple[dict[str, CachedModel[HostModel]], FoundHeads]:
    """Read the weights of heads for `target`. Heads that fail to load are left out, with the reason."""
    models: dict[str, CachedModel[HostModel]] = {}
    unsupported: dict[str, str] = {}
    for head, files in found.files.items():
        try:
            models[head] = CachedModel(resolved(HEADS[head].reads)(files, target))
        except ModelError as error:
            unsupported[head] = error.message
    return models, found.without(unsupported)


class Embedding:
    """The head's own embeddings, or the target's; `own` is None for the target's."""

    def __init__(self, weights: Weights, tensors: HeadTensors, target: Target, hidden: int) -> None:
        """Read them.

        Raises:
            ModelError: they are of another shape.
        """
        name, self._target = "embed_tokens.weight", target
        self.own = tensors.table(weights, name, target.vocab, hidden) if name in weights else None
        if self.own is None and hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name} is missing, and the target's has another size.")

    def __call__(self, tokens: Sequence[int] | Tensor) -> Tensor:
        """Embeddings float32 [len(tokens), hidden]."""
        if self.own is None:
            # Such heads were trained on the rows of the table, which the processor looks up by numbers.
            if isinstance(tokens, Tensor) and tokens.device.type == "cpu":
                tokens = tokens.tolist()
            return self._target.embed(tokens, normed=False)
        known = torch.as_tensor(tokens, device=self.own.device).clamp(max=len(self.own) - 1)  # pictures have no row
        return embedding(known, self.own).float()


class FrequentScores:
    """The target's output matrix for a draft vocabulary alone (FR-Spec, Zhao et al. 2025)."""

    def __init__(self, checkpoint: Checkpoint, target: Target, tensors: HeadTensors) -> None:
        """Read the rows of `checkpoint.drafts`.

        Raises:
            ModelError: weights missing, damaged or of other shapes.
        """
        assert checkpoint.drafts is not None
        recipe, device = checkpoint.config.recipe, target.device
        tokens = torch.tensor(checkpoint.drafts)
        with Weights(checkpoint) as weights:
            rows = read_dense_table(weights, recipe.embed if recipe.tied else recipe.head)[tokens]
        self._tensors, self._vocab, self._tokens = tensors, target.vocab, tokens.to(device)
        rows = rows.to(device, torch.float32 if device.type == "cpu" else torch.bfloat16)
        self._rows = tensors.put(Matrix(("frequent",), (len(tokens),), recipe.hidden), rows)
        self._scale, self._cap = recipe.logit_scale, recipe.cap

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits: float32 [rows, hidden] -> float32 [rows, vocab], -inf for tokens not proposed."""
        few = capped(self._scale * self._tensors.product(hidden, self._rows), self._cap)
        return scatter(few, self._tokens, self._vocab)


class Scores:
    """Output matrix of a drafting head: its own, or the target's."""

    def __init__(self, weights: Weights, tensors: HeadTensors, target: Target, proposes: int, hidden: int) -> None:
        """Read the matrix, for a draft vocabulary of `proposes` tokens.

        Raises:
            ModelError: weights missing, damaged, of other shapes, or an invalid vocabulary map.
        """
        name = "lm_head"
        self._target, self._tensors = target, tensors
        self._own: Matrix | None = None
        if f"{name}.weight" in weights:
            self._tokens = draft_vocabulary(weights, proposes, target.vocab)
            self._own = Matrix((name,), (proposes,), hidden)
            tensors.read(weights, self._own)
        elif proposes != target.vocab or hidden != target.config.hidden:
            raise ModelError(f"{weights.folder}: tensor {name}.weight is missing, and the target's has another size.")

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits: float32 [rows, hidden] -> float32 [rows, vocab], -inf for tokens not proposed."""
        if self._own is None:
            return self._target.project(hidden)
        return self.scatter(self._tensors.product(hidden, self._own), float("-inf"))

    def scatter(self, few: Tensor, others: float) -> Tensor:
        """Scatter values float32 [rows, proposed tokens] into float32 [rows, vocab], filled with `others`."""
        if self._own is None:
            return few
        return scatter(few, self._tokens, self._target.vocab, others)
