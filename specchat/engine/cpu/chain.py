"""Draft chains in one compiled call: passes, choices and the end of the draft, without Python in between.

It follows `decoding/host_loops.py`, which drafts the same tokens one call each where this cannot run.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu.atomics import address
from specchat.engine.cpu.choice import draw, probability
from specchat.engine.cpu.nested_speculation import initial_acceptance, propose, update_acceptance
from specchat.engine.cpu.rowwise import copy_vector, multiply_by, norm
from specchat.engine.cpu.scoring import run_head, run_layers
from specchat.engine.cpu.signatures import HEAD_ARGS, LAYER_ARGS
from specchat.engine.cpu.simd import Address, Count, constant, inner, primitive, python_callable, store
from specchat.engine.cpu.tiles import BFLOAT16, FLOAT16, FLOAT32, load_widened
from specchat.engine.kernels.streams import TOKEN
from specchat.engine.memory.vectors import LANES
from specchat.engine.model.decoder import ChainParameters

_draw: Any = draw
_COUNTERS = -1
"""Index of the counters in `layer_args` and `head_args`."""
_LOGITS = 6


@primitive
def _read_row(builder: Any, form: int, packed: Address, token: Count, inputs: Count, out: Address) -> None:
    """Write row `token` of a packed dense matrix as float32 [inputs] to `out`."""
    panel = builder.mul(builder.sdiv(token, constant(LANES)), inputs)
    first = builder.add(builder.mul(panel, constant(LANES)), builder.srem(token, constant(LANES)))
    with cgutils.for_range(builder, inputs) as loop:
        place = builder.add(first, builder.mul(loop.index, constant(LANES)))
        store(builder, load_widened(builder, form, packed, place, 1), out, loop.index)


@inner
def _embed(form: int, packed: int, token: int, inputs: int, out: int) -> None:
    if form == FLOAT16:
        _read_row(FLOAT16, packed, token, inputs, out)
    elif form == BFLOAT16:
        _read_row(BFLOAT16, packed, token, inputs, out)
    else:
        _read_row(FLOAT32, packed, token, inputs, out)


@inner
def _choose(logits: Any, row: int, temperature: np.float32, seed: np.uint64, position: int, scores: Any) -> int:
    """Choose the token of a row of logits at a position, -1 for none; fill `scores`."""
    if temperature > 0:
        for i in range(len(scores)):
            scores[i] = logits[row, i] / temperature
        found: int = _draw(scores, seed, position, TOKEN)
        return found
    token, top = -1, np.float32(-np.inf)
    for i in range(len(scores)):
        scores[i] = logits[row, i]
        if scores[i] > top:
            top, token = scores[i], i
    return token


@python_callable(
    types.int64(
        *[types.int64] * 5,
        types.float32,
        types.int64,
        types.Array(types.int64, 1, "C"),
        types.Array(types.float64, 1, "C"),
        types.Array(types.int64, 2, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.float32, 2, "C"),
        types.UniTuple(types.int64, 2),
        LAYER_ARGS,
        HEAD_ARGS,
        *[types.Array(types.float32, 2, "C")] * 3,
        types.boolean,
        types.float32,
        types.float32,
        types.uint64,
        types.Array(types.float64, 2, "C"),
        types.float64,
        types.float64,
        types.Array(types.int64, 1, "C"),
        types.Array(types.float32, 1, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.float64, 1, "C"),
    ),
)
def draft_chain(
    rows: int,
    start: int,
    limit: int,
    nested: int,
    embed: int,
    embed_scale: np.float32,
    form: int,
    token_ids: Any,
    acceptance: Any,
    span: Any,
    ancestors: Any,
    x: Any,
    addresses: Any,
    layer_args: Any,
    head_args: Any,
    inputs: Any,
    norms: Any,
    made: Any,
    onto_normed: bool,
    eps: np.float32,
    temperature: np.float32,
    seed: np.uint64,
    calibration: Any,
    prefix_acceptance: float,
    min_acceptance: float,
    ends: Any,
    scores: Any,
    tokens: Any,
    confidence: Any,
) -> int:
    """Draft up to `limit` tokens and return their number; -1 if all scores of a token are -inf or NaN.

    Args:
        rows: tokens of the first pass, from position `start` on; the cache holds all earlier KV entries.
        nested: most proposed tokens that go along in a pass; see `nested_speculation.py`. 0 for a head.
        embed: address of the packed embeddings, stored as `form` and multiplied by `embed_scale`.
        token_ids: int64 [capacity + 1], by position, up to the tokens of the first pass; filled with proposed and
            drafted tokens after them.
        acceptance: as in `nested_speculation.propose`.
        span: int64 [1, 4], the rows as one span; `ancestors` is empty.
        x: float32 [>= rows + `nested`, hidden]; for a head the features of the rows, which stand one position before
            their tokens.
        addresses: `passes.PASS_ADDRESSES`, of `layers` and of `head`, whose logits have 1 + `nested` rows.
        inputs: float32 [>= rows, 2 hidden], the inputs of a head's attention; no rows for a model.
        norms: float32 [2, hidden], a head's norms of tokens and of features.
        made: float32 [capacity, hidden], filled with the features that a head made.
        onto_normed: True if a head adds to normed features; `eps` belongs to `norms`.
        temperature: 0 takes the largest score.
        calibration: float64 [3, bins]: upper bounds of probability (none for the last bin), acceptance rate of tokens
            in the bin, and acceptance rate of the tokens after them; see `decoding/length_policy.py`.
        prefix_acceptance: probability that every earlier draft token is accepted. The draft ends when this,
            times the next token's rate, falls below `min_acceptance`.
        ends: int64 [any], tokens after which the draft ends.
        scores: float32 [vocab], scratch.
        tokens, confidence: int64 and float64 [>= limit], filled with the draft.
    """
    hidden, headed = x.shape[1], len(inputs) > 0
    to, width = (address(inputs), 8 * hidden) if headed else (address(x), 4 * hidden)
    logits, n = head_args[_LOGITS], 0
    while n < limit:
        end = start + rows
        length, proposed = propose(token_ids, end, min(nested, limit - n - 1), acceptance)
        for r in range(rows + proposed):
            _embed(form, embed, token_ids[start + r], hidden, to + r * width)
            if embed_scale != 1:
                multiply_by(to + r * width, hidden, embed_scale)
        if headed:
            for r in range(rows):
                token, feature, row = to + r * width, to + r * width + 4 * hidden, address(x) + 4 * r * hidden
                norm(token, address(norms), token, hidden, eps)
                norm(row, address(norms) + 4 * hidden, feature, hidden, eps)
                if onto_normed:
                    copy_vector(feature, row, hidden)
        span[0, 1] = rows + proposed
        layer_args[_COUNTERS][:] = 0
        run_layers(addresses[0], (x, rows + proposed, start - headed, span, ancestors, *layer_args, 0, 1))
        head_args[_COUNTERS][:] = 0
        run_head(addresses[1], (x[rows - 1 : rows + proposed], 1 + proposed, *head_args, 0, 1))
        if headed:
            copy_vector(address(x), address(made) + 4 * start * hidden, rows * hidden)
            copy_vector(address(x) + 4 * (rows - 1) * hidden, address(x), hidden)
        accepted = 0
        while True:
            token = _choose(logits, accepted, temperature, seed, end + accepted, scores)
            if token < 0:
                return -1
            tokens[n], confidence[n] = token, probability(scores, token)
            bin_index = 0
            while bin_index < calibration.shape[1] - 1 and calibration[0, bin_index] < confidence[n]:
                bin_index += 1
            n += 1
            prefix_acceptance *= calibration[1, bin_index]
            ended = prefix_acceptance * calibration[2, bin_index] < min_acceptance
            for last in ends:
                ended = ended or token == last
            if ended:
                update_acceptance(acceptance, length, proposed, accepted)
                return n
            if accepted == proposed or token != token_ids[end + accepted]:
                break
            accepted += 1
        update_acceptance(acceptance, length, proposed, accepted)
        start, rows = end + accepted, 1
        token_ids[start] = token
    return n


_draft_chain: Any = draft_chain
NO_FEATURES: tuple[Any, ...] = (*[np.zeros((0, 0), np.float32)] * 3, False, 0.0)
"""Arguments of `draft_chain` for a head, where a model drafts."""


def form_of(packed: NDArray[Any]) -> int:
    """Storage format of packed embeddings."""
    return BFLOAT16 if packed.dtype == np.int16 else FLOAT16 if packed.dtype == np.float16 else FLOAT32


class Chains:
    """Drafter of chains on the arrays of one decoder, in one thread."""

    def __init__(
        self,
        addresses: tuple[int, int],
        embed: NDArray[Any],
        vocab: int,
        embed_scale: float,
        token_ids: NDArray[np.int64],
        x: NDArray[np.float32],
        layer_args: tuple[Any, ...],
        head_args: tuple[Any, ...],
        feature_args: tuple[Any, ...] = NO_FEATURES,
    ) -> None:
        """Keep the arguments that all chains share; see `draft_chain`.

        `layer_args` and `head_args` are those of the passes after their rows, `feature_args` those for a head.
        """
        self._last, self._token_ids, self._feature_args = vocab - 1, token_ids, feature_args
        self._addresses = addresses
        self._embed, self._x, self._layer_args, self._head_args = embed, x, layer_args, head_args
        self._form, self._embed_scale = form_of(embed), embed_scale
        self._nested = 0 if len(feature_args[0]) else len(head_args[_LOGITS]) - 1
        self._acceptance = initial_acceptance()
        self._span, self._ancestors = np.zeros((1, 4), np.int64), np.zeros(0, np.int64)
        self._scores: dict[int, NDArray[np.float32]] = {}

    def draft_chain(self, tokens: Sequence[int], start: int, chain: ChainParameters) -> list[tuple[int, float]]:
        """Draft a chain; see `CachedDecoder.draft_chain`."""
        # A target may choose a padding token that a draft model has no row for.
        self._token_ids[start : start + len(tokens)] = np.minimum(np.array(tokens, np.int64), self._last)
        made, confidence = np.empty(chain.limit, np.int64), np.empty(chain.limit, np.float64)
        scores = self._scores.setdefault(chain.vocab, np.empty(chain.vocab, np.float32))
        count = _draft_chain(
            len(tokens),
            start,
            chain.limit,
            self._nested,
            self._embed.ctypes.data,
            self._embed_scale,
            self._form,
            self._token_ids,
            self._acceptance,
            self._span,
            self._ancestors,
            self._x,
            self._addresses,
            self._layer_args,
            self._head_args,
            *self._feature_args,
            chain.temperature,
            np.uint64(chain.seed),
            chain.calibration,
            chain.prefix_acceptance,
            chain.min_acceptance,
            chain.ends,
            scores,
            made,
            confidence,
        )
        return list(zip(made[:count].tolist(), confidence[:count].tolist(), strict=True)) if count >= 0 else []
