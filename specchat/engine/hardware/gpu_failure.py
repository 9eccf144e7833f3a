"""Recognises GPU failures without torch, and describes them.

An error of a kernel leaves the process's CUDA context unusable: every later call repeats it (CUDA C Programming Guide,
"sticky" errors).
"""

from dataclasses import replace

from specchat.dataclass import dataclass
from specchat.engine.errors import EngineError
from specchat.engine.hardware.out_of_memory import ran_out, under_way
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.requests import Count, Generate, Load

MESSAGES = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]")
"""Texts of torch's and Triton's RuntimeErrors."""
EXIT_CODE = 70
"""Exit code of a process whose GPU failed (sysexits.h: EX_SOFTWARE)."""


@dataclass(frozen=True)
class LoadAgain:
    """Message of a worker that lost its GPU while loading, for the client: let a new worker load.

    `remembered` is True if the new one knows the failure, and tries once more or chooses the next best way; else it
    loads on the CPU.
    """

    failed: str
    remembered: bool = False


class GpuLost(EngineError):
    """The GPU failed while a pair was loaded, which another process may run differently.

    A pair that is `bound` to the GPU does not move to the CPU.
    """

    def __init__(self, pair: PairSpec, failed: str) -> None:
        failure = f"The GPU{_culprit()} failed ({failed}) while {pair.name} was being loaded."
        super().__init__("died", f'{failure} Try again, or say device = "cpu".')
        self.failed = failed
        self.bound = pair.target.device in ("cuda", "both-gpus")


def without_gpu(pair: PairSpec) -> PairSpec:
    """`pair` with all its models on the CPU."""
    draft = pair.draft and replace(pair.draft, device="cpu")
    return replace(pair, target=replace(pair.target, device="cpu"), draft=draft)


REPORT = 'Run "specchat doctor --gpu" and send the file that it writes.'
"""Advice after a fault."""
UNTIL = (
    'The GPU is tried again after the computer was restarted or has slept; "specchat doctor --gpu" tries it now, and '
    "writes a file to send."
)
"""Advice where failures put a way to rest."""
ONCE_MORE = "Started again, the engine tries the GPU once more."
AGAIN = f"Started again, the engine runs the pair another way. {UNTIL}"
"""Added to a failure that is remembered, the first one and a later one."""


def is_gpu_failure(error: Exception) -> bool:
    """True if `error` is a GPU failure; running out of memory is none."""
    if ran_out(error):
        return False
    return type(error).__name__ == "AcceleratorError" or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in MESSAGES)
    )


def describe(error: Exception, request: Load | Generate | Count, log: str) -> str:
    """A sentence with the interrupted work and the error's first line; `log` has the rest."""
    return f"The GPU{_culprit()} failed ({first_line(error)}) {under_way(request)}; see {log}."


def _culprit() -> str:
    from specchat.engine.hardware.gpu_record import GpuRecord  # pydantic, which clients do without

    found = GpuRecord.culprit()
    return f" {found}" if found else ""


def first_line(error: Exception) -> str:
    """First line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
