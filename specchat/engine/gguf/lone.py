"""Whether one row goes alone although its logits are then rounded otherwise: what that saves, and what it costs.

Rows of passes of several are alike (`proof.py`). Where a row padded to that takes much longer than one alone, it goes
alone, and choices that it is too close for are made again (`decoding/guard.py: RoughGuard`). How far a lone row is off
is measured on a text that lone rows wrote: their own sums and the cache's entries both have their part in it.
"""

from time import perf_counter

import torch

from specchat.engine.decoding.passes import BUDGET_S, MOST_ROWS, SAFETY, text
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.gguf.model import GgufModel
from specchat.engine.options import Sampling

STARTED = 8
"""Tokens before the text that the model writes."""
WRITTEN = 10 * MOST_ROWS
"""Tokens that the model writes at most, and MOST_ROWS at least."""
TURNS = 40
"""Times that each pass is timed at most: other programs only make one longer, so that the shortest counts."""
AGAIN = 0.25
"""What a token takes that is read again among many, in passes of one padded row: a tenth or so of them was seen."""
SHARE = 0.9
"""A row goes alone where it takes less than this share of a padded one, all that follows from it included."""


def lone_error(model: GgufModel, seen: float) -> float | None:
    """What a logit may be off by where one row goes alone, `padding` being what makes rows alike; None where it had
    better not.

    `seen` is how far one row's logits were off elsewhere. The cache holds nothing of worth afterwards.
    """
    begun = perf_counter()
    one, padded = _milliseconds(model, begun)
    if one > SHARE * padded:
        return None
    written, logits, last = _written(model, begun)
    count = len(logits)
    start = len(written) - count - MOST_ROWS
    # The entries as passes of several rows make them, and once more as one pass makes them, which must be the same.
    exact = torch.cat(
        [model.exact(written[at : at + MOST_ROWS], at).clone() for at in range(start, len(written), MOST_ROWS)]
    )
    model.write(written[start:-MOST_ROWS], start)
    if not torch.equal(model.exact(written[-MOST_ROWS:], start + count), exact[count:]):
        return None
    error = SAFETY * max(seen, float((torch.cat([logits, last]) - exact).abs().max()))
    best = exact.topk(2).values
    close = float((best[:, 0] - best[:, 1] <= 2 * error).float().mean())
    # Each close choice takes a padded row more, and before it what was read since the last one is read again.
    again = close + AGAIN if close else 0.0
    return error if one + again * padded <= SHARE * padded else None


def _milliseconds(model: GgufModel, begun: float) -> tuple[float, float]:
    """The shortest passes of one row alone and of one that is padded."""
    tokens = text(STARTED + 1, model.vocab)
    model.write(tokens[:-1], 0)
    least = {True: float("inf"), False: float("inf")}
    for turn in range(TURNS):
        for alone in least:
            model.alone = alone
            started = perf_counter()
            model.forward(tokens[-1:], STARTED)
            if turn:  # the first of each kind takes longer
                least[alone] = min(least[alone], 1e3 * (perf_counter() - started))
        if turn and perf_counter() - begun > BUDGET_S / 3:
            break
    model.alone = False
    return least[True], least[False]


def _written(model: GgufModel, begun: float) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """A text that lone rows write, MOST_ROWS tokens after it, and the logits of both, the latter in one pass.

    Returns:
        the tokens, the first STARTED - 1 of which have no logits here; float32 [a multiple of MOST_ROWS, vocab];
        float32 [MOST_ROWS, vocab].
    """
    most = min(STARTED + WRITTEN, model.context - MOST_ROWS)
    tokens = text(STARTED, model.vocab)
    rows: list[torch.Tensor] = []
    sampler, history = Sampler(Sampling(temperature=1.0)), History(())
    model.write(tokens[:-1], 0)
    model.alone = True
    while len(tokens) < most and (len(rows) % MOST_ROWS or not rows or perf_counter() - begun < BUDGET_S):
        rows.append(model.forward(tokens[-1:], len(tokens) - 1)[0].clone())
        tokens.append(sampler.choose(rows[-1], len(tokens), history))
    model.alone = False
    kept = len(rows) // MOST_ROWS * MOST_ROWS
    tokens = tokens[: STARTED - 1 + kept] + text(MOST_ROWS, model.vocab)
    last = model.forward(tokens[-MOST_ROWS:], len(tokens) - MOST_ROWS).clone()
    return tokens, torch.stack(rows[:kept]), last
