"""Draft trees of a model on a device, grown level by level."""

import torch
from torch import Tensor

from specchat.engine.decoding.draft import WIDTH
from specchat.engine.device.decoder import Branches, DeviceDecoder
from specchat.engine.device.skips import SkipFlags
from specchat.engine.kernels.candidates import gather
from specchat.engine.kernels.choose import choose
from specchat.engine.kernels.growth import expand, settle
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.scores import process
from specchat.engine.kernels.verify_state import Scored, VerifyState
from specchat.engine.strategy import MAX_DRAFT_LENGTH


class DeviceTrees:
    """One growing tree at a time, with as many levels as nodes allowed; the device counts the levels."""

    def __init__(self, state: VerifyState, scored: Scored) -> None:
        """Initialise; `state` is the step's and receives the tree, and rows of `scored` are overwritten."""
        self._state = state
        self._scored = scored
        self.growth = GrowthState.create(state, WIDTH, MAX_DRAFT_LENGTH)
        self._chosen = torch.zeros(WIDTH, device=state.fed.device, dtype=torch.int32)

    @property
    def values(self) -> Tensor:
        """Largest value of each level: float32 [MAX_DRAFT_LENGTH], on the device."""
        return self.growth.sure

    def start(self, limit: int, least: float) -> None:
        """Start a tree of at most `limit` nodes, each of a value of at least `least`."""
        self.growth.limit.fill_(limit)
        self.growth.least.fill_(least)

    def begin(self) -> None:
        """Reset the level counters on the device."""
        self.growth.begin()

    def run(self, model: DeviceDecoder, flags: SkipFlags | None) -> None:
        """Run over the nodes that a level extends, after node 0."""
        growth = self.growth
        tree = Branches(self._state.length, growth.frontier.offset, growth.step.path)
        model.forward(growth.frontier.token, growth.frontier.start, WIDTH, flags, tree)

    def branch(self, logits: Tensor, rows: int, columns: int) -> None:
        """Find candidates from logits float32 [>= rows, >= columns], and the nodes that the next level extends."""
        growth, scored = self.growth, self._scored
        process(logits, growth.step, 0, scored, rows, columns)
        choose(scored, growth.step, 0, rows, self._chosen)
        gather(scored, growth, rows)
        expand(growth, rows)

    def settle(self) -> None:
        """Draft the best candidates."""
        settle(self.growth, self._state)

    def keep(self, model: DeviceDecoder) -> None:
        """After verification, move the accepted path after the text in the cache of the drafting model."""
        model.keep(self._state, self.growth.places)

    def tensors(self) -> list[Tensor]:
        """Tensors that a pass over a level changes."""
        return self.growth.tensors()

    def memory(self) -> int:
        """Bytes held."""
        growth = self.growth
        own = (one for one in growth if isinstance(one, Tensor))
        return sum(t.nbytes for t in (*growth.tops, *growth.pool, *growth.frontier, *own))
