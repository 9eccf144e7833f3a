"""Draft passes of a trained head that continues from features, for captured graphs."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.device.model import DeviceModel
from specchat.engine.kernels.verify_state import VerifyState


class ChainHead(Protocol):
    """The part of `heads.feature.FeatureHead` used here: shapes are fixed, and nothing is read back."""

    vocab: int

    @property
    def looked_at(self) -> Sequence[int]: ...

    def feature(self, states: Tensor) -> Tensor: ...
    def guessed(self, slots: Tensor) -> Tensor: ...
    def embedded(self, tokens: Tensor) -> Tensor: ...
    def chained(self, embedded: Tensor, features: Tensor, slots: Tensor) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


class HeadChain:
    """Chain drafting by a head: over the last two tokens of the text, then one draft token at a time."""

    def __init__(self, head: ChainHead, target: DeviceModel, state: VerifyState, tail: Tensor) -> None:
        """Initialise; `tail` int32 [>= 2] holds the last two tokens of the text."""
        self.vocab = head.vocab
        self._head, self._target, self._state, self._tail = head, target, state, tail
        self._two = torch.tensor([-2, -1], device=state.fed.device)
        self._last: Tensor | None = None
        """Last row of a pass, float32 [1, hidden], for its logits."""

    def run(self, node: int) -> None:
        """Run over node 0 and the token before it, or over the device's current draft token."""
        state, head = self._state, self._head
        if node == 0:
            # A token's KV entry is one position before it, with the target's own feature there.
            tokens, slots = self._tail[:2], state.length + self._two
            states = [self._target.states_at(layer, slots) for layer in head.looked_at]
            features = head.feature(torch.cat(states, -1))
        else:
            tokens = torch.index_select(state.fed, 0, state.node)
            slots = (state.length + state.node - 1).to(self._two.dtype)
            features = head.guessed(slots)
        hidden = head.chained(head.embedded(tokens), features, slots)[-1:]
        if self._last is None:
            self._last = torch.zeros_like(hidden)
        self._last.copy_(hidden)

    def logits(self) -> Tensor:
        """Logits of the last row: float32 [1, >= vocab]."""
        assert self._last is not None
        return self._head.logits(self._last)
