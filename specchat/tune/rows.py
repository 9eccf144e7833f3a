"""Texts to learn from: a prompt with the target's reply, and what the target had of it after some of its layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from specchat.tune.files import damaged, get_tensors, put_tensors

LONGEST = 512
"""Tokens that are kept of a text, the last ones: heads look at what is near, and time and memory grow with them."""
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class TrainingText:
    """A text of n tokens, int64 [n], whose reply begins at `start`.

    `states` are by layer float32 [n - 1, hidden]: of all tokens but the last, which the target never reads.
    """

    tokens: Tensor
    start: int
    states: Mapping[int, Tensor]

    def write(self, path: Path) -> None:
        """Keep it, its states as bfloat16, which has the range of float32.

        Raises:
            OSError: it cannot be written.
        """
        cut = max(0, min(len(self.tokens) - LONGEST, self.start - 2))
        tensors = {str(layer): state[cut:].bfloat16() for layer, state in self.states.items()}
        tensors["tokens"] = self.tokens[cut:].int()
        put_tensors(path, tensors, {"start": str(self.start - cut)})

    @classmethod
    def read(cls, path: Path) -> "TrainingText":
        """Read what `write` kept.

        Raises:
            OSError: it cannot be read.
        """
        tensors, about = get_tensors(path)
        try:
            tokens, start = tensors.pop("tokens").long(), int(about["start"])
            return cls(tokens, start, {int(layer): state.float() for layer, state in tensors.items()})
        except (KeyError, ValueError) as error:
            raise damaged(path, error) from None


def reply(path: Path) -> list[int]:
    """The tokens of the reply in a row's file.

    Raises:
        OSError: it cannot be read.
    """
    tensors, about = get_tensors(path, "tokens")
    tokens: list[int] = tensors["tokens"].tolist()
    return tokens[int(about["start"]) :]


@dataclass(frozen=True)
class Batch:
    """Rows padded behind to N tokens.

    Attributes:
        tokens: int64 [rows, N].
        lengths, starts: int64 [rows], where texts end and replies begin.
        states: by layer float32 [rows, N - 1, hidden].
    """

    tokens: Tensor
    lengths: Tensor
    starts: Tensor
    states: Mapping[int, Tensor]

    @classmethod
    def of(cls, rows: Sequence[TrainingText]) -> "Batch":
        layers = rows[0].states.keys()
        return cls(
            pad_sequence([row.tokens for row in rows], batch_first=True),
            torch.tensor([len(row.tokens) for row in rows]),
            torch.tensor([row.start for row in rows]),
            {layer: pad_sequence([row.states[layer] for row in rows], batch_first=True) for layer in layers},
        )

    def to(self, device: torch.device) -> "Batch":
        """The batch on `device`."""
        states = {layer: state.to(device) for layer, state in self.states.items()}
        return Batch(self.tokens.to(device), self.lengths.to(device), self.starts.to(device), states)

    def parts(self, most: int) -> "list[Batch]":
        """Batches of `most` rows each, padded to their own longest."""
        return [self._rows(slice(first, first + most)) for first in range(0, len(self.tokens), most)]

    def _rows(self, some: slice) -> "Batch":
        lengths = self.lengths[some]
        end = int(lengths.max())
        states = {layer: state[some, : end - 1] for layer, state in self.states.items()}
        return Batch(self.tokens[some, :end], lengths, self.starts[some], states)

    def replied(self) -> tuple[Tensor, Tensor]:
        """The tokens of the replies: in which rows, and where in them, int64 [tokens] each."""
        row, place = self._inside().nonzero(as_tuple=True)
        return row, place

    def anchors(self, most: int | None, seed: int) -> Tensor:
        """The slots from which replies are guessed, bool [rows, N - 2]: of each row all, or `most` drawn by `seed`.

        They are drawn on the host, so that they are the same on every device.
        """
        inside = self._inside()[:, 2:]
        if most is None:
            return inside
        drawn = torch.rand(inside.shape, generator=torch.Generator().manual_seed(seed)).to(inside.device)
        drawn = drawn.masked_fill(~inside, -1.0)
        return inside & (drawn.argsort(1, descending=True).argsort(1) < most)

    def _inside(self) -> Tensor:
        """Mask of the tokens of replies, bool [rows, N]."""
        places = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (places >= self.starts.unsqueeze(1)) & (places < self.lengths.unsqueeze(1))
