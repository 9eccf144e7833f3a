"""The device of a check: the GPU, or main memory under the interpreter."""

import os

import torch
from torch import Tensor

from specchat.engine.gpu_checks.notes import Unavailable


def on_gpu() -> bool:
    """True where kernels run on a GPU, not under the interpreter."""
    return torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"


def device() -> torch.device:
    """The GPU, or main memory under the interpreter."""
    return torch.device("cuda" if on_gpu() else "cpu")


def gpu() -> torch.device:
    """The GPU.

    Raises:
        Unavailable: there is none.
    """
    if not on_gpu():
        raise Unavailable("no GPU")
    return torch.device("cuda")


def dtype() -> torch.dtype:
    """The precision of pairs; float32 under the interpreter, which is fast and exact only there."""
    return torch.bfloat16 if on_gpu() else torch.float32


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, the same on every machine."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(device(), dtype)


def largest(difference: Tensor) -> float:
    """The largest magnitude; infinity if there is a NaN."""
    worst = difference.abs().max()
    return float(worst) if torch.isfinite(worst) else float("inf")
