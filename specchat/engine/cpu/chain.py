"""A chain of drafted tokens in one go: passes, choices and the draft's end, without a word of Python between them.

It reads like `decoding/host_loops.py`, which goes token by token where this cannot, and drafts the same tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from specchat.engine.cpu.atomics import address
from specchat.engine.cpu.choice import drawn, probability
from specchat.engine.cpu.guessing import guess, judged, unknown
from specchat.engine.cpu.rowwise import copied, norm, times
from specchat.engine.cpu.scoring import run_head, run_layers
from specchat.engine.cpu.signatures import OF_HEAD, OF_LAYERS
from specchat.engine.cpu.simd import called, constant, constants_primitive, emitted, inner, store
from specchat.engine.cpu.tiles import BFLOAT16, FLOAT16, FLOAT32, widened
from specchat.engine.kernels.streams import TOKEN
from specchat.engine.model.chain_parameters import ChainParameters
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


@inner
def _chosen(logits: Any, row: int, temperature: np.float32, seed: np.uint64, position: int, scores: Any) -> int:
    """The token that a row of logits gives at a position, -1 for none; its `scores` are filled."""
    if temperature > 0:
        for i in range(len(scores)):
            scores[i] = logits[row, i] / temperature
        found: int = _drawn(scores, seed, position, TOKEN)
        return found
    token, top = -1, np.float32(-np.inf)
    for i in range(len(scores)):
        scores[i] = logits[row, i]
        if scores[i] > top:
            top, token = scores[i], i
    return token


@called(
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
    rows: int,
    start: int,
    limit: int,
    ahead: int,
    embed: int,
    embed_scale: np.float32,
    form: int,
    said: Any,
    trust: Any,
    run: Any,
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
    """Draft up to `limit` tokens; their number, or -1 where all scores of one are -inf or NaN.

    Args:
        rows: how many tokens go through first, from slot `start` on; the cache holds all before.
        ahead: how many more may go with them, of which it is guessed that they come; see `guessing.py`. 0 for a head.
        embed: address of the packed embeddings, which lie in `form` and are multiplied by `embed_scale`.
        said: int64 [slots + 1], the tokens by their slots, up to those that go through first; after them is put what
            is guessed and drafted.
        trust: of `guessing.guess`.
        run: int64 [1, 4], rows as a run; `before` is empty.
        x: float32 [>= rows + `ahead`, hidden]; of a head the features of the rows, which stand a slot before their
            tokens.
        entries: `passes.ENTRIES`, of `layers` and of `head`, whose logits have 1 + `ahead` rows.
        inputs: float32 [>= rows, 2 hidden] of a head's attention, its norms of tokens and of features [2, hidden], and
            `made` [slots, hidden], which is filled with the features it made; of no rows where this is not a head.
        onto_normed: whether a head adds to normed features; `eps` is of the `norms`.
        temperature: 0 takes the largest score.
        shares: float64 [3, places]: bounds of probabilities (the last place has none), how often a token stays whose
            probability lies there, and how often the one after it does; see `decoding/length_policy.py`.
        chance: that all that was drafted before stays; the draft ends where it falls below `least`, the next token
            included, and after a token of `ends`, int64 [any].
        scores: float32 [vocab]; `tokens` and `confidence`, int64 and float64 [>= limit], are filled.
    """
    hidden, headed = x.shape[1], len(inputs) > 0
    to, width = (address(inputs), 8 * hidden) if headed else (address(x), 4 * hidden)
    logits, n = of_head[_LOGITS], 0
    while n < limit:
        end = start + rows
        length, guessed = guess(said, end, min(ahead, limit - n - 1), trust)
        for r in range(rows + guessed):
            _looked_up(form, embed, said[start + r], hidden, to + r * width)
            if embed_scale != 1:
                times(to + r * width, hidden, embed_scale)
        if headed:
            for r in range(rows):
                token, feature, row = to + r * width, to + r * width + 4 * hidden, address(x) + 4 * r * hidden
                norm(token, address(norms), token, hidden, eps)
                norm(row, address(norms) + 4 * hidden, feature, hidden, eps)
                if onto_normed:
                    copied(feature, row, hidden)
        run[0, 1] = rows + guessed
        of_layers[_COUNTERS][:] = 0
        run_layers(entries[0], (x, rows + guessed, start - headed, run, before, *of_layers, 0, 1))
        of_head[_COUNTERS][:] = 0
        run_head(entries[1], (x[rows - 1 : rows + guessed], 1 + guessed, *of_head, 0, 1))
        if headed:
            copied(address(x), address(made) + 4 * start * hidden, rows * hidden)
            copied(address(x) + 4 * (rows - 1) * hidden, address(x), hidden)
        right = 0
        while True:
            token = _chosen(logits, right, temperature, seed, end + right, scores)
            if token < 0:
                return -1
            tokens[n], confidence[n] = token, probability(scores, token)
            place = 0
            while place < shares.shape[1] - 1 and shares[0, place] < confidence[n]:
                place += 1
            n += 1
            chance *= shares[1, place]
            ended = chance * shares[2, place] < least
            for last in ends:
                ended = ended or token == last
            if ended:
                judged(trust, length, guessed, right)
                return n
            if right == guessed or token != said[end + right]:
                break
            right += 1
        judged(trust, length, guessed, right)
        start, rows = end + right, 1
        said[start] = token
    return n


_drafted: Any = drafted
NO_FEATURES: tuple[Any, ...] = (*[np.zeros((0, 0), np.float32)] * 3, False, 0.0)
"""What `drafted` takes where no head drafts."""


def form_of(packed: NDArray[Any]) -> int:
    """How packed embeddings lie."""
    return BFLOAT16 if packed.dtype == np.int16 else FLOAT16 if packed.dtype == np.float16 else FLOAT32


class Chains:
    """Drafts chains with the arrays of one decoder, which one thread passes."""

    def __init__(
        self,
        entries: tuple[int, int],
        embed: NDArray[Any],
        vocab: int,
        embed_scale: float,
        said: NDArray[np.int64],
        x: NDArray[np.float32],
        of_layers: tuple[Any, ...],
        of_head: tuple[Any, ...],
        of_features: tuple[Any, ...] = NO_FEATURES,
    ) -> None:
        """`entries` are `passes.ENTRIES`; `embed` is packed, of `vocab` tokens, and
        multiplied by `embed_scale`; `said` has the tokens by slots;
        `of_layers` and `of_head` are what the passes take after their rows, and `of_features` what `drafted` takes of a
        head after these."""
        self._last, self._said, self._of_features = vocab - 1, said, of_features
        self._entries = entries
        self._embed, self._x, self._of_layers, self._of_head = embed, x, of_layers, of_head
        self._form, self._embed_scale = form_of(embed), embed_scale
        self._ahead = 0 if len(of_features[0]) else len(of_head[_LOGITS]) - 1
        self._trust = unknown()
        self._run, self._before = np.zeros((1, 4), np.int64), np.zeros(0, np.int64)
        self._scores: dict[int, NDArray[np.float32]] = {}

    def drafted(self, tokens: Sequence[int], start: int, chain: ChainParameters) -> list[tuple[int, float]]:
        """As `CachedDecoder.drafted`."""
        # A target may choose a padding token that a draft has no row for.
        self._said[start : start + len(tokens)] = np.minimum(np.array(tokens, np.int64), self._last)
        made, confidence = np.empty(chain.limit, np.int64), np.empty(chain.limit, np.float64)
        scores = self._scores.setdefault(chain.vocab, np.empty(chain.vocab, np.float32))
        count = _drafted(
            len(tokens),
            start,
            chain.limit,
            self._ahead,
            self._embed.ctypes.data,
            self._embed_scale,
            self._form,
            self._said,
            self._trust,
            self._run,
            self._before,
            self._x,
            self._entries,
            self._of_layers,
            self._of_head,
            *self._of_features,
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
