"""State of a tree while a model drafts it, on the device."""

from dataclasses import dataclass, replace
from typing import Self

import torch
import triton
from torch import Tensor

from specchat.engine.kernels.verify_state import BLOCK, VerifyState


@dataclass(frozen=True)
class Growth:
    """A tree that grows level by level: a model runs over at most `width` nodes of each.

    What may follow those are candidates, `width` after each node; all stand in the pool in the order in which they were
    found. The best of a level are expanded: they are the frontier, over which the model runs next, and are numbered
    then, from 1 on. Node 0 is the pending token.

    Attributes:
        best, best_id: float32 and int32 [width, blocks * width], the largest perturbed scores of each BLOCK tokens in
            descending order, and their tokens. By `candidates.gather`, like the next one.
        total: float32 [width, blocks], the sum of exp(score - largest) of each block.
        count: int32 [1], candidates in the pool.
        value, probability: float32 [pool], of each candidate the product of the shares on its path, a share being the
            softmax of the perturbed scores, and its probability without the noise.
        token, above, number: int32 [pool], of each candidate its token, its parent's place in the pool (-1: node 0),
            and its number (0: not expanded).
        sure: float32 [levels], the largest value of each level.
        start: int32 [1], KV entry of the frontier's first node.
        reached, place, ids, offsets: float32 and int32 [width], of each node of the frontier its value, its place in
            the pool, its token, and its position less `start`.
        limit, least: int32 and float32 [1], how many nodes stay in the end at most, and the value that they have at
            least.
        places: int32 [rows + 1], of each node that stayed its number here; 0 for one that no model ran over.
        step: what `process` and `choose` read in the place of the step's own state: `fed` are the expanded nodes'
            tokens, `depth` and `path` are the frontier's.
    """

    best: Tensor
    best_id: Tensor
    total: Tensor
    count: Tensor
    value: Tensor
    probability: Tensor
    token: Tensor
    above: Tensor
    number: Tensor
    sure: Tensor
    start: Tensor
    reached: Tensor
    place: Tensor
    ids: Tensor
    offsets: Tensor
    limit: Tensor
    least: Tensor
    places: Tensor
    step: VerifyState

    @classmethod
    def create(cls, state: VerifyState, width: int, levels: int) -> Self:
        """Buffers for trees of up to `levels` levels that follow the text of `state`; at most 62 nodes are expanded."""
        device, blocks = state.fed.device, triton.cdiv(state.vocab, BLOCK)
        pool, nodes = width + width * width * (levels - 1), 1 + width * levels

        def reals(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device, dtype=torch.int32)

        return cls(
            best=reals(width, blocks * width),
            best_id=integers(width, blocks * width),
            total=reals(width, blocks),
            count=integers(1),
            value=reals(pool),
            probability=reals(pool),
            token=integers(pool),
            above=integers(pool),
            number=integers(pool),
            sure=reals(levels),
            start=integers(1),
            reached=reals(width),
            place=integers(width),
            ids=integers(width),
            offsets=integers(width),
            limit=integers(1),
            least=reals(1),
            places=torch.zeros_like(state.fed),
            step=replace(
                state,
                fed=integers(nodes),
                depth=integers(width),
                path=torch.zeros(width, device=device, dtype=torch.int64),
                node=integers(1),
                sure=reals(width),
            ),
        )

    @property
    def frontier(self) -> int:
        """Most nodes that are expanded of a level."""
        return self.place.shape[0]

    def tensors(self) -> list[Tensor]:
        """The part that the passes over a level advance."""
        return [
            self.count,
            self.start,
            self.reached,
            self.place,
            self.ids,
            self.offsets,
            self.step.depth,
            self.step.path,
        ]

    def begin(self) -> None:
        """Nothing is drafted yet; the frontier is node 0."""
        self.count.zero_()
        self.reached.fill_(1.0)
        self.place.fill_(-1)
        self.step.depth.zero_()
        self.step.path.fill_(1)
