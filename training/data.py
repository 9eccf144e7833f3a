"""Packs encoded dialogues into rows of one length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus.mixture import LONG_SHARE, dialogues
from training.tokenizer import PAD, encode, token_id

POOL = 128


@dataclass(frozen=True)
class Rows:
    """Packed rows: the tokens, and whether each one belongs to a reply."""

    tokens: Tensor
    replies: Tensor

    def save(self, path: Path) -> None:
        """Stores the rows."""
        with path.open("wb") as file:
            np.savez_compressed(file, tokens=self.tokens.numpy().astype(np.uint16), replies=self.replies.numpy())

    def with_last(self, count: int, others: Rows) -> Rows:
        """These rows and the last ones of the others."""
        return Rows(
            torch.cat((self.tokens, others.tokens[-count:])), torch.cat((self.replies, others.replies[-count:]))
        )

    @staticmethod
    def load(path: Path) -> Rows:
        """The rows stored at the path."""
        with np.load(path) as stored:
            return Rows(torch.from_numpy(stored["tokens"].astype(np.int64)), torch.from_numpy(stored["replies"]))


def _rows(
    encoded: Iterator[tuple[list[int], list[bool]]], length: int, pad: int
) -> Iterator[tuple[list[int], list[bool]]]:
    """Rows filled with whole dialogues: the largest of a pool that still fits is taken each time."""
    pool: list[tuple[list[int], list[bool]]] = []
    row: tuple[list[int], list[bool]] = ([], [])
    ended = False
    while not ended or pool:
        while len(pool) < POOL and not ended:
            one = next(encoded, None)
            if one is None:
                ended = True
            else:
                pool.append((one[0][:length], one[1][:length]))
        room = length - len(row[0])
        fitting = [index for index, one in enumerate(pool) if len(one[0]) <= room]
        if fitting:
            first = 0 if not row[0] else max(fitting, key=lambda index: len(pool[index][0]))
            one = pool.pop(first)
            row = (row[0] + one[0], row[1] + one[1])
        else:
            yield row[0] + [pad] * room, row[1] + [False] * room
            row = ([], [])
    if row[0]:
        room = length - len(row[0])
        yield row[0] + [pad] * room, row[1] + [False] * room


def pack(
    tokenizer: Tokenizer,
    seed: int,
    count: int,
    length: int,
    *,
    evaluation: bool = False,
    long_share: float = LONG_SHARE,
) -> Rows:
    """The mixture's dialogues in rows."""
    made = dialogues(seed, count, evaluation=evaluation, long_share=long_share)
    encoded = (encode(tokenizer, dialogue.messages) for dialogue in made)
    return pack_encoded(encoded, length, token_id(tokenizer, PAD))


def pack_encoded(encoded: Iterator[tuple[list[int], list[bool]]], length: int, pad: int) -> Rows:
    """Encoded dialogues in rows."""
    rows = list(_rows(encoded, length, pad))
    return Rows(torch.tensor([tokens for tokens, _ in rows]), torch.tensor([replies for _, replies in rows]))
