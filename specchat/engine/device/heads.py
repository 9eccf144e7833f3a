"""Trained heads in captured graphs: chains, blocks drafted in one pass, and trees."""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from specchat.engine.decoding.draft import WIDTH
from specchat.engine.device.head_attention import HeadAttention, fits
from specchat.engine.device.head_experts import HeadExperts
from specchat.engine.device.model import DeviceModel
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.kv_mtp import KvMtpHead, over_rings
from specchat.engine.heads.medusa import MedusaHeads
from specchat.engine.heads.peagle import PEagleHead
from specchat.engine.heads.rows import HeadRows
from specchat.engine.heads.target import DraftHead
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.reference.ops import Attended
from specchat.engine.strategy import MAX_DRAFT_LENGTH

H = TypeVar("H", bound=DraftHead)


class CapturedHead(ABC, Generic[H]):
    """Passes of a head that graphs hold. Rows of logits are float32 [rows, >= vocab]."""

    passes = 2
    """Passes that differ: later ones are like the last of them."""

    def __init__(self, head: H, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        """Initialise; `recent` int32 [rows] holds the last tokens of the text."""
        self.vocab = head.vocab
        self._head, self._target, self._state, self._recent = head, target, state, recent

    @abstractmethod
    def node(self, node: int) -> Tensor:
        """Logits after node 0 of a step, or after the device's current draft token."""

    def _states_at(self, slots: Tensor) -> list[Tensor]:
        """The target's hidden states float32 [rows, hidden] that the head reads, at positions that may be below 0."""
        known = slots.clamp(min=0)
        return [self._target.states_at(layer, known) for layer in self._head.aux_layers]

    def level(self, growth: GrowthState, level: int) -> Tensor:
        """Logits [WIDTH, ...] after the frontier of a tree's later `level`, of heads that draft trees."""
        raise NotImplementedError

    @property
    def chance(self) -> Tensor | None:
        """Probability that the last token of `node` is accepted, float32 [1], where the head tells one."""
        return getattr(self._head, "chance", None)


class FeatureDrafts(CapturedHead[FeatureHead]):
    """Chains and trees by a head that continues from the target's features.

    A token's KV entry stands one position before it, with the feature there; those of a tree's nodes follow the text.
    """

    def __init__(self, head: FeatureHead, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        self._attention = HeadAttention(target.decoder.buffers.attention)
        self._mix = HeadExperts(head.tensors).run
        self._before = torch.arange(-len(recent), 0, device=recent.device)
        self._width = torch.arange(WIDTH, device=recent.device)
        self._alone = torch.ones(1, dtype=torch.int64, device=recent.device)
        """Path of a chain's node, which sees its own entry and all before it."""
        self._features: Tensor | None = None
        """Features after the nodes of a draft, by number, float32 [1 + WIDTH * MAX_DRAFT_LENGTH, feature]."""

    def node(self, node: int) -> Tensor:
        state, head = self._state, self._head
        if node == 0:
            slots = state.length + self._before
            features = head.feature(torch.cat(self._states_at(slots), -1))
            rows = self._rows(slots, self._attention.after(slots[:1], len(slots)), wanted=1)
            hidden, after = head.run(self._recent, features, rows)
            if self._features is None:
                self._features = after.new_zeros(1 + WIDTH * MAX_DRAFT_LENGTH, after.shape[1])
            self._features[:1].copy_(after[-1:])
            return head.logits(hidden[-1:])
        assert self._features is not None
        token, at = torch.index_select(state.fed, 0, state.node), state.node.long()
        slots = state.length + at - 1
        rows = self._rows(slots, self._attention.along(slots, self._alone))
        hidden, after = head.run(token, self._features.index_select(0, at - 1), rows)
        self._features.index_copy_(0, at, after)
        return head.logits(hidden)

    def level(self, growth: GrowthState, level: int) -> Tensor:
        assert self._features is not None
        last = self._state.length.long() - 1
        slots = growth.frontier.start.long() - 1 + self._width
        above = growth.pool.above.index_select(0, growth.frontier.place).long()
        parent = torch.where(above < 0, 0, growth.pool.number.index_select(0, above.clamp(min=0)))
        features, positions = (
            self._features.index_select(0, parent),
            growth.frontier.start.long() - 1 + growth.frontier.offset,
        )
        # Node 0 has the entry `last`.
        rows = self._rows(slots, self._attention.along(last, growth.step.path), positions)
        hidden, made = self._head.run(growth.frontier.token, features, rows)
        self._features.index_copy_(0, slots - last, made)
        return self._head.logits(hidden)

    def _rows(self, slots: Tensor, attend: Attended, positions: Tensor | None = None, wanted: int = 0) -> HeadRows:
        """Rows at int64 `slots`; texts shorter than a pass have negative ones, and those are at the cache's end."""
        capacity = self._head.capacity
        positions = None if positions is None else positions % capacity
        return HeadRows(slots % capacity, attend, positions, mix=self._mix, wanted=wanted)


class KvDrafts(CapturedHead[KvMtpHead]):
    """Chains by a head that attends to the target's own KV entries, at one position for all tokens."""

    def __init__(self, head: KvMtpHead, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        # By node, so that a pass may run again: it does before it is captured.
        self._states = torch.zeros(VERIFY_ROWS, target.config.hidden, device=recent.device)
        """The state that goes with the token of each node."""

    def node(self, node: int) -> Tensor:
        state, target, head = self._state, self._target, self._head
        known, at = state.length.long(), state.node.long()
        if node == 0:
            token, before = self._recent[-1:], target.final_norm(target.states_at(target.config.layers, known - 1))
        else:
            token, before = torch.index_select(state.fed, 0, state.node), self._states.index_select(0, at)
        entries = [target.whole_entries(layer) for layer in head.read_layers]
        hidden, following = head.run(token, before, known, entries, over_rings(known))
        self._states.index_copy_(0, at + 1, following)
        return head.logits(hidden)


class BlockDrafts(CapturedHead[DFlashHead | PEagleHead]):
    """Chains by a head that predicts all places in the first pass; later ones pick a token each."""

    def __init__(self, head: DFlashHead | PEagleHead, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        self._attention = HeadAttention(target.decoder.buffers.attention)
        self._before = torch.arange(-len(recent), 0, device=recent.device)

    def node(self, node: int) -> Tensor:
        state = self._state
        if node == 0:
            slots = state.length + self._before
            self._head.predict(self._recent, slots, self._states_at(slots), self._rows)
        return self._head.logits_at(state.node.long(), torch.index_select(state.fed, 0, state.node))

    def _rows(self, slots: Tensor) -> HeadRows:
        return HeadRows(slots % self._head.capacity, self._attention.after(slots[:1], len(slots)))


class LevelDrafts(CapturedHead[MedusaHeads]):
    """Trees by heads for a level each, which do not see draft tokens."""

    def __init__(self, head: MedusaHeads, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        self.passes = head.places

    def node(self, node: int) -> Tensor:
        assert node == 0
        return self._scored(0)

    def level(self, growth: GrowthState, level: int) -> Tensor:
        return self._scored(level).repeat(WIDTH, 1)

    def _scored(self, level: int) -> Tensor:
        (layer,), last = self._head.aux_layers, self._state.length.long() - 1
        return self._head.logits_at(level, self._target.states_at(layer, last))


def captured_head(head: DraftHead, target: DeviceModel, state: VerifyState, recent: Tensor) -> CapturedHead[Any] | None:
    """The captured passes of a head of `target`; None if its passes do not always launch the same work."""
    if not head.capturable or not fits(layer.attention for layer in head.recipe.layers):
        return None
    if isinstance(head, DFlashHead | PEagleHead):
        return BlockDrafts(head, target, state, recent)
    if isinstance(head, FeatureHead):
        return FeatureDrafts(head, target, state, recent)
    if isinstance(head, KvMtpHead):
        return KvDrafts(head, target, state, recent)
    return LevelDrafts(head, target, state, recent) if isinstance(head, MedusaHeads) else None
