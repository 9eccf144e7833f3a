"""Recognises exhausted memory without torch, and advises."""

from errno import ENOMEM

from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate, Load

MIN_CONTEXT = 1024
"""Smallest context that is proposed."""
MESSAGES = ("out of memory", "not enough memory", "can't allocate memory", "Cannot allocate memory", "ALLOC_FAILED")
"""Texts in plain RuntimeErrors of torch's allocators, the system, CUDA, cuBLAS and Triton."""

UNMAPPED = "failed to map segment"
"""The system's text if a library does not fit."""


def ran_out(error: Exception) -> bool:
    """True if `error` means that main or GPU memory ran out."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, OSError) and error.errno == ENOMEM)
        or (isinstance(error, ImportError) and UNMAPPED in str(error))
        or (isinstance(error, RuntimeError) and any(text in str(error) for text in MESSAGES))
    )


def describe(request: Load | Generate | Count, pair: PairSpec | None, context: int | None) -> str:
    """Sentences with the interrupted work and a setting that needs less memory.

    `pair` is the pair in question and `context` its number of tokens, both None if unknown.
    """
    return f"Memory ran out {under_way(request)}. {_advice(pair, context)}, or close other programs."


def under_way(request: Load | Generate | Count) -> str:
    """The interrupted work, as the end of a clause."""
    match request:
        case Load():
            return f"while {request.pair.name} was being loaded"
        case Generate():
            return "while the reply was being written; what there is of it is kept"
        case Count():
            return "while tokens were being counted"


def _advice(pair: PairSpec | None, context: int | None) -> str:
    if context is not None and context > MIN_CONTEXT:
        return f"Set context = {max(MIN_CONTEXT, context // 2)} for the pair in models.toml"
    if pair is not None and pair.target.quant in (None, "none", "int8"):
        return 'Set quant = "nf4" for the target in models.toml'
    if pair is not None and pair.target.device != "cpu":
        return 'Set device = "cpu" for the target in models.toml'
    return "Choose a smaller pair"
