"""Whether there is a GPU to measure."""

from specchat.engine.errors import EngineError
from specchat.engine.model.gpu import Gpu, find_gpu


def require_gpu(who: str) -> Gpu:
    """The GPU that the kernels run on.

    Raises:
        EngineError: "config": there is none that `who` could use, with the reason.
    """
    found = find_gpu()
    if isinstance(found, str):
        raise EngineError("config", f"{who} needs a CUDA GPU: {found}.")
    return found
