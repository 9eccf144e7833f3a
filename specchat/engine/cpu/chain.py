"""A chain of drafted tokens in one go: passes, choices and the draft's end, without a word of Python between them.

It reads like `decoding/host_drafts.py`, which goes token by token where this cannot, and drafts the same tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu.atomics import address
from specchat.engine.cpu.choice import drawn, probability
from specchat.engine.cpu.layout import laid_out
from specchat.engine.cpu.rowwise import copied, norm
from specchat.engine.cpu.scoring import ENTRIES, OF_HEAD, OF_LAYERS, run_head, run_layers
from specchat.engine.cpu.simd import called, constant, constants_primitive, emitted, inner, store
from specchat.engine.cpu.tiles import BFLOAT16, FLOAT16, FLOAT32, widened
from specchat.engine.kernels.streams import TOKEN
from specchat.engine.model.going import Going
from specchat.engine.model.runs import chain
from specchat.engine.model.vectors import LANES

_drawn: Any = drawn
_COUNTERS = -1
"""Where the counters are among both."""
_LOGITS = 5


@constants_primitive
def _column(typing: Any, form: Any, packed: Any, token: Any, inputs: Any, out: Any) -> Any:
    """Row `token` of a packed dense matrix as float32 [inputs] at `out`."""

    def emit(builder: Any, context: Any, arguments: list[Any]) -> None:
        _, packed, token, inputs, out = arguments
        panel = builder.mul(builder.sdiv(token, constant(LANES)), inputs)
        first = builder.add(builder.mul(panel, constant(LANES)), builder.srem(token, constant(LANES)))
        with cgutils.for_range(builder, inputs) as loop:
            place = builder.add(first, builder.mul(loop.index, constant(LANES)))
            store(builder, widened(builder, form.literal_value, packed, place, 1), out, loop.index)

    return emitted([form], 4, emit)


@inner
def _looked_up(form: int, packed: int, token: int, inputs: int, out: int) -> None:
    if form == FLOAT16:
        _column(FLOAT16, packed, token, inputs, out)
    elif form == BFLOAT16:
        _column(BFLOAT16, packed, token, inputs, out)
    else:
        _column(FLOAT32, packed, token, inputs, out)


@called(
    types.int64(
        types.Array(types.int64, 1, "C"),
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        types.Array(types.int64, 2, "C"),
        types.Array(types.int64, 2, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.float32, 2, "C"),
        types.UniTuple(types.int64, 2),
        OF_LAYERS,
        OF_HEAD,
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
def drafted(
    fed: Any,
    start: int,
    limit: int,
    embed: int,
    form: int,
    first: Any,
    one: Any,
    before: Any,
    x: Any,
    entries: Any,
    of_layers: Any,
    of_head: Any,
    inputs: Any,
    norms: Any,
    made: Any,
    onto_normed: bool,
    eps: np.float32,
    temperature: np.float32,
    seed: np.uint64,
    shares: Any,
    chance: float,
    least: float,
    ends: Any,
    scores: Any,
    tokens: Any,
    confidence: Any,
) -> int:
    """Draft up to `limit` tokens after those of `fed`; their number, or -1 where all scores of one are -inf or NaN.

    Args:
        fed: int64 [rows], the tokens that go through first; the cache holds all before slot `start`.
        embed: address of the packed embeddings, which lie in `form`.
        first, one: int64 [1, 4]: the rows of `fed` as a run, and a run of one row; `before` is empty.
        x: float32 [>= rows, hidden]; of a head the features of the rows, which stand a slot before their tokens.
        entries: of `layers` and of `head`.
        inputs: float32 [>= rows, 2 hidden] of a head's attention, its norms of tokens and of features [2, hidden], and
            `made` [slots, hidden], which is filled with the features it made; of no rows where this is not a head.
        onto_normed: whether a head adds to normed features; `eps` is of the `norms`.
        temperature: 0 takes the largest score.
        shares: float64 [3, places]: bounds of probabilities (the last place has none), how often a token stays whose
            probability lies there, and how often the one after it does; see `decoding/stop.py`.
        chance: that all that was drafted before stays; the draft ends where it falls below `least`, the next token
            included, and after a token of `ends`, int64 [any].
        scores: float32 [vocab]; `tokens` and `confidence`, int64 and float64 [>= limit], are filled.
    """
    hidden, rows, vocab = x.shape[1], len(fed), len(scores)
    headed = len(inputs) > 0
    to, width = (address(inputs), 8 * hidden) if headed else (address(x), 4 * hidden)
    for r in range(rows):
        _looked_up(form, embed, fed[r], hidden, to + r * width)
    run, logits = first, of_head[_LOGITS]
    for n in range(limit):
        if headed:
            for r in range(rows):
                token, feature, row = to + r * width, to + r * width + 4 * hidden, address(x) + 4 * r * hidden
                norm(token, address(norms), token, hidden, eps)
                norm(row, address(norms) + 4 * hidden, feature, hidden, eps)
                if onto_normed:
                    copied(feature, row, hidden)
        of_layers[_COUNTERS][:] = 0
        run_layers(entries[0], (x, rows, start - headed, run, before, *of_layers, 0, 1))
        of_head[_COUNTERS][:] = 0
        run_head(entries[1], (x[rows - 1 : rows], 1, *of_head, 0, 1))
        if headed:
            copied(address(x), address(made) + 4 * start * hidden, rows * hidden)
            copied(address(x) + 4 * (rows - 1) * hidden, address(x), hidden)
        start += rows
        rows, run = 1, one
        token = -1
        if temperature > 0:
            for i in range(vocab):
                scores[i] = logits[0, i] / temperature
            token = _drawn(scores, seed, start, TOKEN)
        else:
            top = np.float32(-np.inf)
            for i in range(vocab):
                scores[i] = logits[0, i]
                if scores[i] > top:
                    top, token = scores[i], i
        if token < 0:
            return -1
        tokens[n], confidence[n] = token, probability(scores, token)
        place = 0
        while place < shares.shape[1] - 1 and shares[0, place] < confidence[n]:
            place += 1
        for end in ends:
            if token == end:
                return n + 1
        chance *= shares[1, place]
        if chance * shares[2, place] < least:
            return n + 1
        _looked_up(form, embed, token, hidden, to)
    return limit


_drafted: Any = drafted
_ONE = laid_out(chain(1))
NO_FEATURES: tuple[Any, ...] = (*[np.zeros((0, 0), np.float32)] * 3, False, 0.0)
"""What `drafted` takes where no head drafts."""


def form_of(packed: NDArray[Any]) -> int:
    """How packed embeddings lie."""
    return BFLOAT16 if packed.dtype == np.int16 else FLOAT16 if packed.dtype == np.float16 else FLOAT32


class Chains:
    """Drafts chains with the arrays of one decoder, which one thread passes."""

    def __init__(
        self,
        embed: NDArray[Any],
        vocab: int,
        x: NDArray[np.float32],
        of_layers: tuple[Any, ...],
        of_head: tuple[Any, ...],
        of_features: tuple[Any, ...] = NO_FEATURES,
    ) -> None:
        """`embed` is packed, of `vocab` tokens; `of_layers` and `of_head` are what the passes take after their rows,
        and `of_features` what `drafted` takes of a head after these."""
        self._last, self._of_features = vocab - 1, of_features
        self._embed, self._x, self._of_layers, self._of_head = embed, x, of_layers, of_head
        self._form = form_of(embed)
        self._scores: dict[int, NDArray[np.float32]] = {}

    def drafted(self, tokens: Sequence[int], start: int, going: Going) -> list[tuple[int, float]]:
        """As `CachedDecoder.drafted`."""
        # A target may choose a padding token that a draft has no row for.
        fed = np.minimum(np.array(tokens, np.int64), self._last)
        made, confidence = np.empty(going.limit, np.int64), np.empty(going.limit, np.float64)
        scores = self._scores.setdefault(going.vocab, np.empty(going.vocab, np.float32))
        count = _drafted(
            fed,
            start,
            going.limit,
            self._embed.ctypes.data,
            self._form,
            laid_out(chain(len(tokens))).spans if len(tokens) > 1 else _ONE.spans,
            _ONE.spans,
            _ONE.before,
            self._x,
            ENTRIES,
            self._of_layers,
            self._of_head,
            *self._of_features,
            going.temperature,
            np.uint64(going.seed),
            going.shares,
            going.chance,
            going.least,
            going.ends,
            scores,
            made,
            confidence,
        )
        return list(zip(made[:count].tolist(), confidence[:count].tolist(), strict=True)) if count >= 0 else []
