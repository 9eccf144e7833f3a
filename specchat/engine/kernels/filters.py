"""Top-k, top-p and min-p of one row without sorting, as a threshold and a last token among scores equal to it.

Scores are compared as keys, int32 in the order of their float32, so that bisection of keys ends exactly on a score.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from specchat.engine.kernels.verify_state import LOG_MIN_P, TAIL, TOP_K, TOP_P, Scored, VerifyState

_TOP_K, _TOP_P = tl.constexpr(TOP_K), tl.constexpr(TOP_P)
_TAIL, _LOG_MIN_P = tl.constexpr(TAIL), tl.constexpr(LOG_MIN_P)


class Candidates(NamedTuple):
    """Tokens of a row that may be kept: the first `count` of `tokens` if `listed`, otherwise ids below `count`."""

    tokens: tl.tensor
    count: tl.tensor
    listed: tl.tensor


class Distribution(NamedTuple):
    """A row after `choose`: p(token) = exp(score - top) / mass where `keeps(score, token, cut, last)`, else 0."""

    scores: tl.tensor
    cut: tl.tensor
    last: tl.tensor
    top: tl.tensor
    mass: tl.tensor


class RowScores(NamedTuple):
    """Scores of a row, the largest of each block and of each group, and where its candidates are listed."""

    scores: tl.tensor
    best: tl.tensor
    tops: tl.tensor
    candidates: tl.tensor


class ListedCandidates(NamedTuple):
    """The first `count` candidates of a row whose largest score is `top`."""

    scores: tl.tensor
    candidates: tl.tensor
    count: tl.tensor
    top: tl.tensor


class VocabularyShape(NamedTuple):
    """Constants of a program: tokens of a block, groups of a vocabulary up to a power of 2, and tokens of a group."""

    block: int
    groups: int
    group: int


LOWEST = tl.constexpr(-2139095041)
"""Key of -inf: never kept."""


@triton.jit  # type: ignore[untyped-decorator]
def key(score: tl.tensor) -> tl.tensor:
    """int32 key in the order of the float32 `score`; no NaN, no -0.0."""
    bits = score.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def keeps(score: tl.tensor, token: tl.tensor, cut: tl.tensor, last: tl.tensor) -> tl.tensor:
    """Mask of kept tokens: the key is over `cut`, or equal to it and the token not after `last`."""
    k = key(score)
    return (k > LOWEST) & ((k > cut) | ((k == cut) & (token <= last)))


@triton.jit  # type: ignore[untyped-decorator]
def distribution(scored: Scored, stride: tl.tensor, row: tl.tensor, wanted: tl.tensor) -> Distribution:
    """Load the distribution that `choose` wrote for a row of `scored`; one of no tokens if not `wanted`."""
    kept, norm = scored.kept + row * 4, scored.norm + row * 4
    return Distribution(
        scored.scores + row.to(tl.int64) * stride,
        tl.load(kept, mask=wanted, other=0),
        tl.load(kept + 1, mask=wanted, other=0),
        tl.load(norm, mask=wanted, other=0.0),
        tl.load(norm + 1, mask=wanted, other=1.0),
    )


@triton.jit  # type: ignore[untyped-decorator]
def probability(of: Distribution, token: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Probabilities float32 of `token`, 0 where not `inside`."""
    s = tl.load(of.scores + token, mask=inside, other=float("-inf"))
    return tl.where(keeps(s, token, of.cut, of.last), tl.exp(s - of.top) / of.mass, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def better(most: tl.tensor, token: tl.tensor, values: tl.tensor, ids: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Largest of `most` and `values` and its token; the earlier one, then the lowest, among equals."""
    found = tl.max(values, 0)
    lowest = tl.min(tl.where(values == found, ids, 2147483647), 0)
    return tl.maximum(most, found), tl.where(found > most, lowest, token)


@triton.jit  # type: ignore[untyped-decorator]
def tokens(
    candidates: tl.tensor, start: tl.tensor, n: tl.tensor, listed: tl.tensor, BLOCK: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Tokens from index `start` on of the first `n` candidates, or of the vocabulary if not `listed`; with a mask."""
    place = start + tl.arange(0, BLOCK)
    inside = place < n
    return tl.load(candidates + place, mask=inside & listed, other=place), inside


@triton.jit  # type: ignore[untyped-decorator]
def _middle(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """Middle of two int32, rounded down, without overflow."""
    return (low & high) + ((low ^ high) >> 1)


@triton.jit  # type: ignore[untyped-decorator]
def _quarters(low: tl.tensor, high: tl.tensor) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Three int32 over `low` that divide low .. high, equal ones if it is shorter than four; without overflow."""
    middle = _middle(low, high) + 1
    return _middle(low, middle - 1) + 1, middle, _middle(middle - 1, high) + 1


@triton.jit  # type: ignore[untyped-decorator]
def _counts(keys: tl.tensor, least: tl.tensor, middle: tl.tensor, most: tl.tensor) -> tl.tensor:
    """Counts of `keys` at least each of three numbers: 21 bits each of an int64, for a single sum."""
    many = (keys >= least).to(tl.int64) + ((keys >= middle).to(tl.int64) << 21) + ((keys >= most).to(tl.int64) << 42)
    return tl.sum(many, 0)


@triton.jit  # type: ignore[untyped-decorator]
def _narrowed(
    low: tl.tensor, high: tl.tensor, least: tl.tensor, middle: tl.tensor, most: tl.tensor, counts: tl.tensor,
    k: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:  # fmt: skip
    """Quarter of low .. high with the largest number that k keys reach, from the counts of `_counts`."""
    by_least = (counts & 0x1FFFFF) >= k
    by_middle = ((counts >> 21) & 0x1FFFFF) >= k
    by_most = (counts >> 42) >= k
    low = tl.where(by_most, most, tl.where(by_middle, middle, tl.where(by_least, least, low)))
    high = tl.where(by_most, high, tl.where(by_middle, most, tl.where(by_least, middle, least)) - 1)
    return low, tl.maximum(low, high)


@triton.jit  # type: ignore[untyped-decorator]
def _gather(
    scores: tl.tensor, best: tl.tensor, candidates: tl.tensor, floor: tl.tensor, vocab: tl.tensor, BLOCK: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """List the tokens whose key is at least `floor`, in ascending order; return their number and smallest key."""
    n = tl.full((), 0, tl.int32)
    lowest = tl.full((), 2147483647, tl.int32)
    for start in range(0, vocab, BLOCK):
        if key(tl.load(best + start // BLOCK)) >= floor:
            token = start + tl.arange(0, BLOCK)
            k = key(tl.load(scores + token, mask=token < vocab, other=float("-inf")))
            wanted = k >= floor
            rank = tl.cumsum(wanted.to(tl.int32), 0)
            tl.store(candidates + n + rank - 1, token, mask=wanted)
            n += tl.sum(wanted.to(tl.int32), 0)
            lowest = tl.minimum(lowest, tl.min(tl.where(wanted, k, 2147483647), 0))
    # Other threads of this program read the list.
    tl.debug_barrier()
    return n, lowest


@triton.jit  # type: ignore[untyped-decorator]
def _candidates(listed: ListedCandidates, start: tl.tensor, BLOCK: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """Keys and exp(score - top) of the candidates from index `start` on; the key of -inf and 0 after the last."""
    ids, inside = tokens(listed.candidates, start, listed.count, True, BLOCK)
    s = tl.load(listed.scores + ids, mask=inside, other=float("-inf"))
    return key(s), tl.where(inside, tl.exp(s - listed.top), 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _mass_over(
    listed: ListedCandidates, above: tl.tensor, keys: tl.tensor, weights: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """Sum of exp(score - top) of candidates with a key over `above`; the first BLOCK are `keys`, `weights`."""
    mass = tl.sum(tl.where(keys > above, weights, 0.0), 0)
    for start in range(BLOCK, listed.count, BLOCK):
        more, weight = _candidates(listed, start, BLOCK)
        mass += tl.sum(tl.where(more > above, weight, 0.0), 0)
    return mass


@triton.jit  # type: ignore[untyped-decorator]
def _kth(
    listed: ListedCandidates, k: tl.tensor, low: tl.tensor, high: tl.tensor, keys: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """Key of the k-th largest candidate, from `low` to `high`; `keys` are those of the first BLOCK candidates."""
    while low < high:
        least, middle, most = _quarters(low, high)
        counts = _counts(keys, least, middle, most)
        for start in range(BLOCK, listed.count, BLOCK):
            more, _ = _candidates(listed, start, BLOCK)
            counts += _counts(more, least, middle, most)
        low, high = _narrowed(low, high, least, middle, most, counts, k)
    return low


@triton.jit  # type: ignore[untyped-decorator]
def _bound(
    tops: tl.tensor, k: tl.tensor, vocab: tl.tensor, high: tl.tensor, GROUPS: tl.constexpr, GROUP: tl.constexpr
) -> tl.tensor:
    """Key of the k-th largest group maximum, at least one over that of -inf: at least k scores reach it."""
    g = tl.arange(0, GROUPS)
    keys = key(tl.load(tops + g, mask=g < tl.cdiv(vocab, GROUP), other=float("-inf")))
    low = tl.full((), LOWEST + 1, tl.int32)
    while low < high:
        least, middle, most = _quarters(low, high)
        low, high = _narrowed(low, high, least, middle, most, _counts(keys, least, middle, most), k)
    return low


@triton.jit  # type: ignore[untyped-decorator]
def _last_of_equals(
    scores: tl.tensor, candidates: tl.tensor, n: tl.tensor, cut: tl.tensor, wanted: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """Token of the `wanted`-th candidate whose key is `cut`."""
    last = tl.full((), -1, tl.int32)
    met = tl.full((), 0, tl.int32)
    for start in range(0, n, BLOCK):
        ids, inside = tokens(candidates, start, n, True, BLOCK)
        s = tl.load(scores + ids, mask=inside, other=float("-inf"))
        equal = (inside & (key(s) == cut)).to(tl.int32)
        rank = met + tl.cumsum(equal, 0)
        last = tl.maximum(last, tl.max(tl.where((equal != 0) & (rank <= wanted), ids, -1), 0))
        met += tl.sum(equal, 0)
    return last


@triton.jit  # type: ignore[untyped-decorator]
def cut(
    row: RowScores, state: VerifyState, top: tl.tensor, mass: tl.tensor, vocab: tl.tensor, shape: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Filter a row whose largest score is `top` > -inf and whose sum of exp(score - top) is `mass`.

    Returns the number of listed candidates, `cut` and `last` for `keeps`, and the mass of the kept tokens.
    """
    BLOCK: tl.constexpr = shape.block
    k = tl.load(state.integers + _TOP_K)
    top_p = tl.load(state.reals + _TOP_P)
    high = key(top)
    by_min_p = tl.minimum(key(top + tl.load(state.reals + _LOG_MIN_P)), high)
    floor = tl.full((), LOWEST + 1, tl.int32)
    if (k > 0) & (k <= tl.cdiv(vocab, shape.group)):
        floor = _bound(row.tops, k, vocab, high, shape.groups, shape.group)
    if top_p < 1.0:
        # All tokens this improbable together weigh less than 1 - top_p, with room for rounding. Top-k leaves a mass of
        # at least 1 = exp(top - top).
        log_mass = tl.where(k > 0, 0.0, tl.log(mass))
        floor = tl.maximum(floor, key(top + log_mass + tl.load(state.reals + _TAIL) - 0.01))
    else:
        floor = tl.maximum(floor, by_min_p)
    n, low = _gather(row.scores, row.best, row.candidates, floor, vocab, BLOCK)
    listed = ListedCandidates(row.scores, row.candidates, n, top)
    # Mostly these are all candidates: bisection then runs in registers.
    keys, weights = _candidates(listed, tl.full((), 0, tl.int32), BLOCK)
    if k > 0:
        low = _kth(listed, k, low, high, keys, BLOCK)
    last = vocab
    if top_p < 1.0:
        if k > 0:
            mass = _mass_over(listed, low - 1, keys, weights, BLOCK)
        share = top_p * mass
        # The smallest key with a mass over it of less than the share; tokens with this key fill it up.
        while low < high:
            middle = _middle(low, high)
            less = _mass_over(listed, middle, keys, weights, BLOCK) < share
            low, high = tl.where(less, low, middle + 1), tl.where(less, middle, high)
        short = share - _mass_over(listed, low, keys, weights, BLOCK)
        value = (low ^ ((low >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        wanted = tl.maximum(tl.ceil(tl.minimum(short / tl.exp(value - top), 1073741824.0)).to(tl.int32), 1)
        last = _last_of_equals(row.scores, row.candidates, n, low, wanted, BLOCK)
    if by_min_p > low:
        low = by_min_p
        last = vocab
    kept_mass = tl.full((), 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        ids, inside = tokens(row.candidates, start, n, True, BLOCK)
        s = tl.load(row.scores + ids, mask=inside, other=float("-inf"))
        kept_mass += tl.sum(tl.where(keeps(s, ids, low, last), tl.exp(s - top), 0.0), 0)
    return n, low, last, kept_mass
