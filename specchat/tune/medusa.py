"""Medusa-1 (Cai et al. 2024): heads learn the tokens of the target's replies, and the target stays as it is.

As in the paper head i counts by 0.8^i, and begins with W = 0 and the target's V, which is scaled here.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, silu

from specchat.engine.heads.files import MEDUSA
from specchat.engine.weights.config import ModelConfig
from specchat.tune.plan import TrainingSize
from specchat.tune.rows import Batch
from specchat.tune.size import REPLY_TOKENS, score_bytes, state_bytes
from specchat.tune.target import FrozenTarget
from specchat.tune.trainee import EVEN, Published, Trainee

HEADS = 3
"""Three to five are usual; each has as many weights as the target's head."""
BLOCK_BYTES = 20
"""Bytes that a block holds for each number of a state: five tensors, from its input to gradients."""


def read_layers(layers: int) -> tuple[int, ...]:
    """The numbers of the layers whose states heads look at, of a target of so many: the last one."""
    return (layers,)


def size(c: ModelConfig) -> TrainingSize:
    """Size of the training for a target `c`; blocks and heads see replies alone."""
    weights = HEADS * c.hidden * (c.hidden + 1 + c.vocab)
    step = state_bytes(2, c.hidden) + HEADS * REPLY_TOKENS * c.hidden * BLOCK_BYTES + score_bytes(c.vocab, 3, HEADS)
    return TrainingSize(weights, step, weights * REPLY_TOKENS)


class MedusaBlock(nn.Module):
    """h + silu(W h + b)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, hidden)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + silu(self.linear(hidden))


class MedusaTrainee(Trainee):
    """Heads of one block each."""

    places = HEADS
    scoring = ("1.weight",)

    def __init__(self, target: FrozenTarget, replies: Sequence[Sequence[int]]) -> None:
        """For `target`; all tokens are scored, whatever stands in the replies."""
        super().__init__()
        del replies
        c = target.config
        self.width, self.layers = c.hidden, read_layers(c.layers)
        self._target = target
        self.register_buffer("tokens", torch.arange(c.vocab))
        self.heads = nn.ModuleList(
            nn.Sequential(MedusaBlock(c.hidden), nn.Linear(c.hidden, c.vocab, bias=False)) for _ in range(HEADS)
        )
        start = target.head()
        with torch.no_grad():
            for head in self.heads:
                head.get_parameter("1.weight").copy_(EVEN * start)

    def hidden(self, batch: Batch, anchors: Tensor) -> Iterator[Tensor]:
        states = batch.states[self.layers[0]]
        normed = self._target.final_norm(states.flatten(0, 1)).view_as(states)
        for depth in range(min(HEADS, batch.tokens.shape[1] - 2)):
            yield normed[:, : batch.tokens.shape[1] - 2 - depth]

    def scores(self, depth: int, hidden: Tensor) -> Tensor:
        scores: Tensor = self.heads[depth](hidden)
        return scores

    def wanted(self, batch: Batch) -> Tensor:
        return one_hot(batch.tokens[batch.replied()], len(self.tokens)).float()

    def published(self) -> Published:
        settings = {"medusa_num_heads": HEADS, "medusa_num_layers": 1}
        return Published(settings, self.heads.state_dict(), MEDUSA.removesuffix(".safetensors"))
