"""Picks a drafted token on the device for a model that the host asks: the token goes there, and not all scores."""

import torch
from torch import Tensor

from specchat.engine.device.graphs import Graphs
from specchat.engine.kernels.choose import choose
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState


class Picker:
    """Picks what follows a node of a chain, as captured passes do."""

    def __init__(self, state: VerifyState, drawn: Scored, vocab: int, width: int, graphs: Graphs) -> None:
        """`vocab` tokens may be chosen, logits have `width` columns at most; a row of `drawn` is used up."""
        self._state, self._drawn, self._vocab, self._graphs = state, drawn, vocab, graphs
        # Kernels are compiled once for aligned pointers, and a row of somebody's logits may start anywhere.
        self._logits = torch.zeros(1, width, device=state.fed.device)

    def __call__(self, logits: Tensor, node: int) -> tuple[int, float]:
        """The token after `node`, and its probability, from logits float32 [1, vocab]; waits for the device."""
        columns = min(self._vocab, logits.shape[1])
        self._logits[:, :columns].copy_(logits[:, :columns])
        self._state.node.fill_(node)

        def pick() -> None:
            process(self._logits, self._state, 0, self._drawn, 1, columns)
            choose(self._drawn, self._state, 0, 1, self._state.fed[1:])

        self._graphs.eagerly(pick)
        return int(self._state.fed[node + 1].item()), self._state.sure[node].item()

    def memory(self) -> int:
        """Bytes held."""
        return self._logits.nbytes
