"""Adapters for early exit under training: after several numbers of layers at once, of which the fastest one is kept.

Each learns the target's distribution from the target's states after its layers (LayerSkip's early-exit loss, Elhoushi
et al. 2024, 4.1, with the model as its own teacher). The target stays as it is, so that its text does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from specchat.engine.drafters.early_exit import LONGEST_DRAFT
from specchat.engine.errors import ModelError
from specchat.engine.reference.layer import logits
from specchat.engine.reference.tensors import Dense
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.exit_adapter import KIND, adapted
from specchat.engine.weights.matrices import read_named
from specchat.tune.draft import stepped, total
from specchat.tune.files import put_json, put_tensors
from specchat.tune.learner import SCORES, Learner, Rates, in_blocks
from specchat.tune.plan import TrainingSize
from specchat.tune.rows import Batch, TrainingText
from specchat.tune.size import REPLY_TOKENS, score_bytes, state_bytes
from specchat.tune.target import FrozenTarget

RATES = Rates(muon=0.002, adam=1e-3)
VERIFY = 0.06
"""Assumed cost of a further verified token, in plain steps."""
TARGET_BYTES = 16
"""Bytes of the target's own logits and probabilities for each score of a block."""


def exits(layers: int, chosen: int | None) -> tuple[int, ...]:
    """The numbers of layers that are tried for a target of `layers`; `chosen` is the pair's own."""
    tried = {max(1, layers // 8), max(1, layers // 4), max(1, layers // 2), chosen or 1}
    return tuple(sorted(one for one in tried if one < layers))


@dataclass(frozen=True)
class ExitChoice:
    """The exit after `layers` layers on held-out replies.

    `right` is the share of tokens that are its likeliest, `times` its estimated speed over plain decoding.
    """

    layers: int
    right: float
    times: float


def size(c: ModelConfig, places: Sequence[int]) -> TrainingSize:
    """Size of the training after `places` layers of a target `c`, whose head is held beside it."""
    weights = 2 * len(places) * c.hidden**2
    step = state_bytes(len(places) + 1, c.hidden) + score_bytes(c.vocab, 0, 2 * len(places)) + 4 * c.vocab * c.hidden
    step += TARGET_BYTES * min(SCORES, REPLY_TOKENS * c.vocab)
    scores = (2 * len(places) + 1) * REPLY_TOKENS * c.hidden * c.vocab
    return TrainingSize(weights, step, weights * REPLY_TOKENS + scores)


class ExitLearner(Learner):
    """Adapters [hidden, hidden] after several numbers of layers, which add nothing at first."""

    def __init__(self, target: FrozenTarget, places: Sequence[int]) -> None:
        """Begin adapters after each of `places` layers.

        Raises:
            ModelError: weights of the target missing, damaged or quantised.
        """
        super().__init__()
        self._target, self.places = target, tuple(places)
        self._recipe = recipe = target.config.recipe
        self._tensors = Dense(dict(read_named(target.checkpoint, recipe.norm, recipe.head)))
        hidden = target.config.hidden
        self.down = nn.ParameterList(torch.randn(hidden, hidden) / hidden**0.5 for _ in places)
        self.up = nn.ParameterList(torch.zeros(hidden, hidden) for _ in places)

    @property
    def rates(self) -> Rates:
        return RATES

    def loss(self, batch: Batch, seed: int) -> Tensor:
        """The mean KL divergence from the target, over tokens of the replies and exits."""
        del seed
        row, at = batch.replied()
        last = batch.states[self._target.config.layers][row, at - 1]
        apart = [
            in_blocks(partial(self._apart, index), self._recipe.vocab, last, batch.states[layers][row, at - 1])
            for index, layers in enumerate(self.places)
        ]
        return torch.stack(apart).mean() / len(row)

    @torch.no_grad()
    def right(self, index: int, row: TrainingText) -> list[bool]:
        """True for each reply token that is the likeliest at an exit."""
        at = torch.arange(row.start, len(row.tokens))
        guesses = self._logits(index, row.states[self.places[index]][at - 1]).argmax(-1)
        return (guesses == row.tokens[at]).tolist()

    def choices(self, rows: Sequence[TrainingText]) -> list[ExitChoice]:
        """Every exit on held-out replies; the speed is that of greedy drafts at the best length."""
        found = []
        c = self._target.config
        of_adapter = 2 * c.hidden**2 * c.layers / sum(layer.active for layer in self._recipe.layers)
        for index, layers in enumerate(self.places):
            right = [self.right(index, row) for row in rows]
            cost = (layers + of_adapter + c.head_layers) / (c.layers + c.head_layers)
            seen = [total(stepped(each, length) for each in right) for length in range(1, LONGEST_DRAFT + 1)]
            times = max(one.tokens / max(1e-9, one.steps + one.drafted * (cost + VERIFY)) for one in seen)
            found.append(ExitChoice(layers, sum(map(sum, right)) / max(1, sum(map(len, right))), times))
        return found

    def _apart(self, index: int, last: Tensor, states: Tensor) -> Tensor:
        """The summed KL divergence of an exit from the target, float32 []; both [tokens, hidden]."""
        wanted = self._target.logits(last).log_softmax(-1)
        return kl_div(self._logits(index, states).log_softmax(-1), wanted, log_target=True, reduction="sum")

    def _logits(self, index: int, states: Tensor) -> Tensor:
        """Logits float32 [..., vocab] of states float32 [..., hidden] after the layers of an exit."""
        return logits(self._recipe, adapted(states, self.down[index], self.up[index]), self._tensors)


def put_adapter(folder: Path, learner: ExitLearner, layers: int) -> None:
    """Write the adapter after `layers` layers as the engine reads it, in float16.

    Raises:
        ModelError: weights that float16 has no numbers for.
        OSError: a file cannot be written.
    """
    index = learner.places.index(layers)
    tensors = {"down": learner.down[index].detach().half(), "up": learner.up[index].detach().half()}
    if not all(bool(one.isfinite().all()) for one in tensors.values()):
        raise ModelError("The training went astray: the adapter holds values that are no numbers. Begin anew.")
    put_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    hidden = tensors["up"].shape[0]
    put_json(folder / "config.json", {"model_type": KIND, "exit_layer": layers, "hidden_size": hidden})
