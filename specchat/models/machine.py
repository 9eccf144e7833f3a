"""What this machine has free for models, told without torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from specchat.engine.gpu_counters import installed
from specchat.engine.kernels.limits import OLDEST
from specchat.engine.model.memory import free_memory


@dataclass(frozen=True)
class Machine:
    """Free bytes of the GPU, None where there is none for us, and of the main memory, None where that is not told."""

    gpu: int | None
    memory: int | None


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """The machine at hand, with its roomiest GPU that the kernels run on."""
    gpus = [gpu.free for gpu in installed() if gpu.capability >= OLDEST] if _uses_gpus(environ) else []
    return Machine(max(gpus, default=None), free_memory())


def _uses_gpus(environ: Mapping[str, str]) -> bool:
    """Whether this installation could run on a GPU at all."""
    try:
        built = version("torch")
    except PackageNotFoundError:
        return False
    hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and not built.endswith("+cpu") and find_spec("triton") is not None
