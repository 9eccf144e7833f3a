"""Candidates after each node of a level: its best tokens by perturbed scores, added to the pool of a growing tree.

Perturbed scores are the scores after all options plus the position's noise, by which the target chooses too. Greedy,
ratio and block acceptance use no noise. Two launches: all blocks of the vocabulary at once, then a program a node.
"""

import triton
import triton.language as tl

from specchat.engine.kernels import filters, noise
from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.verify_state import BLOCK, FILTERED, GREEDY, RATIO, Scored

WARPS = 8

_GREEDY, _FILTERED, _RATIO = tl.constexpr(GREEDY), tl.constexpr(FILTERED), tl.constexpr(RATIO)


@triton.jit(do_not_specialize=["vocab"])  # type: ignore[untyped-decorator]
def _gather(
    scored: Scored,
    growth: GrowthState,
    vocab: tl.tensor,
    stride_scores: tl.tensor,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(scored.scores + row.to(tl.int64) * stride_scores + token, mask=token < vocab, other=float("-inf"))
    if tl.load(growth.step.integers + _GREEDY) == 0:
        if tl.load(growth.step.integers + _FILTERED) != 0:
            cut, last = tl.load(scored.kept + row * 4), tl.load(scored.kept + row * 4 + 1)
            s = tl.where(filters.keeps(s, token, cut, last), s, float("-inf"))
        if tl.load(growth.step.integers + _RATIO) == 0:
            position = tl.load(growth.step.length) + 1 + tl.load(growth.step.depth + row)
            s += noise.gumbel(tl.load(growth.step.seed), position, noise.TOKEN, token)
    top = tl.max(s, 0)
    blocks = tl.num_programs(1)
    tl.store(growth.tops.total + row * blocks + block, tl.sum(tl.exp(s - tl.where(top == float("-inf"), 0.0, top)), 0))
    for k in tl.static_range(WIDTH):
        top = tl.max(s, 0)
        # With fewer candidates any token fills up, with probability 0.
        found = tl.minimum(tl.min(tl.where(s == top, token, 2147483647), 0), vocab - 1)
        tl.store(growth.tops.score + (row * blocks + block) * WIDTH + k, top)
        tl.store(growth.tops.token + (row * blocks + block) * WIDTH + k, found)
        s = tl.where(token == found, float("-inf"), s)


@triton.jit(do_not_specialize=["blocks"])  # type: ignore[untyped-decorator]
def _append(
    scored: Scored,
    growth: GrowthState,
    blocks: tl.tensor,
    stride_scores: tl.tensor,
    BLOCKS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    row = tl.program_id(0)
    b = tl.arange(0, BLOCKS)
    tops = tl.load(growth.tops.score + (row * blocks + b) * WIDTH, mask=b < blocks, other=float("-inf"))
    top = tl.max(tops, 0)
    base = tl.where(top == float("-inf"), 0.0, top)
    mass = tl.sum(tl.load(growth.tops.total + row * blocks + b, mask=b < blocks, other=0.0) * tl.exp(tops - base), 0)
    i = tl.arange(0, BLOCKS * WIDTH)
    s = tl.load(growth.tops.score + row * blocks * WIDTH + i, mask=i < blocks * WIDTH, other=float("-inf"))
    ids = tl.load(growth.tops.token + row * blocks * WIDTH + i, mask=i < blocks * WIDTH, other=2147483647)
    parent = tl.load(growth.frontier.place + row)
    mass = tl.maximum(mass, 1e-30)
    value_above = tl.load(growth.frontier.value + row)
    noisy = (tl.load(growth.step.integers + _GREEDY) == 0) & (tl.load(growth.step.integers + _RATIO) == 0)
    at = tl.load(growth.pool.filled) + row * WIDTH
    for k in tl.static_range(WIDTH):
        top = tl.max(s, 0)
        found = tl.min(tl.where(s == top, ids, 2147483647), 0)
        share = tl.exp(top - base) / mass
        # Rounding must not give a node a larger value than its parent's.
        tl.store(growth.pool.value + at + k, tl.minimum(share, 1.0) * value_above)
        if noisy:
            score = tl.load(scored.scores + row.to(tl.int64) * stride_scores + found)
            share = tl.exp(score - tl.load(scored.norm + row * 4)) / tl.load(scored.norm + row * 4 + 1)
        tl.store(growth.pool.probability + at + k, share)
        tl.store(growth.pool.token + at + k, found)
        tl.store(growth.pool.above + at + k, parent)
        tl.store(growth.pool.number + at + k, 0)
        s = tl.where(ids == found, float("-inf"), s)


def gather(scored: Scored, growth: GrowthState, rows: int) -> None:
    """Add the best candidates after the first `rows` nodes of the frontier to the pool; `expand` counts them.

    Args:
        scored: output of `process` and `choose` for the same rows.
    """
    width, vocab = growth.width, growth.step.vocab
    blocks = triton.cdiv(vocab, BLOCK)
    _gather[(rows, blocks)](
        scored,
        growth,
        vocab,
        scored.scores.stride(0),
        BLOCK=BLOCK,
        WIDTH=width,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
    _append[(rows,)](
        scored,
        growth,
        blocks,
        scored.scores.stride(0),
        BLOCKS=triton.next_power_of_2(blocks),
        WIDTH=width,
        num_warps=1,
        enable_fp_fusion=True,
    )
