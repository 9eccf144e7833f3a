"""State of a growing draft tree on the device."""

from typing import NamedTuple, Self

import torch
import triton
from torch import Tensor

from specchat.engine.kernels.verify_state import BLOCK, VerifyState


class BlockTops(NamedTuple):
    """Best tokens of each BLOCK tokens after each node of a level; from `candidates.gather`.

    Attributes:
        score, token: float32 and int32 [width, blocks * width], the largest perturbed scores in descending order.
        total: float32 [width, blocks], sum of exp(score - largest) of each block.
    """

    score: Tensor
    token: Tensor
    total: Tensor


class CandidatePool(NamedTuple):
    """Candidates of all levels.

    Attributes:
        filled: int32 [1], number of them.
        value, probability: float32 [pool], a candidate's product of shares on its path, where a share is the softmax of
            the perturbed scores, and its probability without noise.
        token, above, number: int32 [pool], a candidate's token, its parent's index in the pool (-1: node 0), and its
            number (0: not expanded).
    """

    filled: Tensor
    value: Tensor
    probability: Tensor
    token: Tensor
    above: Tensor
    number: Tensor


class Frontier(NamedTuple):
    """Nodes of the next model run.

    Attributes:
        start: int32 [1], KV entry of the first one.
        value: float32 [width].
        place, token, offset: int32 [width], a node's index in the pool, its token, and its position less `start`.
    """

    start: Tensor
    value: Tensor
    place: Tensor
    token: Tensor
    offset: Tensor


class GrowthState(NamedTuple):
    """Draft tree that grows level by level: a model runs over at most `width` nodes of each.

    Each of these nodes has `width` candidates, which go into the pool in order. The best of a level are expanded: they
    are the frontier of the next model run, and are numbered from 1 on. Node 0 is the pending token.
    Kernels take the state whole.

    Attributes:
        sure: float32 [levels], largest value of each level.
        limit, least: int32 and float32 [1], most nodes of the draft, and their least value.
        places: int32 [rows + 1], number of each draft node in this tree; 0 for one that no model ran over.
        step: state for `process` and `choose`: `fed` are the expanded nodes' tokens, `depth` and `path` the frontier's.
    """

    tops: BlockTops
    pool: CandidatePool
    frontier: Frontier
    sure: Tensor
    limit: Tensor
    least: Tensor
    places: Tensor
    step: VerifyState

    @classmethod
    def create(cls, state: VerifyState, width: int, levels: int) -> Self:
        """Allocate trees of up to `levels` levels after the text of `state`; at most 62 nodes are expanded."""
        device, blocks = state.fed.device, triton.cdiv(state.vocab, BLOCK)
        pool, nodes = width + width * width * (levels - 1), 1 + width * levels

        def reals(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device, dtype=torch.int32)

        return cls(
            tops=BlockTops(reals(width, blocks * width), integers(width, blocks * width), reals(width, blocks)),
            pool=CandidatePool(integers(1), reals(pool), reals(pool), integers(pool), integers(pool), integers(pool)),
            frontier=Frontier(integers(1), reals(width), integers(width), integers(width), integers(width)),
            sure=reals(levels),
            limit=integers(1),
            least=reals(1),
            places=torch.zeros_like(state.fed),
            step=state._replace(
                fed=integers(nodes),
                depth=integers(width),
                path=torch.zeros(width, device=device, dtype=torch.int64),
                node=integers(1),
                sure=reals(width),
            ),
        )

    @property
    def width(self) -> int:
        """Most expanded nodes of a level."""
        return self.frontier.place.shape[0]

    def tensors(self) -> list[Tensor]:
        """Tensors that the passes over a level advance."""
        return [self.pool.filled, *self.frontier, self.step.depth, self.step.path]

    def begin(self) -> None:
        """Reset to an empty tree with node 0 as the frontier."""
        self.pool.filled.zero_()
        self.frontier.value.fill_(1.0)
        self.frontier.place.fill_(-1)
        self.step.depth.zero_()
        self.step.path.fill_(1)
