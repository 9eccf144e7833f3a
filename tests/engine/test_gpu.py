"""Which GPU is taken, on machines that are not here, and why none is."""

import getpass
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from specchat.engine.hardware.gpu import (
    CONTEXT,
    OTHER_ERROR,
    ChosenGpu,
    Gpu,
    GpuSoftware,
    find_gpu,
    find_second,
    free_by_uuid,
)
from specchat.engine.hardware.toolchain import compiler, header, unsupported
from specchat.engine.memory.plan import GIB
from specchat.private import is_private


@dataclass(frozen=True)
class Properties:
    name: str
    uuid: str
    multi_processor_count: int


@dataclass
class FakeCuda:
    """torch.cuda of a machine with GPUs of some capabilities, or with the errors that it gives."""

    capabilities: tuple[tuple[int, int], ...] = ((8, 6),)
    error: Exception | None = None
    full: Exception | None = None
    emptied: bool = False
    asked: list[int] = field(default_factory=list)
    """Of which GPUs the memory was asked; there is no way to make one the current one."""

    def init(self) -> None:
        if self.error:
            raise self.error

    def device_count(self) -> int:
        return len(self.capabilities)

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return self.capabilities[device]

    def get_device_properties(self, device: int) -> Properties:
        return Properties(f"RTX 306{device}", f"uuid-{device}", 28)

    def empty_cache(self) -> None:
        self.emptied = True

    def mem_get_info(self, device: int) -> tuple[int, int]:
        assert self.emptied
        self.asked.append(device)
        if self.full:
            raise self.full
        return 11 * GIB, 12 * GIB


def started() -> None:
    """A driver module that Triton builds without trouble."""


def found(cuda: FakeCuda, triton: bool = True, start: Callable[[], None] = started, **free: int) -> Gpu | str:
    told = {uuid.replace("_", "-"): size for uuid, size in free.items()}
    return find_gpu(GpuSoftware(cuda, "12.8", triton, start, lambda: told, lambda: ""), ChosenGpu())


def test_a_gpu_is_found_with_its_free_memory_and_its_size() -> None:
    assert found(FakeCuda()) == Gpu("RTX 3060", 11 * GIB, 28)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("Found no NVIDIA driver on your system. Please check that you have one", "no NVIDIA driver is found"),
        ("No CUDA GPUs are available", "no NVIDIA GPU is found"),
        (
            "The NVIDIA driver on your system is too old (found version 11040). Please update",
            "the NVIDIA driver is too old for this torch, which is built for CUDA 12.8",
        ),
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            "the NVIDIA driver is too old for this torch, which is built for CUDA 12.8",
        ),
        (
            f"{OTHER_ERROR}Error 804: forward compatibility was attempted on non supported HW",
            "the NVIDIA driver is too old for this torch, which is built for CUDA 12.8",
        ),
        (
            f"{OTHER_ERROR}Error 803: system has unsupported display driver / cuda driver combination",
            "the NVIDIA driver's parts are of two versions, as after an update (restart the computer)",
        ),
        (
            "CUDA unknown error - this may be due to an incorrectly set up environment\nmore",
            "CUDA does not start: the driver gives an unknown error (restart the machine; after a sleep ",
        ),
        (
            f"{OTHER_ERROR}Error 802: system not yet initialized\nmore",
            "CUDA does not start: Error 802: system not yet initialized",
        ),
        ("CUDA error: out of memory", "has no memory left even to start CUDA"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "in use by another program"),
        ("CUDA error: an illegal memory access was encountered", "the GPU failed before and needs a new engine"),
    ],
)
def test_why_cuda_does_not_start(error: str, words: str) -> None:
    """Whether it is told at once or only when memory is asked for, which makes the context."""
    for cuda in (FakeCuda(error=RuntimeError(error)), FakeCuda(full=RuntimeError(error))):
        reason = found(cuda)
        assert isinstance(reason, str)
        assert words in reason
        assert "\n" not in reason


def test_why_there_is_no_gpu_to_ask() -> None:
    assert "this torch is built without CUDA" in str(find_gpu(GpuSoftware(FakeCuda(), None)))
    assert "the GPU (RTX 3060) has compute capability 7.5, and 8.0 or newer" in str(found(FakeCuda(((7, 5),))))
    assert "the package triton is not installed" in str(found(FakeCuda(), triton=False))
    windows = GpuSoftware(FakeCuda(), "12.8", triton=False, system="win32")
    on_windows = str(find_gpu(windows, ChosenGpu()))
    assert on_windows == "Triton is not made for Windows (under WSL specchat's own kernels run)"


@pytest.mark.parametrize("taken", [False, True])
def test_kernels_are_stored_elsewhere_where_triton_cannot_write(
    taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a private folder that later engines find again, unless another user has made it."""
    (blocked := tmp_path / "file").write_text("")
    usual = tmp_path / f"specchat-triton-{getpass.getuser()}"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if taken:
        usual.mkdir(mode=0o777)
        usual.chmod(0o777)
    told = find_gpu(GpuSoftware(FakeCuda(), "12.8", True, started, dict, lambda: ""), ChosenGpu())
    used = Path(os.environ["TRITON_CACHE_DIR"])
    assert isinstance(told, Gpu)
    assert told.note.startswith(
        f"Triton cannot store kernels in {blocked / 'cache'} (Not a directory), and stores them"
    )
    assert str(used) in told.note
    assert (used == usual, used.parent, is_private(used)) == (not taken, tmp_path, True)
    assert found(FakeCuda()) == Gpu("RTX 3060", 11 * GIB, 28), "it can be written now"


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
def test_gpus_from_ampere_on_will_do(capability: tuple[int, int]) -> None:
    assert isinstance(found(FakeCuda((capability,))), Gpu)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler. Please specify via CC environment variable\nor so"),
        subprocess.CalledProcessError(1, ["/usr/bin/gcc", "driver.c"]),
        FileNotFoundError(2, "No such file or directory", "/sbin/ldconfig"),
        AssertionError("libcuda.so cannot found!\nPossible files"),
        ImportError("libcuda.so.1: cannot open shared object file"),
    ],
)
def test_a_driver_module_that_triton_cannot_build_is_said(error: Exception) -> None:
    def start() -> None:
        raise error

    reason = found(FakeCuda(), start=start)
    assert isinstance(reason, str)
    assert reason.startswith("Triton does not start: ")
    assert str(error).splitlines()[0][:20] in reason
    assert "\n" not in reason
    missing = find_gpu(
        GpuSoftware(FakeCuda(), "12.8", True, start, dict, lambda: "no C compiler is found"), ChosenGpu()
    )
    assert missing == "Triton does not start: no C compiler is found"


def test_of_several_gpus_the_one_with_most_free_memory_is_taken() -> None:
    three = FakeCuda(((8, 6), (8, 9), (7, 5)))
    assert found(three, GPU_uuid_0=4, GPU_uuid_1=9, GPU_uuid_2=20) == Gpu("RTX 3061", 11 * GIB, 28, 1)
    assert three.asked == [1]


def test_a_gpu_is_chosen_once_a_process() -> None:
    """Of two equal ones our own use makes the other one roomier at each question."""
    pair, choice = FakeCuda(((8, 9), (8, 9))), ChosenGpu()
    free = {"GPU-uuid-0": 20 * GIB, "GPU-uuid-1": 20 * GIB}
    for _ in range(3):
        gpu = find_gpu(GpuSoftware(pair, "12.8", True, started, lambda: free, lambda: ""), choice)
        assert isinstance(gpu, Gpu)
        free[f"GPU-uuid-{gpu.index}"] -= 8 * GIB
        assert (gpu.index, choice.device) == (0, torch.device("cuda", 0))
    assert pair.asked == [0, 0, 0]


def test_a_gpu_that_cannot_be_used_is_not_chosen() -> None:
    pair, choice, free = FakeCuda(((8, 9), (8, 9)), full=RuntimeError("out of memory")), ChosenGpu(), {"GPU-uuid-0": 1}
    assert isinstance(find_gpu(GpuSoftware(pair, "12.8", True, started, lambda: free, lambda: ""), choice), str)
    pair.full, free["GPU-uuid-1"] = None, 2
    gpu = find_gpu(GpuSoftware(pair, "12.8", True, started, lambda: free, lambda: ""), choice)
    assert isinstance(gpu, Gpu)
    assert gpu.index == 1


def test_a_gpu_that_the_kernels_cannot_use_is_the_one_for_transformers() -> None:
    """As Triton does not start, is missing, or the roomiest of the cards is old."""

    def fails() -> None:
        raise RuntimeError("no compiler")

    free = {"GPU-uuid-0": 4, "GPU-uuid-1": 9}
    for capability, triton, start in (((8, 9), True, fails), ((8, 9), False, started), ((7, 5), True, started)):
        choice = ChosenGpu()
        pair = FakeCuda((capability, capability))
        assert isinstance(find_gpu(GpuSoftware(pair, "12.8", triton, start, lambda: free, lambda: ""), choice), str)
        assert choice.index == 1


def test_gpus_of_which_nobody_tells_are_taken_in_order() -> None:
    assert found(FakeCuda(((7, 5), (8, 6), (8, 6)))) == Gpu("RTX 3061", 11 * GIB, 28, 1)
    assert found(FakeCuda(((7, 5), (8, 6))), GPU_other=1) == Gpu("RTX 3061", 11 * GIB, 28, 1)


def test_one_gpu_is_taken_without_asking() -> None:
    def asked() -> dict[str, int]:
        raise AssertionError("nvidia-smi was asked")

    assert isinstance(find_gpu(GpuSoftware(FakeCuda(), "12.8", True, started, asked), ChosenGpu()), Gpu)


@pytest.mark.parametrize(
    ("script", "free"),
    [
        ("echo 'GPU-a, 100'; echo 'GPU-b, 7'", {"GPU-a": 100 << 20, "GPU-b": 7 << 20}),
        ("echo 'GPU-a, [N/A]'", {}),
        ("echo broken", {}),
        ("exit 9", {}),
    ],
)
def test_free_memory_as_nvidia_smi_tells_it(
    script: str, free: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert free_by_uuid() == free
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert free_by_uuid() == {}


def test_what_triton_builds_with(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    both = {"gcc": "/usr/bin/gcc", "clang": "/usr/bin/clang"}
    assert unsupported({}, both.get, there, there) == ""
    assert compiler({}, both.get) == "/usr/bin/gcc"
    assert compiler({}, {"clang": "/usr/bin/clang"}.get) == "/usr/bin/clang"
    assert compiler({"CC": "clang"}, both.get) == "/usr/bin/clang"
    assert "no C compiler" in unsupported({}, {}.get, there, there)
    assert "CC names 'icc'" in unsupported({"CC": "icc"}, both.get, there, there)
    nowhere = tmp_path / "nowhere"
    assert f"{nowhere} is missing (install the headers of Python 3." in unsupported({}, both.get, nowhere, there)
    assert "TRITON_LIBCUDA_PATH" in unsupported({}, both.get, there, nowhere)
    assert unsupported({"TRITON_LIBCUDA_PATH": "/x"}, both.get, there, nowhere) == ""
    assert header().name == "Python.h"


def second(cuda: FakeCuda, first: int | None = 0, **free: int) -> tuple[Gpu | str, int | None]:
    chosen = ChosenGpu()
    told = {uuid.replace("_", "-"): size for uuid, size in free.items()}
    software = GpuSoftware(cuda, "12.8", True, started, lambda: told, lambda: "")
    return find_second(software, ChosenGpu(first), chosen), chosen.index


def test_a_second_gpu_is_another_one_than_the_first() -> None:
    """CUDA's context is kept from it as long as nvidia-smi tells what is free, and counts as taken."""
    two = ((8, 6), (8, 6))
    untold = FakeCuda(two, emptied=True)
    assert second(untold) == (Gpu("RTX 3061", 11 * GIB - CONTEXT, 28, 1), 1)
    assert second(untold, first=1) == (Gpu("RTX 3060", 11 * GIB - CONTEXT, 28, 0), 0)
    three = FakeCuda((*two, (8, 6)))
    assert second(three, GPU_uuid_1=1, GPU_uuid_2=2 * GIB) == (Gpu("RTX 3062", 2 * GIB - CONTEXT, 28, 2), 2)
    assert second(three, first=2, GPU_uuid_0=9, GPU_uuid_1=1) == (Gpu("RTX 3060", 0, 28, 0), 0)
    assert (untold.asked, three.asked) == ([1, 0], [])
    software = GpuSoftware(three, "12.8", free=lambda: {"GPU-uuid-1": GIB, "GPU-uuid-2": 2 * GIB})
    found = find_second(software, ChosenGpu(0), ChosenGpu(1))
    assert isinstance(found, Gpu)
    assert found.name == "RTX 3061", "chosen before, though a third has more memory by now"


def test_why_there_is_no_second_gpu() -> None:
    one = GpuSoftware(FakeCuda(), "12.8", free=lambda: pytest.fail("nvidia-smi takes time"))
    assert find_second(one, ChosenGpu(0)) == "there is no second GPU, or CUDA_VISIBLE_DEVICES hides it"
    old, _ = second(FakeCuda(((8, 6), (7, 5))))
    assert old == "the GPU (RTX 3061) has compute capability 7.5, and 8.0 or newer is needed"
    lost, chosen = second(FakeCuda(((8, 6), (8, 6)), full=RuntimeError("CUDA error: GPU is lost\nmore"), emptied=True))
    assert (lost, chosen) == ("the second GPU cannot be used: CUDA error: GPU is lost", None)
