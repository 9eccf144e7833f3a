"""The GPU that the kernels run on."""

import getpass
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from specchat import private
from specchat.clean import one_line
from specchat.engine.hardware.gpu_failure import first_line
from specchat.engine.hardware.toolchain import unsupported
from specchat.engine.kernels.gpu_shapes import OLDEST, PROCESSORS
from specchat.installing import install_command

SMI = ("nvidia-smi", "--query-gpu=uuid,memory.free", "--format=csv,noheader,nounits")
PATIENCE_S = 5.0
MIB = 1 << 20
CONTEXT = 512 * MIB
"""Bytes of a GPU that CUDA's context will take, of what nvidia-smi tells as free. Estimated, not measured."""
LASTING = ("illegal memory access", "launch failure", "device-side assert", "misaligned address", "illegal instruction")
"""Errors after which a process cannot use its GPU any more."""
GONE = ("GPU is lost", "fallen off the bus", "device is lost", "uncorrectable ECC")
"""Errors that outlast the process."""
NONE_SEEN = ("No CUDA GPUs", "no CUDA-capable device", "invalid device ordinal")
"""Errors of a driver that shows no GPU."""
TOO_OLD = ("too old", "driver version is insufficient", "forward compatibility")
"""Errors of a driver that does not run this version of CUDA, in containers too."""
REPLACED = ("unsupported display driver", "Driver/library version mismatch")
"""Errors of a driver whose parts are of two versions, as after an update until a restart."""
OTHER_ERROR = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
    "might have already set an error? "
)
"""Beginning of a message of torch, before the number of the error and its words."""


class Properties(Protocol):
    """The used properties of a GPU; newer versions of torch also have its `uuid`."""

    @property
    def name(self) -> str: ...
    @property
    def multi_processor_count(self) -> int: ...


class Cuda(Protocol):
    """The used functions of torch.cuda."""

    def init(self) -> None: ...
    def device_count(self) -> int: ...
    def get_device_capability(self, device: int) -> tuple[int, int]: ...
    def get_device_properties(self, device: int) -> Properties: ...
    def empty_cache(self) -> None: ...
    def mem_get_info(self, device: int) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Gpu:
    """A GPU that the kernels run on: its torch `index`, `free` bytes, and number of multiprocessors.

    `note` says what is amiss and keeps no kernel from running.
    """

    name: str
    free: int
    processors: int = PROCESSORS
    index: int = 0
    note: str = ""


@dataclass
class ChosenGpu:
    """The GPU of a process, by its torch index; None before one is chosen."""

    index: int | None = None

    @property
    def device(self) -> torch.device:
        """The torch device; the first GPU before one is chosen."""
        return torch.device("cuda", self.index or 0)


CHOSEN, SECOND = ChosenGpu(), ChosenGpu()
"""This process's GPU, and another one for drafts. They are fixed: memory that a pair takes must not move the next pair
to another GPU."""


def free_gpu_memory(device: torch.device) -> int:
    """Bytes of a GPU that this process can take; torch first gives back what it holds unused."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return free


def free_by_uuid() -> dict[str, int]:
    """Free bytes of each GPU by nvidia-smi: CUDA would leave a context on each of them."""
    try:
        done = subprocess.run(SMI, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        rows = [line.split(",") for line in done.stdout.splitlines() if line.strip()]
        return {uuid.strip(): MIB * int(free) for uuid, free in rows}
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}


def start_triton() -> None:
    """Let Triton build and load its driver module now, not at the first launch, and look for its assembler."""
    from triton.runtime import driver

    driver.active.get_current_device()
    find_ptxas(driver.active.get_current_target().arch)


def store_kernels(environ: MutableMapping[str, str] = os.environ) -> str:
    """Have Triton store kernels in a temporary folder where it cannot write its own; the result says so, else empty."""
    from triton import knobs

    own = knobs.cache.dir
    try:
        os.makedirs(own, exist_ok=True)
        with tempfile.TemporaryFile(dir=own):
            return ""
    except OSError as error:
        folder = Path(tempfile.gettempdir(), f"specchat-triton-{getpass.getuser()}")
        with suppress(OSError):
            folder.mkdir(mode=private.FOLDER)
        if not private.is_private(folder):
            folder = Path(tempfile.mkdtemp(prefix="specchat-triton-"))
        environ["TRITON_CACHE_DIR"] = str(folder)
        return (
            f"Triton cannot store kernels in {own} ({error.strerror}), and stores them in {folder} until a restart "
            "(TRITON_CACHE_DIR names another folder)"
        )


def find_ptxas(architecture: int) -> None:
    """Check that Triton has NVIDIA's assembler for GPUs of this architecture, 86 for compute capability 8.6.

    Raises:
        RuntimeError: it has not, with what to do.
    """
    from triton.backends.nvidia.compiler import get_ptxas

    try:
        get_ptxas(architecture)
    except RuntimeError as error:
        advice = "install triton again, or set TRITON_PTXAS_PATH to the ptxas of a CUDA toolkit"
        raise RuntimeError(f"{first_line(error)} ({advice})") from None


class GpuSoftware(NamedTuple):
    """The software that runs kernels: torch's CUDA with its version, Triton, and the system.

    Attributes:
        start: starts Triton; `wanting` tells what it lacks.
        free: as `free_by_uuid`.
        store: as `store_kernels`.
    """

    cuda: Cuda = torch.cuda
    built_for: str | None = torch.version.cuda
    triton: bool = find_spec("triton") is not None
    start: Callable[[], None] = start_triton
    free: Callable[[], Mapping[str, int]] = free_by_uuid
    wanting: Callable[[], str] = unsupported
    system: str = sys.platform
    store: Callable[[], str] = store_kernels


HERE = GpuSoftware()


def find_gpu(software: GpuSoftware = HERE, chosen: ChosenGpu = CHOSEN) -> Gpu | str:
    """The GPU that the kernels can run on, or the reason why there is none. The current GPU does not change.

    Of several visible ones (CUDA_VISIBLE_DEVICES) it is the one with the most free memory, and `chosen` from then on:
    transformers also runs on it where the kernels cannot.
    """
    cuda, built_for = software.cuda, software.built_for
    if built_for is None:
        return "this torch is built without CUDA (pytorch.org tells how to install one with it)"
    try:
        cuda.init()
        cuda.empty_cache()  # memory of an earlier pair in torch's pool counts as free
        gpus = range(cuda.device_count())
        index = _roomiest(cuda, gpus, software.free) if chosen.index is None else chosen.index
        found = cuda.get_device_properties(index)
        left, _ = cuda.mem_get_info(index)
        chosen.index = index
        if reason := _too_old(cuda, index):
            return reason
        if not software.triton and software.system == "win32":
            return "Triton is not made for Windows (under WSL specchat's own kernels run)"
        if not software.triton:
            return f'the package triton is not installed ("{install_command("triton")}" adds it)'
    except (RuntimeError, AssertionError) as error:
        return _no_cuda(error, built_for)
    try:
        note = software.store()
        software.start()
    except Exception as error:
        return f"Triton does not start: {software.wanting() or first_line(error)}"
    return Gpu(found.name, left, found.multi_processor_count, index, note)


def find_second(software: GpuSoftware = HERE, first: ChosenGpu = CHOSEN, chosen: ChosenGpu = SECOND) -> Gpu | str:
    """Another GPU than the `first`, once that is found, or the reason why there is none.

    CUDA is asked only where nvidia-smi does not tell how much is free: it would leave a context there.
    """
    cuda = software.cuda
    others = [index for index in range(cuda.device_count()) if index != first.index]
    if not others:
        return "there is no second GPU, or CUDA_VISIBLE_DEVICES hides it"
    free = software.free()
    index = _roomiest(cuda, others, lambda: free) if chosen.index is None else chosen.index
    try:
        found = cuda.get_device_properties(index)
        if reason := _too_old(cuda, index):
            return reason
        left = free[_uuid(found)] if _uuid(found) in free else cuda.mem_get_info(index)[0]
    except (RuntimeError, AssertionError) as error:
        return f"the second GPU cannot be used: {first_line(error)}"
    chosen.index = index
    return Gpu(found.name, max(0, left - CONTEXT), found.multi_processor_count, index)


def _too_old(cuda: Cuda, index: int) -> str:
    """The reason why a GPU is too old for the kernels; empty if it is not."""
    major, minor = cuda.get_device_capability(index)
    if (major, minor) >= OLDEST:
        return ""
    name = cuda.get_device_properties(index).name
    return f"the GPU ({name}) has compute capability {major}.{minor}, and 8.0 or newer is needed"


def _uuid(properties: Properties) -> str:
    """The name of a GPU for nvidia-smi."""
    return f"GPU-{getattr(properties, 'uuid', '')}"


def _roomiest(cuda: Cuda, among: Sequence[int], free: Callable[[], Mapping[str, int]]) -> int:
    """The index of the GPU with the most free memory, new enough if possible; the first if memory is unknown."""
    if len(among) < 2:
        return min(among, default=0)
    free_bytes = free()

    def merit(index: int) -> tuple[bool, int, int]:
        uuid = _uuid(cuda.get_device_properties(index))
        return cuda.get_device_capability(index) >= OLDEST, free_bytes.get(uuid, 0), -index

    return max(among, key=merit)


def _no_cuda(error: Exception, built_for: str) -> str:
    words = str(error)
    if any(saying in words for saying in TOO_OLD):
        return f"the NVIDIA driver is too old for this torch, which is built for CUDA {built_for} (update the driver)"
    if any(saying in words for saying in REPLACED):
        return "the NVIDIA driver's parts are of two versions, as after an update (restart the computer)"
    if "no NVIDIA driver" in words:
        return "no NVIDIA driver is found (a GPU of NVIDIA needs one)"
    if any(saying in words for saying in NONE_SEEN):
        return _hidden(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if "out of memory" in words:
        return "the GPU has no memory left even to start CUDA (end other programs that use it)"
    if "busy or unavailable" in words:
        return "the GPU is in use by another program that does not share it (end that program)"
    if any(saying in words for saying in GONE):
        return f"the GPU does not answer any more: {first_line(error)} (restart the machine)"
    if any(saying in words for saying in LASTING):
        return f"the GPU failed before and needs a new engine: {first_line(error)} (start specchat again)"
    if "CUDA unknown error" in words:
        return (
            "CUDA does not start: the driver gives an unknown error (restart the machine; after a sleep "
            '"sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm" may do)'
        )
    return f"CUDA does not start: {first_line(RuntimeError(words.removeprefix(OTHER_ERROR)))}"


def _hidden(visible: str | None) -> str:
    """The reason why CUDA sees no GPU in spite of a driver, by CUDA_VISIBLE_DEVICES."""
    if visible is None:
        return "no NVIDIA GPU is found"
    if visible in ("", "-1"):
        return f'CUDA_VISIBLE_DEVICES is "{visible}", which hides every GPU (unset it)'
    return f'CUDA_VISIBLE_DEVICES is "{one_line(visible, 200)}", and no GPU is called so ("nvidia-smi -L" lists them)'
