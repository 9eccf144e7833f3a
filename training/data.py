"""Packs encoded dialogues into rows of one length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus.mixture import LONG_SHARE, WEIGHTS, dialogues
from training.tokenizer import PAD, encode, token_id

POOL = 128
PART_DIALOGUES = 10_000
"""Distinct dialogues that one process makes from one seed."""
SEED_STRIDE = 1000
"""Distance between the seeds of two parts."""


@dataclass(frozen=True)
class Rows:
    """Packed rows: tokens, and a mask of the tokens in replies."""

    tokens: Tensor
    replies: Tensor

    def save(self, path: Path) -> None:
        """Save the rows."""
        with path.open("wb") as file:
            np.savez_compressed(file, tokens=self.tokens.numpy().astype(np.uint16), replies=self.replies.numpy())

    def with_last(self, count: int, others: Rows) -> Rows:
        """These rows, followed by the last `count` of `others`."""
        return Rows(
            torch.cat((self.tokens, others.tokens[-count:])), torch.cat((self.replies, others.replies[-count:]))
        )

    @staticmethod
    def load(path: Path) -> Rows:
        """Load rows from `path`."""
        with np.load(path) as stored:
            return Rows(torch.from_numpy(stored["tokens"].astype(np.int64)), torch.from_numpy(stored["replies"]))


def _rows(
    encoded: Iterator[tuple[list[int], list[bool]]], length: int, pad: int
) -> Iterator[tuple[list[int], list[bool]]]:
    """Fill rows with whole dialogues, each time the largest of a pool that fits."""
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
    weights: Mapping[str, int] = WEIGHTS,
    processes: int = 1,
) -> Rows:
    """Pack the mixture's dialogues part by part; the rows do not depend on the number of processes."""
    starts = range(0, count, PART_DIALOGUES)
    seeds = [seed + SEED_STRIDE * index for index in range(len(starts))]
    counts = [min(PART_DIALOGUES, count - start) for start in starts]
    pack_one = partial(_pack_part, tokenizer.to_str(), length, evaluation, long_share, weights)
    if processes == 1:
        parts = list(map(pack_one, seeds, counts))
    else:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            parts = list(pool.map(pack_one, seeds, counts))
    tokens, replies = zip(*parts, strict=True)
    return Rows(torch.from_numpy(np.concatenate(tokens).astype(np.int64)), torch.from_numpy(np.concatenate(replies)))


def _pack_part(
    tokenizer_json: str,
    length: int,
    evaluation: bool,
    long_share: float,
    weights: Mapping[str, int],
    seed: int,
    count: int,
) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """Tokens and reply masks of `count` dialogues as arrays, which are fast to send between processes."""
    tokenizer = Tokenizer.from_str(tokenizer_json)
    made = dialogues(seed, count, evaluation=evaluation, long_share=long_share, weights=weights)
    encoded = (encode(tokenizer, dialogue.messages) for dialogue in made)
    rows = pack_encoded(encoded, length, token_id(tokenizer, PAD))
    return rows.tokens.numpy().astype(np.uint16), rows.replies.numpy()


def pack_encoded(encoded: Iterator[tuple[list[int], list[bool]]], length: int, pad: int) -> Rows:
    """Pack encoded dialogues into rows."""
    rows = list(_rows(encoded, length, pad))
    return Rows(torch.tensor([tokens for tokens, _ in rows]), torch.tensor([replies for _, replies in rows]))
