"""An EAGLE head's chain in one compiled call: `cpu/chain.py` with features beside the tokens."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.chain import Chains
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.passes import PASS_ADDRESSES
from specchat.engine.cpu.products import PANELS, kernels_of
from specchat.engine.cpu.together import LINE
from specchat.engine.memory.vectors import FEW, LANES
from specchat.engine.model.decoder import ChainParameters
from specchat.engine.model.rows import TILE


class HeadChain:
    """Drafter of chains: a head of one layer and the full vocabulary, with the embeddings of a compiled target."""

    def __init__(
        self,
        layer_args: Callable[[int], tuple[Any, ...]],
        embed: NDArray[Any],
        embed_scale: float,
        norms: tuple[Tensor, Tensor, Tensor],
        eps: float,
        scoring: Tensor,
        made: Tensor,
        onto_normed: bool,
    ) -> None:
        """Pack the head's output matrix.

        Args:
            layer_args: `CompiledLayer.layer_args` of the head's layer.
            embed: the target's packed embeddings, which are multiplied by `embed_scale`.
            norms: of tokens, of features, and before the output matrix: float32 [hidden] each.
            scoring: float32 [vocab, hidden].
            made: float32 [capacity, hidden], filled with the features that the head makes.
            onto_normed: True if the layer adds to the normed features.
        """
        vocab, hidden = scoring.shape
        self._packed = Packed()
        self._packed.add(scoring)
        table = self._packed.table
        row = table[0]
        own = np.zeros((1, 2, 1, max(hidden, FEW * LANES)), np.float32)
        logits = np.zeros((1, LANES * int(row[PANELS])), np.float32)
        last = norms[2].numpy()
        counters = np.zeros(2 * LINE, np.int64)
        head_args = (row, kernels_of(table), self._packed.extras, last, eps, 0.0, logits, own, counters)
        inputs = np.zeros((TILE, 2 * hidden), np.float32)
        self._features = np.zeros((TILE, hidden), np.float32)
        both = np.stack([norm.numpy() for norm in norms[:2]])
        feature_args = (inputs, both, made.numpy(), onto_normed, eps)
        token_ids = np.zeros(len(made) + 1, np.int64)
        args = layer_args(inputs.ctypes.data), head_args, feature_args
        self._chains = Chains(PASS_ADDRESSES, embed, vocab, embed_scale, token_ids, self._features, *args)

    def draft_chain(
        self, tokens: Sequence[int], start: int, features: Tensor, chain: ChainParameters
    ) -> list[tuple[int, float]]:
        """Draft a chain (`CachedDecoder.draft_chain`) after up to TILE tokens; `features` float32 [rows, hidden]."""
        self._features[: len(tokens)] = features.numpy()
        return self._chains.draft_chain(tokens, start, chain)

    def memory(self) -> int:
        """Bytes of weights."""
        return self._packed.memory()
