"""Where a check computes: on the GPU, or in main memory under the interpreter."""

import os

import torch
from torch import Tensor

from specchat.engine.gpu_checks.notes import Unavailable


def on_gpu() -> bool:
    """Whether kernels run on a GPU; a card that they cannot run on may be there, too."""
    return torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"


def device() -> torch.device:
    """The GPU, or main memory where kernels are interpreted."""
    return torch.device("cuda" if on_gpu() else "cpu")


def gpu() -> torch.device:
    """The GPU.

    Raises:
        Unavailable: kernels run on none.
    """
    if not on_gpu():
        raise Unavailable("no GPU")
    return torch.device("cuda")


def dtype() -> torch.dtype:
    """The precision that pairs compute in here; the interpreter is quick and exact in float32 alone."""
    return torch.bfloat16 if on_gpu() else torch.float32


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, the same on every machine."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(device(), dtype)


def largest(difference: Tensor) -> float:
    """The largest magnitude, infinite where something is not a number."""
    worst = difference.abs().max()
    return float(worst) if torch.isfinite(worst) else float("inf")
