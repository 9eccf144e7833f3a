"""`specchat bench kernels`: the GPU kernels at Qwen3-8B's shapes, the products against bitsandbytes and cuBLAS."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from specchat.bench.device_timer import QUICK_RUNS, RUNS, CudaTimer, Timer
from specchat.bench.kernel_case import CYCLED, ROWS, Case
from specchat.bench.kernel_products import product_cases
from specchat.bench.kernel_steps import (
    CONTEXTS,
    QUICK_CONTEXTS,
    SAMPLINGS,
    attention_cases,
    rowwise_cases,
    verify_cases,
)
from specchat.bench.machine import describe
from specchat.bench.published import QWEN3_8B
from specchat.bench.summary import Spread
from specchat.engine.errors import EngineError
from specchat.engine.gpu_failure import first_line
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.gpu import CHOSEN, Gpu

QUICK_ROWS = (1, 8, 16)
PACKAGES = ("specchat", "torch", "triton", "bitsandbytes")
"""Whose versions make a difference."""


@dataclass(frozen=True)
class Measured:
    """One kernel at one number of rows.

    `us` are microseconds a call, None where it failed: `error` says how. `bandwidth` is the share of the measured
    memory bandwidth at which `read` bytes come in, None where little is read. `alike` says whether each row is bit for
    bit what it is alone.
    """

    group: str
    what: str
    by: str
    rows: int
    us: Spread | None
    read: int
    bandwidth: float | None
    alike: bool | None
    error: str = ""


@dataclass(frozen=True)
class Machine:
    """The machine; `bandwidth` is bytes a second of a copy within the device's memory."""

    host: str
    device: str
    bandwidth: float


def on_this_gpu(gpu: Gpu, quick: bool) -> tuple[Machine, Iterator[Measured]]:
    """Measure on the GPU at hand, one figure after the other."""
    device = CHOSEN.device
    torch.cuda.set_device(device)  # of this process all that follows
    timer = CudaTimer(QUICK_RUNS if quick else RUNS)
    machine = Machine(describe([name for name in PACKAGES if find_spec(name)]), gpu.name, timer.bandwidth())
    return machine, measure(QWEN3_8B, device, torch.bfloat16, timer, machine.bandwidth, quick, CYCLED)


@torch.no_grad()
def measure(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    timer: Timer,
    bandwidth: float,
    quick: bool,
    cycled: int,
    contexts: tuple[int, ...] = (),
) -> Iterator[Measured]:
    """Every kernel of a step of `config` for every number of rows; `contexts` empty is the usual ones.

    Raises:
        EngineError: "memory": the GPU has too little left.
    """
    try:
        for case in _cases(config, device, dtype, quick, cycled, contexts):
            for rows in QUICK_ROWS if quick else ROWS:
                if rows <= case.most:
                    yield _one(case, rows, timer, bandwidth)
    except torch.OutOfMemoryError:
        raise EngineError(
            "memory", "GPU memory ran out: bench kernels takes about 5 GiB. End other programs that use the GPU."
        ) from None


def _cases(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    quick: bool,
    cycled: int,
    contexts: tuple[int, ...],
) -> Iterator[Case]:
    yield from product_cases(config, device, dtype, quick, cycled)
    yield from attention_cases(
        config, device, dtype, contexts or (QUICK_CONTEXTS if quick else CONTEXTS), cycled, quick
    )
    yield from rowwise_cases(config, device, dtype)
    yield from verify_cases(config.vocab, device, SAMPLINGS)


def _one(case: Case, rows: int, timer: Timer, bandwidth: float) -> Measured:
    def measured(us: Spread | None, alike: bool | None, error: str = "") -> Measured:
        share = case.read / (1e-6 * us.median) / bandwidth if us is not None and case.read else None
        return Measured(case.group, case.what, case.by, rows, us, case.read, share, alike, error)

    try:
        alike = case.alike(rows)
        return measured(timer.time(case.body(rows), case.copies), alike)
    except (RuntimeError, EngineError) as error:
        if case.by == "specchat":
            raise
        return measured(None, None, first_line(error))
