"""The ratio test of one row: its reference is `_ratio` of decoding/acceptance.py."""

from typing import NamedTuple

import triton
import triton.language as tl

from specchat.engine.kernels import filters, noise


class Children(NamedTuple):
    """Draft tokens after a node: `set` has a bit for each among the nodes first .. end - 1, whose tokens are in `fed`.

    They are `sampled`, or count as certain. `seed` and `position` are those of the noise of the token after the node.
    """

    fed: tl.tensor
    set: tl.tensor
    first: tl.tensor
    end: tl.tensor
    sampled: tl.tensor
    seed: tl.tensor
    position: tl.tensor


@triton.jit  # type: ignore[untyped-decorator]
def ratio(
    row: filters.Distribution,
    draft: filters.Distribution,
    candidates: filters.Candidates,
    children: Children,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Token of the first accepted child, otherwise a sample of norm(max(p - q, 0)) without the children's tokens.

    A sampled child, which has no siblings, is
    accepted with probability min(1, p/q), others with p / (1 - p of those rejected before). If rounding leaves nothing
    to sample, the sample is from p.
    """
    token = tl.full((), -1, tl.int32)
    turn = tl.full((), 0, tl.int32)
    q = tl.full((), 1.0, tl.float32)
    for child in range(children.first, children.end):
        if (((children.set >> child) & 1) != 0) & (token < 0):
            drafted = tl.load(children.fed + child)
            inside = (drafted >= 0) & (drafted < vocab)
            p = filters.probability(row, drafted, inside)
            if children.sampled:
                q = filters.probability(draft, drafted, inside)
            # u < p / q as u * q < p: a token with q = 0 is rejected.
            if (q > 0.0) & (noise.uniform(children.seed, children.position, noise.ACCEPT, turn) * q < p):
                token = drafted
            q -= p
            turn += 1
    if token < 0:
        most = tl.full((), float("-inf"), tl.float32)
        most_p = tl.full((), float("-inf"), tl.float32)
        token = tl.full((), 0, tl.int32)
        token_p = tl.full((), 0, tl.int32)
        for start in range(0, candidates.count, BLOCK):
            ids, wanted = filters.tokens(candidates.tokens, start, candidates.count, candidates.listed, BLOCK)
            p_all = filters.probability(row, ids, wanted)
            rest = p_all
            if children.sampled:
                rest -= filters.probability(draft, ids, wanted)
            for child in range(children.first, children.end):
                if ((children.set >> child) & 1) != 0:
                    rest = tl.where(ids == tl.load(children.fed + child), 0.0, rest)
            extra = noise.gumbel(children.seed, children.position, noise.RESIDUAL, ids)
            noisy = tl.where(rest > 0.0, tl.log(tl.where(rest > 0.0, rest, 1.0)) + extra, float("-inf"))
            most, token = filters.better(most, token, noisy, ids)
            noisy = tl.where(p_all > 0.0, tl.log(tl.where(p_all > 0.0, p_all, 1.0)) + extra, float("-inf"))
            most_p, token_p = filters.better(most_p, token_p, noisy, ids)
        token = tl.where(most == float("-inf"), token_p, token)
    return token
