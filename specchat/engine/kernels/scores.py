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
    VerifyState,
)

WARPS = 8

_TEMPERATURE, _REPETITION = tl.constexpr(TEMPERATURE), tl.constexpr(REPETITION)
_PRESENCE, _FREQUENCY = tl.constexpr(PRESENCE), tl.constexpr(FREQUENCY)
_GREEDY, _PENALISED = tl.constexpr(GREEDY), tl.constexpr(PENALISED)
_BIASED, _FILTERED = tl.constexpr(BIASED), tl.constexpr(FILTERED)
_BY_BLOCKS = tl.constexpr(BY_BLOCKS)


@triton.jit(do_not_specialize=["first_row", "columns", "vocab"])  # type: ignore[untyped-decorator]
def _process(
    logits: tl.tensor,
    fed: tl.tensor,
    depth: tl.tensor,
    path: tl.tensor,
    length: tl.tensor,
    node: tl.tensor,
    reals: tl.tensor,
    integers: tl.tensor,
    seed: tl.tensor,
    in_prompt: tl.tensor,
    counts: tl.tensor,
    bias: tl.tensor,
    scores: tl.tensor,
    best: tl.tensor,
    best_id: tl.tensor,
    total: tl.tensor,
    drawn: tl.tensor,
    drawn_id: tl.tensor,
    tops: tl.tensor,
    first_row: tl.tensor,
    columns: tl.tensor,
    vocab: tl.tensor,
    stride_logits: tl.tensor,
    stride_scores: tl.tensor,
    stride_blocks: tl.tensor,
    stride_tops: tl.tensor,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    block = tl.program_id(1)
    drafted = tl.load(node)
    at = drafted + first_row + row
    token = block * BLOCK + tl.arange(0, BLOCK)
    inside = token < columns
    greedy = tl.load(integers + _GREEDY) != 0
    s = tl.load(logits + row.to(tl.int64) * stride_logits + token, mask=inside, other=float("-inf"))
    s = tl.where(s == s, s, float("-inf"))
    if tl.load(integers + _PENALISED) != 0:
        count = tl.load(counts + token, mask=inside, other=0)
        # A row is judged as if the draft tokens of its path were part of the reply.
        ahead = tl.load(path + at).to(tl.uint64) >> 1
        fed += 1
        while ahead != 0:
            if (ahead & 1) != 0:
                count += (token == tl.load(fed)).to(tl.int32)
            ahead >>= 1
            fed += 1
        seen = (tl.load(in_prompt + token, mask=inside, other=0) != 0) | (count > 0)
        repetition = tl.load(reals + _REPETITION)
        s = tl.where(seen, tl.where(s > 0.0, tl.div_rn(s, repetition), s * repetition), s)
        lowered = tl.load(reals + _PRESENCE) + tl.load(reals + _FREQUENCY) * count.to(tl.float32)
        s = tl.where(count > 0, s - lowered, s)
    if tl.load(integers + _BIASED) != 0:
        s += tl.load(bias + token, mask=inside, other=0.0)
    if not greedy:
        s = tl.div_rn(s, tl.load(reals + _TEMPERATURE))
    # A bias or logit of +inf would make NaN later, and -0.0 and 0.0 are one score.
    s = tl.where(inside & (s == s), tl.minimum(s, 3.4028234663852886e38), float("-inf"))
    s = tl.where(s == 0.0, 0.0, s)
    scored = drafted + row
    tl.store(scores + scored.to(tl.int64) * stride_scores + token, s, mask=token < vocab)

    place = scored * stride_blocks + block
    groups: tl.constexpr = BLOCK // GROUP
    tl.store(
        tops + scored * stride_tops + block * groups + tl.arange(0, groups), tl.max(tl.reshape(s, (groups, GROUP)), 1)
    )
    top = tl.max(s, 0)
    tl.store(best + place, top)
    tl.store(best_id + place, tl.min(tl.where(s == top, token, 2147483647), 0))
    tl.store(total + place, tl.sum(tl.exp(s - tl.where(top == float("-inf"), 0.0, top)), 0))
    if (tl.load(integers + _GREEDY) == 0) & (tl.load(integers + _FILTERED) == 0):
        position = tl.load(length) + 1 + tl.load(depth + at)
        stream = noise.drafting(drafted, tl.load(integers + _BY_BLOCKS))
        noisy = s + noise.gumbel(tl.load(seed), position, stream, token)
        most = tl.max(noisy, 0)
        tl.store(drawn + place, most)
        tl.store(drawn_id + place, tl.min(tl.where(noisy == most, token, 2147483647), 0))


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
        state.fed,
        state.depth,
        state.path,
        state.length,
        state.node,
        state.reals,
        state.integers,
        state.seed,
        state.in_prompt,
        state.counts,
        state.bias,
        scored.scores,
        scored.best,
        scored.best_id,
        scored.total,
        scored.drawn,
        scored.drawn_id,
        scored.tops,
        first_row,
        columns,
        state.vocab,
        logits.stride(0),
        scored.scores.stride(0),
        scored.best.stride(0),
        scored.tops.stride(0),
        BLOCK=BLOCK,
        GROUP=GROUP,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
