"""Kernels compiled ahead, many at a time, into the folder where Triton keeps what it compiled.

Which ones is found by running what launches them with launches that only say what they would compile.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

MOST_THREADS = 16
NOWHERE = count(-1, -1)
"""Numbers of devices that are not there. Triton keeps kernels by device: one that has none launches none."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as one launch wants it; `wanted` is what Triton takes to compile it without a launch."""

    function: JITFunction
    wanted: str

    @property
    def name(self) -> str:
        return str(self.function.fn.__name__)


class Absent:
    """The part of a driver that is asked before a launch, for a GPU that is not there."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target
        self._device = next(NOWHERE)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, _: int) -> int:
        return 0


def rehearsed(run: Callable[[], object]) -> list[Kernel]:
    """The kernels that `run` launches, for the current GPU; none is compiled or launched. Tensors may be anywhere."""
    found: dict[str, Kernel] = {}

    def note(*, fn: Any, compile: dict[str, Any], **_: object) -> bool:
        kernel = Kernel(fn.jit_function, compile["specialization_data"])
        found.setdefault(kernel.wanted, kernel)
        return True  # neither compile nor launch

    with _no_gpu():
        knobs.runtime.jit_cache_hook, before = note, knobs.runtime.jit_cache_hook
        try:
            run()
        finally:
            knobs.runtime.jit_cache_hook = before
    return list(found.values())


def compile_all(kernels: list[Kernel], told: Callable[[str], None], threads: int | None = None) -> None:
    """Compile what is not yet in Triton's folder; `told` gets how many are there, in words.

    `threads` are as many as there are cores where it is None. They share the work well: nearly all of it is in LLVM and
    ptxas, without Python's lock.
    """
    threads = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)))
    with _no_gpu(), ThreadPoolExecutor(threads, thread_name_prefix="kernels") as pool:
        making = [pool.submit(kernel.function.preload, kernel.wanted) for kernel in kernels]
        for done, one in enumerate(as_completed(making), 1):
            one.result()
            told(f"kernel {done} of {len(making)}, compiled once on this machine")


@contextmanager
def _no_gpu() -> Iterator[None]:
    """Let Triton take kernels for the current GPU as kernels for one that is not there."""
    real = driver.active
    driver.set_active(Absent(real.get_current_target()))
    try:
        yield
    finally:
        driver.set_active(real)
