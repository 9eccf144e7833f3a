"""Block verification: a drawn chain is judged as a whole (Sun et al. 2024).

Let x_1 .. x_n be drawn from q_1 .. q_n, P_0 = 1, and P_i = min(P_(i-1) p_i(x_i) / q_i(x_i), 1). The first i tokens pass
with probability h_i = R_i / (R_i + 1 - P_i), R_i being the sum of max(P_i p_(i+1) - q_(i+1), 0), and h_n = P_n. The
longest prefix that passes is accepted. The token after it is a sample of norm(max(P_i p_(i+1) - q_(i+1), 0)), or of
p_(n+1) after all n. The distribution is the target's, and on average at least as many tokens are accepted as with one
test per token. n may depend on the tokens drawn so far.
"""

from collections.abc import Sequence

from torch import Tensor

from specchat.engine.decoding import noise
from specchat.engine.decoding.sampler import History, Sampler, gumbel_argmax


def judge_block(
    logits: Tensor, tokens: Sequence[int], q: Sequence[Tensor], position: int, sampler: Sampler, history: History
) -> tuple[int, int]:
    """Judge a chain of at least one token, with a sampler that is not greedy.

    The key of a uniform includes the index in the block, so that none judges two tokens at one position.

    Args:
        logits: float32 [len(tokens) + 1, vocab], row i after `tokens[i - 1]`.
        q: float64 [vocab] each, the distributions the tokens were drawn from.
        position: absolute position of the first token.
        history: counts the committed tokens; unchanged on return.

    Returns:
        number of accepted tokens, and the token after them.
    """
    seed = sampler.sampling.seed
    p_of: list[Tensor] = []
    reached = [1.0]
    try:
        for row, token, drawn_from in zip(logits, tokens, q, strict=False):
            p = sampler.probabilities(sampler.scores(row, history))
            share = float(drawn_from[token])
            reached.append(min(reached[-1] * float(p[token]) / share, 1.0) if share > 0 else 0.0)
            history.push(token)
            p_of.append(p)
        for length in range(len(tokens), 0, -1):
            passing, of = chance(length, reached, p_of, q)
            if noise.uniform(seed, position + length - 1, noise.BLOCK, length) * of < passing:
                break
        else:
            length = 0
        if length == len(tokens):
            return length, sampler.choose(logits[length], position + length, history)
    finally:
        for token in tokens[: len(p_of)]:
            history.pop(token)
    rest = _rest(reached[length], p_of[length], q[length])
    if not rest.any():
        rest = p_of[length]
    return length, gumbel_argmax(rest.log().numpy(), seed, position + length, noise.RESIDUAL)


def chance(length: int, reached: Sequence[float], p_of: Sequence[Tensor], q: Sequence[Tensor]) -> tuple[float, float]:
    """Return numerator and denominator of h for `length` > 0; `reached` are P_0, ... and `p_of` are p_1, ..."""
    left = 1.0 - reached[length]
    if left <= 0 or length == len(q):
        return reached[length], 1.0
    rest = float(_rest(reached[length], p_of[length], q[length]).sum())
    return rest, rest + left


def _rest(reached: float, p: Tensor, drawn_from: Tensor) -> Tensor:
    return (reached * p - drawn_from).clamp_min(0.0)
