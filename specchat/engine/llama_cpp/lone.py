"""Decides if a single row runs unpadded, although its logits are then rounded differently.

Rows of larger passes are equal (`proof.py`). If a padded row takes much longer than a lone one, it runs alone, and
choices too close for its error are made again (`decoding/guard.py: RoughGuard`). The error is measured on a text that
lone rows wrote, since both their own sums and their KV entries contribute to it.
"""

from time import perf_counter

import torch

from specchat.engine.decoding.row_invariance import BUDGET_S, MOST_ROWS, SAFETY, pass_tokens
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.protocol.options import Sampling

PROMPT_TOKENS = 8
"""Tokens before the text that the model writes."""
MAX_WRITTEN_TOKENS = 10 * MOST_ROWS
"""The model writes at least MOST_ROWS tokens, and at most these."""
MAX_REPEATS = 40
"""Timings of each pass; other programs only add time, so the shortest counts."""
REREAD_COST = 0.25
"""Cost of reading a token again among many, in padded single-row passes; about 0.1 was measured."""
MAX_COST_RATIO = 0.9
"""A row runs alone if that costs less than this share of a padded row, repeats included."""


def lone_error(model: GgufModel, seen: float) -> float | None:
    """Error bound of a logit if single rows run alone; None if that does not pay.

    `model.padding` makes rows equal. `seen` is the error of a single row measured elsewhere. The cache's content is
    lost.
    """
    begun = perf_counter()
    one, padded = _milliseconds(model, begun)
    if one > MAX_COST_RATIO * padded:
        return None
    written, logits, last = _written(model, begun)
    count = len(logits)
    start = len(written) - count - MOST_ROWS
    # KV entries from padded passes must equal those from one large pass.
    exact = torch.cat(
        [model.exact(written[at : at + MOST_ROWS], at).clone() for at in range(start, len(written), MOST_ROWS)]
    )
    model.write(written[start:-MOST_ROWS], start)
    if not torch.equal(model.exact(written[-MOST_ROWS:], start + count), exact[count:]):
        return None
    error = SAFETY * max(seen, float((torch.cat([logits, last]) - exact).abs().max()))
    best = exact.topk(2).values
    close = float((best[:, 0] - best[:, 1] <= 2 * error).float().mean())
    # A close choice costs another padded row, and rereads the tokens since the last one before it.
    repeats = close + REREAD_COST if close else 0.0
    return error if one + repeats * padded <= MAX_COST_RATIO * padded else None


def _milliseconds(model: GgufModel, begun: float) -> tuple[float, float]:
    """Milliseconds of the fastest lone and the fastest padded single-row pass."""
    tokens = pass_tokens(PROMPT_TOKENS + 1, model.vocab)
    model.write(tokens[:-1], 0)
    least = {True: float("inf"), False: float("inf")}
    for turn in range(MAX_REPEATS):
        for alone in least:
            model.alone = alone
            started = perf_counter()
            model.forward(tokens[-1:], PROMPT_TOKENS)
            if turn:  # the first run of each is slower
                least[alone] = min(least[alone], 1e3 * (perf_counter() - started))
        if turn and perf_counter() - begun > BUDGET_S / 3:
            break
    model.alone = False
    return least[True], least[False]


def _written(model: GgufModel, begun: float) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """Let lone rows write a text, and read MOST_ROWS more tokens after it in one pass.

    Returns:
        all tokens, the first PROMPT_TOKENS - 1 without logits; logits of lone rows float32 [a multiple of MOST_ROWS,
        vocab]; logits of the last pass float32 [MOST_ROWS, vocab].
    """
    most = min(PROMPT_TOKENS + MAX_WRITTEN_TOKENS, model.context - MOST_ROWS)
    tokens = pass_tokens(PROMPT_TOKENS, model.vocab)
    rows: list[torch.Tensor] = []
    sampler, history = Sampler(Sampling(temperature=1.0)), History(())
    model.write(tokens[:-1], 0)
    model.alone = True
    while len(tokens) < most and (len(rows) % MOST_ROWS or not rows or perf_counter() - begun < BUDGET_S):
        rows.append(model.forward(tokens[-1:], len(tokens) - 1)[0].clone())
        tokens.append(sampler.choose(rows[-1], len(tokens), history))
    model.alone = False
    kept = len(rows) // MOST_ROWS * MOST_ROWS
    tokens = tokens[: PROMPT_TOKENS - 1 + kept] + pass_tokens(MOST_ROWS, model.vocab)
    last = model.forward(tokens[-MOST_ROWS:], len(tokens) - MOST_ROWS).clone()
    return tokens, torch.stack(rows[:kept]), last
