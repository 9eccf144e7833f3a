"""When the GPU failed: how that is recognised without torch, and what to tell.

An error of a kernel leaves the process's CUDA context unusable: every later call repeats it (CUDA C Programming Guide,
"sticky" errors).
"""

from specchat.engine.api import Count, Generate, Load
from specchat.engine.out_of_memory import ran_out, under_way

SAYINGS = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]")
"""Words of torch and Triton, in RuntimeErrors."""
EXIT_CODE = 70
"""How a process ends whose GPU failed (sysexits.h: EX_SOFTWARE)."""


def is_one(error: Exception) -> bool:
    """Whether `error` says that the GPU failed; memory that ran out is no failure."""
    if ran_out(error):
        return False
    return type(error).__name__ == "AcceleratorError" or (
        isinstance(error, RuntimeError) and any(saying in str(error) for saying in SAYINGS)
    )


def told(error: Exception, request: Load | Generate | Count, log: str) -> str:
    """The work under way and the error's first line, in a sentence; `log` has the rest."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
    return f"The GPU failed ({first}) {under_way(request)}; see {log}."
