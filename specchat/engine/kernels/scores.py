"""Scores from logits: penalties, logit bias, temperature, and statistics of each block of the vocabulary.

The reference is `Sampler.scores` of decoding/sampler.py without filters, which need the whole row (`choose`).
"""

import triton
import triton.language as tl
from torch import Tensor

from specchat.engine.kernels import noise
from specchat.engine.kernels.verify_state import (
    BIASED,
    BLOCK,
    BY_BLOCKS,
    FILTERED,
    FREQUENCY,
    GREEDY,
    GROUP,
    PENALISED,
    PRESENCE,
    REPETITION,
    TEMPERATURE,
    Scored,
    StridedScores,
    VerifyState,
)

WARPS = 8

_TEMPERATURE, _REPETITION = tl.constexpr(TEMPERATURE), tl.constexpr(REPETITION)
_PRESENCE, _FREQUENCY = tl.constexpr(PRESENCE), tl.constexpr(FREQUENCY)
_GREEDY, _PENALISED = tl.constexpr(GREEDY), tl.constexpr(PENALISED)
_BIASED, _FILTERED = tl.constexpr(BIASED), tl.constexpr(FILTERED)
_BY_BLOCKS = tl.constexpr(BY_BLOCKS)
_BLOCK, _GROUP = tl.constexpr(BLOCK), tl.constexpr(GROUP)


@triton.jit(do_not_specialize=["first_row", "columns", "vocab"])  # type: ignore[untyped-decorator]
def _process(
    logits: tl.tensor,
    state: VerifyState,
    out: StridedScores,
    first_row: tl.tensor,
    columns: tl.tensor,
    vocab: tl.tensor,
    stride_logits: tl.tensor,
) -> None:
    scored, strides = out.rows, out.strides
    row = tl.program_id(0)
    block = tl.program_id(1)
    drafted = tl.load(state.node)
    at = drafted + first_row + row
    token = block * _BLOCK + tl.arange(0, _BLOCK)
    inside = token < columns
    greedy = tl.load(state.integers + _GREEDY) != 0
    s = tl.load(logits + row.to(tl.int64) * stride_logits + token, mask=inside, other=float("-inf"))
    s = tl.where(s == s, s, float("-inf"))
    if tl.load(state.integers + _PENALISED) != 0:
        count = tl.load(state.counts + token, mask=inside, other=0)
        # A row is judged as if the draft tokens of its path were part of the reply.
        ahead = tl.load(state.path + at).to(tl.uint64) >> 1
        fed = state.fed + 1
        while ahead != 0:
            if (ahead & 1) != 0:
                count += (token == tl.load(fed)).to(tl.int32)
            ahead >>= 1
            fed += 1
        seen = (tl.load(state.in_prompt + token, mask=inside, other=0) != 0) | (count > 0)
        repetition = tl.load(state.reals + _REPETITION)
        s = tl.where(seen, tl.where(s > 0.0, tl.div_rn(s, repetition), s * repetition), s)
        lowered = tl.load(state.reals + _PRESENCE) + tl.load(state.reals + _FREQUENCY) * count.to(tl.float32)
        s = tl.where(count > 0, s - lowered, s)
    if tl.load(state.integers + _BIASED) != 0:
        s += tl.load(state.bias + token, mask=inside, other=0.0)
    if not greedy:
        s = tl.div_rn(s, tl.load(state.reals + _TEMPERATURE))
    # A bias or logit of +inf would make NaN later, and -0.0 and 0.0 are one score.
    s = tl.where(inside & (s == s), tl.minimum(s, 3.4028234663852886e38), float("-inf"))
    s = tl.where(s == 0.0, 0.0, s)
    written = drafted + row
    tl.store(scored.scores + written.to(tl.int64) * strides.scores + token, s, mask=token < vocab)

    place = written * strides.blocks + block
    groups: tl.constexpr = _BLOCK // _GROUP
    tl.store(
        scored.tops + written * strides.tops + block * groups + tl.arange(0, groups),
        tl.max(tl.reshape(s, (groups, _GROUP)), 1),
    )
    top = tl.max(s, 0)
    tl.store(scored.best + place, top)
    tl.store(scored.best_id + place, tl.min(tl.where(s == top, token, 2147483647), 0))
    tl.store(scored.total + place, tl.sum(tl.exp(s - tl.where(top == float("-inf"), 0.0, top)), 0))
    if (tl.load(state.integers + _GREEDY) == 0) & (tl.load(state.integers + _FILTERED) == 0):
        position = tl.load(state.length) + 1 + tl.load(state.depth + at)
        stream = noise.drafting(drafted, tl.load(state.integers + _BY_BLOCKS))
        noisy = s + noise.gumbel(tl.load(state.seed), position, stream, token)
        most = tl.max(noisy, 0)
        tl.store(scored.drawn + place, most)
        tl.store(scored.drawn_id + place, tl.min(tl.where(noisy == most, token, 2147483647), 0))


def process(logits: Tensor, state: VerifyState, first_row: int, scored: Scored, rows: int, columns: int) -> None:
    """Apply penalties, bias and temperature to each row, and compute the statistics of each block of its vocabulary.

    Row r is the step's node n + r, n = first_row + `state.node`. It chooses the token at position
    length + 1 + depth[n + r], and its penalties count the draft tokens of its path. It goes into row node + r of
    `scored`. NaN counts as -inf. Without filters noise is added here, on all multiprocessors at once, and `choose`
    compares one candidate a block.

    Args:
        logits: float32 [R, V], V may be padded.
        scored: `rows` rows of it are written.
        columns: number of logits of tokens; tokens from there up to state.vocab score -inf.
    """
    _process[(rows, triton.cdiv(state.vocab, BLOCK))](
        logits,
        state,
        scored.strided,
        first_row,
        columns,
        state.vocab,
        logits.stride(0),
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
