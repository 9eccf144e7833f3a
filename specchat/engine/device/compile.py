"""Ahead-of-time compilation of many kernels at once, into Triton's cache folder.

The launching code runs once with launches that only record what they would compile.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

MOST_THREADS = 16
NOWHERE = count(-1, -1)
"""Numbers of absent devices. Triton caches kernels by device, so a new number has none to launch."""


@dataclass(frozen=True)
class Kernel:
    """Kernel specialised for one launch.

    `wanted` is what Triton writes down of the launch, as JSON; `signature`, `constants` and `attributes` are what it
    compiles, which JSON has only without the names of fields.
    """

    function: JITFunction
    wanted: str
    signature: Mapping[str, Any] = field(compare=False, repr=False)
    constants: Mapping[tuple[int, ...], Any] = field(compare=False, repr=False)
    attributes: Mapping[tuple[int, ...], Any] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return str(self.function.fn.__name__)

    def compile(self) -> None:
        """Compile the kernel into Triton's cache, where its launch will look for it."""
        data, device = json.loads(self.wanted), driver.active.get_current_device()
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in data["options"].items()}
        *_, backend, _ = self.function.device_caches[device]
        self.function._do_compile(
            data["key"],
            self.signature,
            device,
            self.constants,
            backend.parse_options(options),
            self.attributes,
            warmup=True,
        )


class Listed:
    """Kernel on an absent GPU, of which a launch does nothing."""

    function = packed_metadata = None

    def launch_metadata(self, *_: object) -> None:
        """Triton asks for it before a launch."""

    def run(self, *_: object) -> None:
        """Launch nothing."""


class Absent:
    """Driver interface that Triton queries before a launch, for an absent GPU."""

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
    """List the kernels that `run` would launch on the current GPU, without compiling. Tensors may be on any device."""
    found: dict[str, Kernel] = {}

    def note(*, fn: Any, compile: dict[str, Any], **_: object) -> bool:
        wanted, (attributes,) = compile["specialization_data"], compile["configs"]
        kernel = Kernel(fn.jit_function, wanted, compile["signature"], compile["constants"], attributes)
        found.setdefault(kernel.wanted, kernel)
        # Triton looks for what it launches here: it asks once for each kernel.
        launched, *_ = fn.jit_function.device_caches[compile["device"]]
        launched[compile["key"]] = Listed()
        return True  # neither compile nor launch

    with _no_gpu():
        knobs.runtime.jit_cache_hook, before = note, knobs.runtime.jit_cache_hook
        try:
            run()
        finally:
            knobs.runtime.jit_cache_hook = before
    return list(found.values())


def compile_all(kernels: list[Kernel], told: Callable[[str], None], threads: int | None = None) -> None:
    """Compile kernels missing from Triton's cache; the callback receives the progress in words.

    `threads` default to the number of cores. LLVM and ptxas do nearly all the work, without Python's lock.
    """
    threads = threads or min(MOST_THREADS, len(os.sched_getaffinity(0)))
    with _no_gpu(), ThreadPoolExecutor(threads, thread_name_prefix="kernels") as pool:
        making = [pool.submit(kernel.compile) for kernel in kernels]
        for done, one in enumerate(as_completed(making), 1):
            one.result()
            told(f"kernel {done} of {len(making)}, compiled once on this machine")


@contextmanager
def _no_gpu() -> Iterator[None]:
    """Make Triton treat the current GPU as an absent one."""
    real = driver.active
    driver.set_active(Absent(real.get_current_target()))
    try:
        yield
    finally:
        driver.set_active(real)
