"""Which models the GPU kernels do not take; here without torch, so that anyone can ask."""

from specchat.engine.kernels import limits
from specchat.engine.model.config import ModelConfig


def beyond_the_kernels(config: ModelConfig) -> str:
    """The reason why the GPU kernels do not take a model, in words; empty when they take it."""
    checks = (
        (config.hidden, limits.WIDEST, "its rows have {} values"),
        (config.head_dim, limits.WIDEST_HEAD, "its attention heads have {} values"),
        (config.heads // config.kv_heads, limits.SHARING_HEADS, "{} of its query heads share a key-value head"),
        (len(config.eos), limits.END_TOKENS, "it has {} end-of-text tokens"),
        (config.vocab * config.hidden, limits.MATRIX, "its table of tokens has {} values"),
        (2 * config.intermediate * config.hidden, limits.MATRIX, "its widest matrix has {} values"),
    )
    return next(
        (f"{words.format(has)}, and the GPU kernels take {most} at most" for has, most, words in checks if has > most),
        "",
    )
