"""Models that programs of other projects compute: their contract, and comparison of passes by their rows.

Kernels sum in an order that depends on the number of rows. Where logits differ, choices closer than the difference are
made again by one row alone (`guard.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.model.passes import NOTHING, Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.strategy import MAX_DRAFT_LENGTH

BLOCK = 512
"""Largest number of tokens in a pass."""
UNEVEN_BLOCK = 128
"""Largest pass that writes a prompt where rows depend on the others, and distance of the borders it goes on from."""


class ChainOnlyModel(ABC):
    """The common part of a `HostModel` of one sequence whose passes give logits at once. Not thread-safe.

    Where a model is `uneven`, KV entries depend on the pass that wrote them. Prompts then go on only from borders up to
    which whole blocks were written, as they would be from an empty cache.
    """

    program: ClassVar[str]
    """Names what computes passes, in messages."""
    label: str = ""
    """Names the model in messages."""
    context: int
    vocab: int
    uneven = False
    _whole = 0
    """Tokens in the cache that were written from border to border."""

    @abstractmethod
    def run(self, tokens: Sequence[int], start: int) -> Tensor:
        """Run `tokens` from position `start` on, after the ones before them.

        Returns:
            logits float32 [len(tokens) or the last ones, vocab], on the host; the next pass may overwrite them.
        """

    @abstractmethod
    def write(self, tokens: Sequence[int], start: int) -> None:
        """Run `tokens` from position `start` on without logits."""

    def forward(self, tokens: Sequence[int], start: int, skip: Skip = NOTHING, layout: Layout | None = None) -> Tensor:
        """Call `run`; raises ValueError for a tree and for skipped sub-layers."""
        if layout is not None or skip != NOTHING:
            raise ValueError(f"{self.program} computes chains, through all layers")
        return self.run(tokens, start)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return `hidden`: `forward` has computed the logits."""
        return hidden

    def keep(self, rows: Sequence[int], start: int) -> None:
        raise ValueError(f"{self.program} computes chains")

    def next_logits(self, token: int, start: int) -> Tensor:
        """Logits float32 [vocab] after `token` at position `start`."""
        return self.run([token], start)[0].clone()

    def reusable(self, length: int, _: int) -> int:
        """Tokens, up to `length`, after which a text may go on with the KV entries it would have from the start."""
        return min(length // UNEVEN_BLOCK * UNEVEN_BLOCK, self._whole) if self.uneven else length

    def _cut(self, start: int) -> None:
        """Note that entries from `start` on are gone."""
        self._whole = min(self._whole, start // UNEVEN_BLOCK * UNEVEN_BLOCK)

    def _wrote(self, start: int, count: int) -> None:
        """Note that one pass wrote so many entries."""
        if start == self._whole and count == UNEVEN_BLOCK:
            self._whole += UNEVEN_BLOCK

    def likeliest(self, tokens: Sequence[int], start: int, skip: Skip) -> list[int]:
        raise ValueError(f"{self.program} skips no layers")

    def fed(self, tokens: Sequence[int], start: int) -> list[int]:
        """Return `tokens` without padding tokens beyond this vocabulary; raises ValueError where they do not fit."""
        if start + len(tokens) > self.context:
            raise ValueError(f"{len(tokens)} tokens do not fit after {start} of {self.context}")
        return [min(token, self.vocab - 1) for token in tokens]


MOST_ROWS = MAX_DRAFT_LENGTH + 1
"""Largest number of logits rows in a pass: the pending token and the longest draft."""
SHIFT_TOKENS = 5
"""Distance between two passes of MOST_ROWS, which gives each token another row."""
COMPARED_TOKENS = MOST_ROWS + SHIFT_TOKENS
"""Tokens of one comparison that includes passes of MOST_ROWS."""
BUDGET_S = 1.5
"""Seconds after which no further comparison begins."""
SAFETY = 4.0
"""Ratio of the margin of a close choice to the largest difference measured."""
CHECKED = "checked"
Padding = tuple[int, ...]
"""Entry r is how many rows go through a pass in place of r; the last entry is for the most rows there may be."""
UNPADDED: Padding = tuple(range(MOST_ROWS + 1))


@dataclass(frozen=True)
class Proof:
    """Result of a comparison at load.

    Attributes:
        error: bound on the difference of a logit between passes; 0 if rows are equal.
        padding: rows of a pass by its tokens.
        alone: a single row runs unpadded, and only it differs.
        unsupported: reason why drafts are not supported, or "".
    """

    error: float = 0.0
    padding: Padding = UNPADDED
    alone: bool = False
    unsupported: str = ""

    @property
    def uneven(self) -> bool:
        """True if rows depend on the others of a pass whatever their number."""
        return bool(self.error) and not (self.alone or self.unsupported)

    @property
    def exactness(self) -> str:
        """The guarantee of equality with plain decoding, as a sentence."""
        if self.unsupported:
            return "one token after the other: nothing is drafted"
        one = self.padding[1]
        if self.alone:
            several = f"passes of {one} to {MOST_ROWS} rows compared bit for bit"
            again = f"choices closer than {self.error:.1g} in a logit are made again by {one}"
            return f"row-invariant: {several}; one row goes alone, and {again}"
        if self.error:
            again = f"choices closer than {self.error:.1g} in a logit are made again by one row alone"
            return f"{CHECKED}: {again}; {UNEVEN_BLOCK} tokens of a chat are kept at a time"
        alike = f"row-invariant: passes of 1 to {MOST_ROWS} rows compared bit for bit"
        return alike if one == 1 else f"{alike}, one row going as {one}"


@dataclass(frozen=True)
class Differences:
    """Largest difference of a logit by number of rows, and largest standard deviation of a row's logits."""

    by_rows: dict[int, float]
    spread: float

    @property
    def largest(self) -> float:
        return max(self.by_rows.values())


def require_context(model: ChainOnlyModel, longest: int | None, least: int) -> None:
    """Raise ModelError for a context below the `least` tokens of a comparison; its files state `longest` at most."""
    if model.context >= least:
        return
    if longest is not None and longest < least:
        stated = f"{model.label} states a context of {longest}, and a chat needs {least} tokens"
        raise ModelError(f"{stated}. Get the model from elsewhere.")
    short = f"{model.label}: context = {model.context} is too short"
    raise ModelError(f"{short}. Set context = {least} or more for this pair in models.toml.")


def pass_tokens(length: int, vocab: int) -> list[int]:
    """Return token ids to compare passes with."""
    return [(7919 * (index + 1)) % vocab for index in range(length)]


def compare(
    model: ChainOnlyModel, positions: Sequence[int], counts: Collection[int], passes: int, certain: int
) -> Differences:
    """Compare passes of each of `counts` rows with one of MOST_ROWS. The cache's content is lost.

    Args:
        positions: where the passes of MOST_ROWS begin, ascending; the first `certain` ones are compared however long
            that takes.
        passes: largest number of passes of each count.
    """
    tokens = pass_tokens(min(positions[-1] + COMPARED_TOKENS, model.context), model.vocab)
    by_rows, spread = dict.fromkeys(counts, 0.0), 0.0
    begun, written = perf_counter(), 0
    for number, start in enumerate(positions):
        if number >= certain and perf_counter() - begun > BUDGET_S:
            break
        if start > written:
            model.write(tokens[written:start], written)
        written = start
        whole = model.forward(tokens[start : start + MOST_ROWS], start).clone()
        spread = max(spread, float(whole.std(-1).max()))
        for rows in counts:
            by_rows[rows] = max(by_rows[rows], _difference(model, tokens, start, whole, rows, passes))
    return Differences(by_rows, spread)


def _difference(
    model: ChainOnlyModel, tokens: Sequence[int], start: int, whole: Tensor, rows: int, passes: int
) -> float:
    """Largest difference from `whole`, the logits of MOST_ROWS tokens; another pass of as many begins later."""
    largest = 0.0
    if rows == MOST_ROWS:
        model.write(tokens[start : start + SHIFT_TOKENS], start)
    offsets = range(0, MOST_ROWS - rows + 1, rows)[:passes] if rows < MOST_ROWS else (SHIFT_TOKENS,)
    for at in offsets:
        logits = model.forward(tokens[start + at : start + at + rows], start + at)[: MOST_ROWS - at]
        other = whole[at : at + rows]
        if not torch.equal(logits, other):
            largest = max(largest, float((logits - other).abs().max()), torch.finfo(torch.float32).tiny)
    return largest
