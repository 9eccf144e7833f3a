"""When memory ran out: how that is recognised without torch, and what to tell."""

from errno import ENOMEM

from specchat.engine.api import Count, Generate, Load
from specchat.engine.pair import PairSpec

LEAST_CONTEXT = 1024
"""No smaller context is proposed."""
SAYINGS = ("out of memory", "not enough memory", "can't allocate memory", "Cannot allocate memory", "ALLOC_FAILED")
"""Words of torch's allocators, the system, CUDA, cuBLAS and Triton, all in plain RuntimeErrors."""

UNMAPPED = "failed to map segment"
"""The system's words where a library finds no room."""


def ran_out(error: Exception) -> bool:
    """Whether `error` says that main memory or a GPU's ran out."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, OSError) and error.errno == ENOMEM)
        or (isinstance(error, ImportError) and UNMAPPED in str(error))
        or (isinstance(error, RuntimeError) and any(saying in str(error) for saying in SAYINGS))
    )


def told(request: Load | Generate | Count, pair: PairSpec | None, context: int | None) -> str:
    """The work under way and the nearest setting that takes less, in a sentence or two.

    `pair` is the one that is loaded or was to be, `context` the tokens its cache holds, both None where not known.
    """
    return f"Memory ran out {under_way(request)}. {_advice(pair, context)}, or close other programs."


def under_way(request: Load | Generate | Count) -> str:
    """What was being done, as the end of a clause."""
    match request:
        case Load():
            return f"while {request.pair.name} was being loaded"
        case Generate():
            return "while the reply was being written; what there is of it is kept"
        case Count():
            return "while tokens were being counted"


def _advice(pair: PairSpec | None, context: int | None) -> str:
    if context is not None and context > LEAST_CONTEXT:
        return f"Set context = {max(LEAST_CONTEXT, context // 2)} for the pair in models.toml"
    if pair is not None and pair.target.quant in (None, "none", "int8"):
        return 'Set quant = "nf4" for the target in models.toml'
    if pair is not None and pair.target.device != "cpu":
        return 'Set device = "cpu" for the target in models.toml'
    return "Choose a smaller pair"
