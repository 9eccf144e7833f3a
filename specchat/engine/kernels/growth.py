"""Growth of a draft tree: the best candidates of a level are expanded, and the best of all form the draft.

The dynamic tree of EAGLE-2 (Li et al. 2024) with a draft model in place of its head. A candidate's value is the product
of the probabilities on its path, never larger than its parent's. Of equals the earlier one is taken, so a node's
ancestors are always in the draft.
"""

import triton
import triton.language as tl

from specchat.engine.kernels.growth_state import GrowthState
from specchat.engine.kernels.verify_state import VerifyState

WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _expand(
    growth: GrowthState,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    CANDIDATES: tl.constexpr,
) -> None:
    i = tl.arange(0, CANDIDATES)
    k = tl.arange(0, WIDTH)
    first = tl.load(growth.pool.filled)
    level = tl.load(growth.step.depth)
    v = tl.load(growth.pool.value + first + i, mask=i < ROWS * WIDTH, other=-1.0)
    better = (v[None, :] > v[:, None]) | ((v[None, :] == v[:, None]) & (i[None, :] < i[:, None]))
    rank = tl.sum(better.to(tl.int32), 1)
    found = tl.sum(tl.where(rank[None, :] == k[:, None], i[None, :], 0), 1)
    node = 1 + level * WIDTH + k
    above = tl.load(growth.step.path + found // WIDTH)
    # Write only after other threads of this program have read.
    tl.debug_barrier()
    tl.store(growth.pool.number + first + found, node)
    tl.store(growth.step.fed + node, tl.load(growth.pool.token + first + found))
    tl.store(growth.frontier.token + k, tl.load(growth.pool.token + first + found))
    tl.store(growth.step.path + k, above | (tl.full((WIDTH,), 1, tl.int64) << node.to(tl.int64)))
    tl.store(growth.step.depth + k, tl.zeros_like(k) + level + 1)
    tl.store(growth.frontier.offset + k, tl.zeros_like(k) - level * WIDTH + level)
    tl.store(growth.frontier.place + k, first + found)
    tl.store(growth.frontier.value + k, tl.load(growth.pool.value + first + found))
    tl.store(growth.frontier.start, tl.load(growth.step.length) + 1 + level * WIDTH)
    tl.store(growth.sure + level, tl.max(v, 0))
    tl.store(growth.pool.filled, first + ROWS * WIDTH)


@triton.jit  # type: ignore[untyped-decorator]
def _settle(
    growth: GrowthState,
    state: VerifyState,
    NODES: tl.constexpr,
    SLOTS: tl.constexpr,
    POOL: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    i = tl.arange(0, POOL)
    most = tl.load(growth.limit)
    v = tl.load(growth.pool.value + i, mask=i < tl.load(growth.pool.filled), other=0.0)
    v = tl.where(v >= tl.load(growth.least), v, 0.0)
    taken = i < 0
    for _ in range(most):
        rest = tl.where(taken, 0.0, v)
        best = tl.max(rest, 0)
        found = tl.min(tl.where((rest == best) & (rest > 0.0), i, POOL), 0)
        taken |= i == found
    rank = tl.where(taken, tl.cumsum(taken.to(tl.int32), 0), 0)
    n = tl.sum(taken.to(tl.int32), 0)

    node = tl.arange(0, SLOTS)
    there = (node > 0) & (node <= n)
    place = tl.sum(tl.where((rank[None, :] == node[:, None]) & taken[None, :], i[None, :], 0), 1)
    higher = tl.load(growth.pool.above + place, mask=there, other=-1)
    parent = tl.sum(tl.where((place[None, :] == higher[:, None]) & there[None, :], node[None, :], 0), 1)
    # The nodes after the tree form a chain: passes have more rows than nodes.
    parent = tl.where(there, parent, tl.maximum(node - 1, 0))
    bits = tl.full((SLOTS,), 1, tl.int64) << node.to(tl.int64)
    steps = (node > 0).to(tl.int32)
    jump = parent
    while tl.max(jump, 0) > 0:
        bits |= tl.gather(bits, jump, 0)
        steps += tl.gather(steps, jump, 0)
        jump = tl.gather(jump, jump, 0)
    bits |= 1
    tl.store(state.fed + node, tl.load(growth.pool.token + place, mask=there, other=0), mask=there)
    # The frontier is numbered, but no model ran over it.
    own = tl.load(growth.pool.number + place, mask=there, other=0)
    ran = own <= (tl.load(growth.step.depth) - 1) * WIDTH
    tl.store(growth.places + node, tl.where(ran, own, 0), mask=node < NODES)
    tl.store(state.parents + node, tl.where(node > 0, parent, -1), mask=node < NODES)
    tl.store(state.depth + node, steps, mask=node < NODES)
    tl.store(state.path + node, bits, mask=node < NODES)
    tl.store(state.sure + node - 1, tl.load(growth.pool.probability + place, mask=there, other=0.0), mask=there)
    tl.store(state.drafted, n)


def expand(growth: GrowthState, rows: int) -> None:
    """Expand the best candidates of the last `gather` as the next frontier; `rows` is that of `gather`, 1 or all."""
    width = growth.width
    _expand[(1,)](
        growth,
        ROWS=rows,
        WIDTH=width,
        CANDIDATES=triton.next_power_of_2(rows * width),
        num_warps=1,
        enable_fp_fusion=True,
    )


def settle(growth: GrowthState, state: VerifyState) -> None:
    """Draft the best `limit` nodes of the pool, in the order of the pool.

    Nodes of a value of 0 or below `least` are left out. `state.sure` receives the nodes' probabilities.
    """
    _settle[(1,)](
        growth,
        state,
        NODES=state.fed.shape[0],
        SLOTS=triton.next_power_of_2(state.fed.shape[0]),
        POOL=triton.next_power_of_2(growth.pool.value.shape[0]),
        WIDTH=growth.width,
        num_warps=WARPS,
        enable_fp_fusion=True,
    )
