"""Trained heads in captured graphs: chains, blocks drafted in one pass, and trees."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from specchat.engine.decoding.draft import WIDTH
from specchat.engine.device.head_attention import HeadAttention, fits
from specchat.engine.device.head_experts import HeadExperts, MixStacks
from specchat.engine.device.model import DeviceModel
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.verify_state import VerifyState
from specchat.engine.reference.ops import Attended
from specchat.engine.strategy import MAX_DRAFT_LENGTH


class Drafting(Protocol):
    """The part of every head used here."""

    vocab: int


H = TypeVar("H", bound=Drafting)


@runtime_checkable
class FeatureDrafting(Drafting, Protocol):
    """The part of `heads.feature.FeatureHead` used here: shapes are fixed, and nothing is read back."""

    @property
    def aux_layers(self) -> Sequence[int]: ...

    def feature(self, states: Tensor) -> Tensor: ...
    def run_at(
        self,
        tokens: Tensor,
        features: Tensor,
        slots: Tensor,
        positions: Tensor,
        attend: Attended,
        mix: MixStacks | None = None,
        wanted: int = 0,
    ) -> tuple[Tensor, Tensor]: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


@runtime_checkable
class KvDrafting(Drafting, Protocol):
    """The part of `heads.kv_mtp.KvMtpHead` used here, likewise."""

    def run_after(
        self, token: Tensor, state: Tensor, entries: Callable[[int], tuple[Tensor, Tensor]], known: Tensor
    ) -> tuple[Tensor, Tensor]: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


@runtime_checkable
class BlockDrafting(Drafting, Protocol):
    """The part of `heads.dflash.DFlashHead` and of its like used here; `chance` where the head tells one."""

    def predict(
        self,
        recent: Tensor,
        length: Tensor,
        states: Callable[[int, Tensor], Tensor],
        attend_after: Callable[[Tensor, int, bool, int], Attended],
    ) -> None: ...
    def logits_at(self, place: Tensor, token: Tensor) -> Tensor: ...


@runtime_checkable
class LevelDrafting(Drafting, Protocol):
    """The part of `heads.medusa.MedusaHeads` used here."""

    @property
    def places(self) -> int: ...
    @property
    def aux_layers(self) -> Sequence[int]: ...

    def logits_at(self, place: int, state: Tensor) -> Tensor: ...


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

    def level(self, growth: GrowthState, level: int) -> Tensor:
        """Logits [WIDTH, ...] after the frontier of a tree's later `level`, of heads that draft trees."""
        raise NotImplementedError

    @property
    def chance(self) -> Tensor | None:
        """Probability that the last token of `node` is accepted, float32 [1], where the head tells one."""
        return None


class FeatureDrafts(CapturedHead[FeatureDrafting]):
    """Chains and trees by a head that continues from the target's features.

    A token's KV entry stands one position before it, with the feature there; those of a tree's nodes follow the text.
    """

    def __init__(self, head: FeatureDrafting, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        self._attention = HeadAttention(target.decoder.buffers.attention)
        self._mix = HeadExperts().run
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
            states = [self._target.states_at(layer, slots.clamp(min=0)) for layer in head.aux_layers]
            attend = self._attention.after(slots[:1], len(slots), True, 0)
            features = head.feature(torch.cat(states, -1))
            hidden, after = head.run_at(self._recent, features, slots, slots, attend, self._mix, wanted=1)
            if self._features is None:
                self._features = after.new_zeros(1 + WIDTH * MAX_DRAFT_LENGTH, after.shape[1])
            self._features[:1].copy_(after[-1:])
            return head.logits(hidden[-1:])
        assert self._features is not None
        token, at = torch.index_select(state.fed, 0, state.node), state.node.long()
        slots = state.length + at - 1
        attend = self._attention.along(slots, self._alone)
        hidden, after = head.run_at(token, self._features.index_select(0, at - 1), slots, slots, attend, self._mix)
        self._features.index_copy_(0, at, after)
        return head.logits(hidden)

    def level(self, growth: GrowthState, level: int) -> Tensor:
        assert self._features is not None
        last = self._state.length.long() - 1
        slots = growth.start.long() - 1 + self._width
        above = growth.above.index_select(0, growth.place).long()
        parent = torch.where(above < 0, 0, growth.number.index_select(0, above.clamp(min=0)))
        features, positions = self._features.index_select(0, parent), growth.start.long() - 1 + growth.offsets
        # Node 0 has the entry `last`.
        attend = self._attention.along(last, growth.step.path)
        hidden, made = self._head.run_at(growth.ids, features, slots, positions, attend, self._mix)
        self._features.index_copy_(0, slots - last, made)
        return self._head.logits(hidden)


class KvDrafts(CapturedHead[KvDrafting]):
    """Chains by a head that attends to the target's own KV entries, at one position for all tokens."""

    def __init__(self, head: KvDrafting, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        # By node, so that a pass may run again: it does before it is captured.
        self._states = torch.zeros(VERIFY_ROWS, target.config.hidden, device=recent.device)
        """The state that goes with the token of each node."""

    def node(self, node: int) -> Tensor:
        state, target = self._state, self._target
        known, at = state.length.long(), state.node.long()
        if node == 0:
            token, before = self._recent[-1:], target.final_norm(target.states_at(target.config.layers, known - 1))
        else:
            token, before = torch.index_select(state.fed, 0, state.node), self._states.index_select(0, at)
        hidden, following = self._head.run_after(token, before, target.whole_entries, known)
        self._states.index_copy_(0, at + 1, following)
        return self._head.logits(hidden)


class BlockDrafts(CapturedHead[BlockDrafting]):
    """Chains by a head that predicts all places in the first pass; later ones pick a token each."""

    def __init__(self, head: BlockDrafting, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
        super().__init__(head, target, state, recent)
        self._attention = HeadAttention(target.decoder.buffers.attention)

    def node(self, node: int) -> Tensor:
        state = self._state
        if node == 0:
            self._head.predict(self._recent, state.length.long(), self._target.states_at, self._attention.after)
        return self._head.logits_at(state.node.long(), torch.index_select(state.fed, 0, state.node))

    @property
    def chance(self) -> Tensor | None:
        return getattr(self._head, "chance", None)


class LevelDrafts(CapturedHead[LevelDrafting]):
    """Trees by heads for a level each, which do not see draft tokens."""

    def __init__(self, head: LevelDrafting, target: DeviceModel, state: VerifyState, recent: Tensor) -> None:
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


def captured_head(head: Any, target: DeviceModel, state: VerifyState, recent: Tensor) -> CapturedHead[Any] | None:
    """The captured passes of a head of `target`; None if its passes do not always launch the same work."""
    if not getattr(head, "capturable", True) or not fits(layer.attention for layer in head.recipe.layers):
        return None
    if isinstance(head, BlockDrafting):
        return BlockDrafts(head, target, state, recent)
    if isinstance(head, FeatureDrafting):
        return FeatureDrafts(head, target, state, recent)
    if isinstance(head, KvDrafting):
        return KvDrafts(head, target, state, recent)
    return LevelDrafts(head, target, state, recent) if isinstance(head, LevelDrafting) else None
