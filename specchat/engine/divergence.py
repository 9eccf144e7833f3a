"""How far the next token's distribution is from another's over a text: what rounding does to a model, measured."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specchat.engine.model.rows import PREFILL_ROWS
from specchat.engine.runners.host import NativeModel


@dataclass(frozen=True)
class Divergence:
    """Kullback-Leibler divergences in nats, of the distributions after each of `tokens` tokens.

    Attributes:
        mean, most, largest: their mean, a bound of 99 % of them, and the largest.
        alike: share of tokens after which both distributions have the same likeliest token.
    """

    tokens: int
    mean: float
    most: float
    largest: float
    alike: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[Tensor, Tensor]]) -> "Divergence":
        """The divergence of q from p, by pairs of their `log_probabilities`, float [rows, vocab]."""
        found, alike = list[Tensor](), 0
        for one, other in pairs:
            p, q = one.double(), other.double()
            found.append((p.exp() * (p - q)).sum(-1))
            alike += int((p.argmax(-1) == q.argmax(-1)).sum())
        whole = torch.cat(found)
        most = float(whole.quantile(0.99))
        return cls(len(whole), float(whole.mean()), most, float(whole.max()), alike / len(whole))


def log_probabilities(model: NativeModel, tokens: Sequence[int]) -> Iterator[Tensor]:
    """Logarithms of the probabilities after each token, float64 [rows, vocab], in passes."""
    for first in range(0, len(tokens), PREFILL_ROWS):
        hidden = model.forward(tokens[first : first + PREFILL_ROWS], first)
        yield model.logits(hidden).double().log_softmax(-1)
