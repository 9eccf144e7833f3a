"""Numbers of threads of matrix products."""

import os

import torch

CORES = torch.get_num_threads()
"""Physical cores by torch at the start; the compiled pass finds out how many of them pay."""


def leave_one_core() -> None:
    """Let torch use all cores but one, unless OMP_NUM_THREADS says otherwise.

    The products' threads wait for each other at every call: one that shares its core with the app, or with anything
    else, holds up all of them (measured on two busy cores: steps of 6 ms became 15 to 480 ms).
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, CORES - 1))


def free_cores(threads: int) -> int:
    """Cores that are free for another model while so many threads compute."""
    return max(0, min(torch.get_num_threads(), CORES - threads))
