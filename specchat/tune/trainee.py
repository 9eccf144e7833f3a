"""Heads under training: what every family has to tell, and what is made of it.

Slot t of a text is where the target has a state of x[t] and x[t + 1] is pending: the target chose it, and has not read
it. A head guesses from there for places 0, 1, ... the tokens x[t + 2], x[t + 3], ...
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specchat.engine.reference.tensors import Dense
from specchat.tune.learner import Learner, Rates, in_blocks
from specchat.tune.rows import Batch, TrainingText

PLACE_WEIGHT = 0.8
"""By how much a place counts less than the one before: what stands behind a refused draft is lost."""

MUON_RATE = 0.02

EVEN = 0.3
"""Factor on the target's scores where heads begin with them: sure ones would be wrong."""


@dataclass(frozen=True)
class Published:
    """Heads as they are published: config.json, and the tensors of the file `name` with its ending."""

    settings: Mapping[str, object]
    tensors: Mapping[str, Tensor]
    name: str = "model"


class Trainee(Learner):
    """Heads of one family.

    Attributes:
        layers: the numbers of the target's layers whose states it learns from.
        width: the target's hidden size.
        places: how many tokens are guessed from a slot.
        tokens: int64 [scored], those that have a score.
        anchors: from how many slots of a text a step of training guesses, at most; None where all cost little more.
    """

    layers: tuple[int, ...]
    width: int
    places: int
    tokens: Tensor
    anchors: int | None = None

    @property
    def tensors(self) -> Dense:
        """The parameters, by their names."""
        return Dense(dict(self.named_parameters()))

    @property
    def rates(self) -> Rates:
        """AdamW's is 3e-3 where small, 2e-4 at a width of 4,096."""
        return Rates(MUON_RATE, min(3e-3, 0.75 / self.width))

    @abstractmethod
    def hidden(self, batch: Batch, anchors: Tensor) -> Iterator[Tensor]:
        """For each place float32 [rows, slots, hidden], from slot 0 on, as long as there is a token to guess.

        Those of slots that are not among `anchors`, bool [rows, N - 2], do not count.
        """

    @abstractmethod
    def scores(self, depth: int, hidden: Tensor) -> Tensor:
        """Scores float32 [guesses, scored] of states [guesses, hidden] of a place."""

    @abstractmethod
    def wanted(self, batch: Batch) -> Tensor:
        """The shares float32 [replied tokens, scored] that scores should have; a row of zeros does not count."""

    @abstractmethod
    def published(self) -> Published:
        """In the layout that `engine.heads` reads."""

    def loss(self, batch: Batch, seed: int) -> Tensor:
        """Divergence of the heads' scores from the target's in nats, the weighted mean over places: float32 [].

        That is cross-entropy, less what of it no scores could avoid. `seed` draws the slots that are guessed from.
        """
        row, at = batch.replied()
        anchors = batch.anchors(self.anchors, seed)
        wanted = self.wanted(batch)
        total, mass = wanted.new_zeros(()), 0.0
        for depth, hidden in enumerate(self.hidden(batch, anchors)):
            slot = at - 2 - depth
            guessed = (slot >= 0) & anchors[row, slot]
            shares = wanted[guessed]
            if not bool(shares.any()):
                break
            weight = PLACE_WEIGHT**depth
            states = hidden[row[guessed], slot[guessed]]
            apart = in_blocks(partial(self._apart, depth), shares.shape[-1], states, shares)
            total = total + weight * apart / shares.sum()
            mass += weight
        return total / max(mass, 1.0)

    def _apart(self, depth: int, states: Tensor, shares: Tensor) -> Tensor:
        """The summed divergence of the scores of states [guesses, hidden] from their shares: float32 []."""
        scored = self.scores(depth, states).log_softmax(-1)
        return (torch.xlogy(shares, shares) - shares * scored).sum()

    @torch.no_grad()
    def right(self, batch: Batch) -> Tensor:
        """True if the likeliest token at a position, from a slot, is the text's: bool [rows, slots, places]."""
        rows, length = batch.tokens.shape
        found = torch.zeros(rows, length, self.places, dtype=torch.bool, device=self.device)
        everywhere = torch.ones(rows, length - 2, dtype=torch.bool, device=self.device)
        for depth, hidden in enumerate(self.hidden(batch, everywhere)):
            slots = hidden.shape[1]
            guesses = self.tokens[self.scores(depth, hidden.flatten(0, 1)).argmax(-1)].view(rows, slots)
            found[:, :slots, depth] = guesses == batch.tokens[:, depth + 2 : depth + 2 + slots]
        return found


def accepted_length(trainee: Trainee, rows: Sequence[TrainingText]) -> float:
    """Tokens of a step, on average, if `rows` were drafted greedily by as many tokens as the trainee has places.

    Exact for texts that were written greedily: up to the first wrong guess, what a head is given is what it drafted.
    """
    steps = tokens = 0
    for row in rows:
        right = trainee.right(Batch.of([row]).to(trainee.device))[0].cpu()
        slot, end = row.start - 2, len(row.tokens)
        tokens += end - row.start
        while slot + 2 < end:
            slot += 1 + int(right[slot].long().cumprod(0).sum())
            steps += 1
    return tokens / max(1, steps)
