"""State of verification on the device: the step's tokens and tree, sampling options, processed logits.

All tensors are allocated once, because captured graphs hold their addresses; the host copies into them.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import torch
import triton
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.kernels.gpu_shapes import END_TOKENS
from specchat.engine.kernels.transfer import send
from specchat.engine.protocol.options import Acceptance, Sampling
from specchat.engine.protocol.picture_ids import of_text

BLOCK = 4096
"""Tokens of the vocabulary for one program of `scores.process`, and for one loop iteration in `choose`."""
GROUP = 128
"""Tokens of a group, which keeps its largest score: the k-th largest of these bounds the k-th score from below."""

TEMPERATURE, REPETITION, PRESENCE, FREQUENCY, TOP_P, TAIL, LOG_MIN_P = range(7)
"""Indices in `VerifyState.reals`."""
GREEDY, PENALISED, BIASED, TOP_K, FILTERED, RATIO, BY_BLOCKS = range(7)
"""Indices in `VerifyState.integers`."""


class Strides(NamedTuple):
    """Elements from a row of `Scored` to the next, in scores and candidates, in values a block, and in `tops`."""

    scores: int
    blocks: int
    tops: int


class Scored(NamedTuple):
    """Rows of processed logits and their statistics; row r of every tensor belongs to one row of a step.

    Kernels take it whole.

    Attributes:
        scores: float32 [R, columns], -inf for tokens not allowed. From `process`, like the next ones.
        best, best_id: float32 and int32 [R, blocks], the largest score of each BLOCK tokens and its lowest token.
        total: float32 [R, blocks], the sum of exp(score - best) of each block.
        drawn, drawn_id: float32 and int32 [R, blocks], the largest score + noise of each block and its token.
        tops: float32 [R, groups], the largest score of each GROUP tokens.
        candidates: int32 [R, columns], tokens that the filters read. From `choose`, like the next ones.
        kept, norm: int32 and float32 [R, 4], the distribution after filters in the first columns: see `choose`.

    Rows may be longer than they need to be.
    """

    scores: Tensor
    best: Tensor
    best_id: Tensor
    total: Tensor
    drawn: Tensor
    drawn_id: Tensor
    tops: Tensor
    candidates: Tensor
    kept: Tensor
    norm: Tensor

    @classmethod
    def create(cls, rows: int, columns: int, device: torch.device | str) -> Self:
        """Allocate `rows` rows of vocabularies up to `columns` tokens; 8 bytes a token and row."""
        blocks = triton.cdiv(columns, BLOCK)

        def aligned(width: int) -> int:
            # Triton compiles another kernel, which may round differently, for rows that do not start at 16 bytes.
            return width + -width % 16

        def reals(width: int) -> Tensor:
            return torch.zeros(rows, aligned(width), device=device)

        def integers(width: int) -> Tensor:
            return torch.zeros(rows, aligned(width), device=device, dtype=torch.int32)

        return cls(
            scores=reals(columns),
            best=reals(blocks),
            best_id=integers(blocks),
            total=reals(blocks),
            drawn=reals(blocks),
            drawn_id=integers(blocks),
            tops=reals(blocks * (BLOCK // GROUP)),
            candidates=integers(columns),
            kept=torch.zeros(rows, 4, device=device, dtype=torch.int32),
            norm=torch.zeros(rows, 4, device=device),
        )

    def row(self, index: int) -> Self:
        """Return row `index` alone, in the same memory."""
        return type(self)(*(tensor[index : index + 1] for tensor in self))

    @property
    def strides(self) -> Strides:
        """Strides of rows, for kernels."""
        return Strides(self.scores.stride(0), self.best.stride(0), self.tops.stride(0))

    @property
    def strided(self) -> "StridedScores":
        """These rows with their strides, for kernels."""
        return StridedScores(self, self.strides)


class StridedScores(NamedTuple):
    """Rows of scores, and elements from one to the next."""

    rows: Scored
    strides: Strides


class AcceptedNodes(NamedTuple):
    """Accepted nodes after `commit`: `VerifyState.length`, `result` and `kept`."""

    length: Tensor
    result: Tensor
    kept: Tensor


class VerifyState(NamedTuple):
    """State of a reply on the device, which kernels take whole.

    Attributes:
        fed: int32 [rows + 1], the pending token as node 0, then the draft tokens as nodes 1, 2, ...
        parents: int32 [rows + 1], each node's parent, an earlier node; -1 for node 0.
        depth: int32 [rows + 1], nodes above each node; node i is at position length + depth[i].
        path: int64 [rows + 1], bit j of path[i] is set if node j is node i or its ancestor.
        drafted: int32 [1], number of draft tokens, a view of `report`; rows after them are ignored.
        length: int32 [1], valid KV entries of the target: the committed tokens but the pending one.
        node: int32 [1], tokens drafted so far in this step; 0 while it verifies.
        sure: float32 [rows], probability of each draft token, from `choose`.
        reals, integers: float32 [8] and int32 [8], sampling options at the indices above.
        seed: int64 [1].
        in_prompt: uint8 [vocab], 1 where a token is in the prompt.
        counts: int32 [vocab], occurrences of a token in the reply.
        bias: float32 [vocab].
        eos: int32 [END_TOKENS], padded with -1.
        report: int32 [3 + 5 * (rows + 1) + 1], what the host reads of a step: `result`, `drafted`, the `fed` that were
            verified, `parents`, and `likeliest`.
    """

    fed: Tensor
    parents: Tensor
    depth: Tensor
    path: Tensor
    drafted: Tensor
    length: Tensor
    node: Tensor
    sure: Tensor
    reals: Tensor
    integers: Tensor
    seed: Tensor
    in_prompt: Tensor
    counts: Tensor
    bias: Tensor
    eos: Tensor
    report: Tensor

    @classmethod
    def create(cls, vocab: int, max_rows: int, device: torch.device | str) -> Self:
        """Allocate state for a vocabulary of `vocab` tokens and `max_rows` rows a step: a chain, greedy, coupled."""

        def zeros(size: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(size, device=device, dtype=dtype)

        report = zeros(3 + 5 * (max_rows + 1) + 1)
        state = cls(
            fed=zeros(max_rows + 1),
            parents=zeros(max_rows + 1),
            depth=zeros(max_rows + 1),
            path=zeros(max_rows + 1, torch.int64),
            drafted=report[3 + 2 * (max_rows + 1) :][:1],
            length=zeros(1),
            node=zeros(1),
            sure=zeros(max_rows, torch.float32),
            reals=zeros(8, torch.float32),
            integers=zeros(8),
            seed=zeros(1, torch.int64),
            in_prompt=zeros(vocab, torch.uint8),
            counts=zeros(vocab),
            bias=zeros(vocab, torch.float32),
            eos=zeros(END_TOKENS),
            report=report,
        )
        state.eos.fill_(-1)
        state.set_tree(())
        state.set_sampling(Sampling())
        return state

    @property
    def vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self.in_prompt.shape[0]

    @property
    def result(self) -> Tensor:
        """Outcome of a step, int32 [3 + 2 * (rows + 1)]: accepted, tested, emitted, the emitted tokens, and `kept`."""
        return self.report[: 3 + 2 * self.fed.shape[0]]

    @property
    def kept(self) -> Tensor:
        """Node 0 and the nodes accepted after it, int32 [rows + 1], padded with -1 as the emitted tokens are."""
        return self.result[3 + self.fed.shape[0] :]

    @property
    def accepted(self) -> AcceptedNodes:
        """The accepted nodes after `commit`, for kernels."""
        return AcceptedNodes(self.length, self.result, self.kept)

    @property
    def likeliest(self) -> Tensor:
        """Token of the largest logit after each node of a tree, int32 [rows + 1]."""
        return self.report[-self.fed.shape[0] :]

    def set_tree(self, parents: Sequence[int]) -> None:
        """Set the draft tree from the next launch on, without waiting.

        Args:
            parents: parents of the nodes 1, 2, ...; the nodes after those form a chain, so that () is a chain. Siblings
                have different tokens.
        """
        nodes = self.fed.shape[0]
        above = [-1, *parents, *range(len(parents), nodes - 1)]
        depth, path = [0], [1]
        for node in range(1, nodes):
            depth.append(depth[above[node]] + 1)
            path.append(path[above[node]] | 1 << node)
        for held, values in ((self.parents, above), (self.depth, depth), (self.path, path)):
            send(values, held)

    def tensors(self) -> list[Tensor]:
        """Tensors that a step changes."""
        return [self.fed, self.length, self.node, self.counts, self.report]

    def set_sampling(self, sampling: Sampling) -> None:
        """Set the sampling options from the next step on."""
        s = sampling
        tail = math.log((1.0 - s.top_p) / self.vocab) if s.top_p < 1.0 else -math.inf
        log_min_p = math.log(s.min_p) if s.min_p > 0.0 else -math.inf
        reals = [s.temperature, s.repetition_penalty, s.presence_penalty, s.frequency_penalty, s.top_p, tail, log_min_p]
        top_k = s.top_k if 0 < s.top_k < self.vocab else 0
        penalised = s.repetition_penalty != 1.0 or s.presence_penalty != 0.0 or s.frequency_penalty != 0.0
        filtered = top_k > 0 or s.top_p < 1.0 or s.min_p > 0.0
        bias = torch.zeros(self.vocab)
        for token, value in s.logit_bias.items():
            if 0 <= token < self.vocab:
                bias[token] = value
        self.reals[: len(reals)].copy_(torch.tensor(reals))
        flags = [s.greedy, penalised, bool(s.logit_bias), top_k, filtered]
        self.integers[: len(flags)].copy_(torch.tensor(flags, dtype=torch.int32))
        self.bias.copy_(bias)
        self.seed.fill_((s.seed + 2**63) % 2**64 - 2**63)

    def set_acceptance(self, acceptance: Acceptance) -> None:
        """Set the acceptance of draft tokens from the next step on, before any are drafted."""
        self.integers[RATIO].fill_(int(acceptance != "coupled"))
        self.integers[BY_BLOCKS].fill_(int(acceptance == "block"))

    def begin(self, prompt: Sequence[int], eos: Iterable[int], before: int | None = None) -> None:
        """Start a reply to `prompt`, whose last token is pending, and whose tokens from `before` on are the reply's.

        Raises:
            ModelError: more than END_TOKENS end-of-text tokens.
        """
        ends = sorted(set(eos))
        if len(ends) > END_TOKENS:
            raise ModelError(
                f"the model has {len(ends)} end-of-text tokens; the GPU kernels take {END_TOKENS} at most: "
                "run it on the CPU"
            )
        self.eos.copy_(torch.tensor([*ends, *[-1] * (END_TOKENS - len(ends))], dtype=torch.int32))
        seen = torch.zeros(self.vocab, dtype=torch.uint8)
        seen[torch.tensor(of_text(prompt), dtype=torch.int64)] = 1
        self.in_prompt.copy_(seen)
        self.place(prompt, len(prompt) if before is None else before)

    def place(self, committed: Sequence[int], prompt: int) -> None:
        """Reset the text to `committed`, the first `prompt` tokens of which are the prompt's."""
        generated = torch.tensor(committed[prompt:], dtype=torch.int64)
        self.counts.copy_(torch.bincount(generated, minlength=self.vocab).to(torch.int32))
        self.length.fill_(len(committed) - 1)
        self.fed[0].fill_(committed[-1])
        self.drafted.zero_()
