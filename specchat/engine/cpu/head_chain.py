"""An EAGLE head's chain in one go: `cpu/chain.py` with features beside the tokens."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.chain import Chains
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.passes import ENTRIES
from specchat.engine.cpu.products import PANELS, kernels_of
from specchat.engine.cpu.together import LINE
from specchat.engine.model.chain_parameters import ChainParameters
from specchat.engine.model.rows import TILE
from specchat.engine.model.vectors import FEW, LANES


class HeadChain:
    """A head of one layer that proposes all tokens, with the embeddings of a compiled target."""

    def __init__(
        self,
        of_layers: Callable[[int], tuple[Any, ...]],
        embed: NDArray[Any],
        embed_scale: float,
        norms: tuple[Tensor, Tensor, Tensor],
        eps: float,
        scoring: Tensor,
        made: Tensor,
        onto_normed: bool,
    ) -> None:
        """Pack what makes scores.

        Args:
            of_layers: of the head's `CompiledLayer`.
            embed: the target's packed embeddings, which are multiplied by `embed_scale`.
            norms: of tokens, of features, and before the scores: float32 [hidden] each.
            scoring: float32 [vocab, hidden].
            made: float32 [slots, hidden], the features that the head made, which is filled.
            onto_normed: whether the layer adds to the normed features.
        """
        vocab, hidden = scoring.shape
        self._packed = Packed()
        self._packed.add(scoring)
        table = self._packed.table
        row = table[0]
        own = np.zeros((1, 2, 1, max(hidden, FEW * LANES)), np.float32)
        logits = np.zeros((1, LANES * int(row[PANELS])), np.float32)
        last = norms[2].numpy()
        of_head = (row, kernels_of(table), self._packed.extras, last, eps, logits, own, np.zeros(2 * LINE, np.int64))
        inputs = np.zeros((TILE, 2 * hidden), np.float32)
        self._features = np.zeros((TILE, hidden), np.float32)
        both = np.stack([norm.numpy() for norm in norms[:2]])
        of_features = (inputs, both, made.numpy(), onto_normed, eps)
        said = np.zeros(len(made) + 1, np.int64)
        of = of_layers(inputs.ctypes.data)
        self._chains = Chains(ENTRIES, embed, vocab, embed_scale, said, self._features, of, of_head, of_features)

    def drafted(
        self, tokens: Sequence[int], start: int, features: Tensor, chain: ChainParameters
    ) -> list[tuple[int, float]]:
        """As `CachedDecoder.drafted`, for up to TILE tokens with the features float32 [rows, hidden] before them."""
        self._features[: len(tokens)] = features.numpy()
        return self._chains.drafted(tokens, start, chain)

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()
