"""Log-probabilities of tokens by the target's own logits, before all processors."""

from collections.abc import Sequence

from torch import Tensor, tensor

from specchat.engine.decoding.outcome import Logprobs


def logprobs(logits: Tensor, rows: Sequence[int], tokens: Sequence[int], top: int) -> tuple[Logprobs, ...]:
    """Return the log-softmax of each token, and the `top` largest ones of its row.

    Args:
        logits: float32 [any, vocab].
        rows: the row that each of `tokens` follows.
    """
    scores = logits[list(rows)].double().log_softmax(-1)
    own = scores.gather(1, tensor(tokens)[:, None])[:, 0].tolist()
    largest = scores.topk(min(top, scores.shape[1]), -1)
    best = zip(largest.indices.tolist(), largest.values.tolist(), strict=True)
    return tuple(
        Logprobs(token, value, tuple(zip(*row, strict=True)))
        for token, value, row in zip(tokens, own, best, strict=True)
    )
