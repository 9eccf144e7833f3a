"""When the GPU failed: how that is recognised without torch, and what to tell.

An error of a kernel leaves the process's CUDA context unusable: every later call repeats it (CUDA C Programming Guide,
"sticky" errors).
"""

from dataclasses import dataclass, replace

from specchat.engine.api import Count, Generate, Load
from specchat.engine.errors import EngineError
from specchat.engine.out_of_memory import ran_out, under_way
from specchat.engine.pair import PairSpec

SAYINGS = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]")
"""Words of torch and Triton, in RuntimeErrors."""
EXIT_CODE = 70
"""How a process ends whose GPU failed (sysexits.h: EX_SOFTWARE)."""


@dataclass(frozen=True)
class LoadAgain:
    """From a worker that lost its GPU while it loaded and ends now, to the client: let a fresh one load.

    `remembered`: the fresh one knows and takes the next best way; otherwise it is to load on the CPU.
    """

    failed: str
    remembered: bool = False


class GpuLost(EngineError):
    """The GPU failed while a pair was loaded that another process may run in another way.

    That is not the CPU where the pair is `bound` to the GPU.
    """

    def __init__(self, pair: PairSpec, failed: str) -> None:
        super().__init__(
            "died", f'The GPU failed ({failed}) while {pair.name} was being loaded. Try again, or say device = "cpu".'
        )
        self.failed = failed
        self.bound = pair.target.device == "cuda"


def without_gpu(pair: PairSpec) -> PairSpec:
    """`pair` with all its models on the CPU."""
    draft = pair.draft and replace(pair.draft, device="cpu")
    return replace(pair, target=replace(pair.target, device="cpu"), draft=draft)


REPORT = 'Run "specchat doctor --gpu" and send the file that it writes.'
"""What to do after a fault."""
AGAIN = f"Started again, the engine runs the pair another way. {REPORT}"
"""What follows a failure that is remembered."""


def is_one(error: Exception) -> bool:
    """Whether `error` says that the GPU failed; memory that ran out is no failure."""
    if ran_out(error):
        return False
    return type(error).__name__ == "AcceleratorError" or (
        isinstance(error, RuntimeError) and any(saying in str(error) for saying in SAYINGS)
    )


def told(error: Exception, request: Load | Generate | Count, log: str) -> str:
    """The work under way and the error's first line, in a sentence; `log` has the rest."""
    return f"The GPU failed ({first_line(error)}) {under_way(request)}; see {log}."


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
