"""Draft passes of trained heads that continue from features, or from the target's KV entries, for captured graphs."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.device.model import DeviceModel
from specchat.engine.gpu_shapes import VERIFY_ROWS
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


class KvHead(Protocol):
    """The part of `heads.kv_mtp.KvMtpHead` used here, likewise."""

    vocab: int

    def chained(
        self, token: Tensor, state: Tensor, entries: Callable[[int], tuple[Tensor, Tensor]], known: Tensor
    ) -> tuple[Tensor, Tensor]: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


class CapturedHead(Protocol):
    """Captured passes of a head."""

    vocab: int

    def run(self, node: int) -> None:
        """Run over node 0 of a step, or over the device's current draft token."""
        ...

    def logits(self) -> Tensor:
        """Logits after it: float32 [1, >= vocab]."""
        ...


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


class KvChain:
    """Chain drafting by a head that attends to the target's own KV entries, at one position for all tokens."""

    def __init__(self, head: KvHead, target: DeviceModel, state: VerifyState, tail: Tensor) -> None:
        """Initialise as `HeadChain`."""
        self.vocab = head.vocab
        self._head, self._target, self._state, self._tail = head, target, state, tail
        # By node, so that a pass may run again: it does before it is captured.
        self._states = torch.zeros(VERIFY_ROWS, target.config.hidden, device=state.fed.device)
        """The state that goes with the token of each node."""
        self._last: Tensor | None = None
        """Row of the last pass, float32 [1, hidden], for its logits."""

    def run(self, node: int) -> None:
        """Run over node 0, or over the device's current draft token."""
        state, target = self._state, self._target
        known, at = state.length.long(), state.node.long()
        if node == 0:
            token, before = self._tail[1:2], target.normed(target.states_at(target.config.layers, known - 1))
        else:
            token, before = torch.index_select(state.fed, 0, state.node), self._states.index_select(0, at)
        hidden, following = self._head.chained(token, before, target.whole_entries, known)
        self._states.index_copy_(0, at + 1, following)
        if self._last is None:
            self._last = torch.zeros_like(hidden)
        self._last.copy_(hidden)

    def logits(self) -> Tensor:
        """Logits of the row: float32 [1, >= vocab]."""
        assert self._last is not None
        return self._head.logits(self._last)
