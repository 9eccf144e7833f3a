"""What may be wrong with a GPU: each a sentence, and the pair is loaded in the next best place."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from triton.knobs import NvidiaTool

from specchat.engine.gpu_checks import card
from specchat.engine.hardware.accelerator import Accelerator
from specchat.engine.hardware.gpu import Gpu, GpuSoftware, find_gpu, find_ptxas, free_by_uuid
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.hardware.toolchain import unsupported
from specchat.engine.loading import hf, load, next_best, placing
from specchat.engine.memory import devices
from specchat.engine.memory.plan import GIB
from specchat.engine.protocol.events import Event, Finished
from specchat.engine.protocol.options import Limits, Message, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.installing import install_command
from tests.engine.test_gpu import Properties
from tests.engine.tiny import checkpoint

pytestmark = pytest.mark.usefixtures("unmeasured")


@dataclass
class Cuda:
    """torch.cuda that starts, or gives an error at once or once memory is asked for; of one card."""

    error: str = ""
    late: bool = False
    name: str = "RTX 3060"
    capability: tuple[int, int] = 8, 0

    def init(self) -> None:
        if self.error and not self.late:
            raise RuntimeError(self.error)

    def device_count(self) -> int:
        return 1

    def set_device(self, device: int) -> None:
        assert device == 0

    def get_device_capability(self, device: int) -> tuple[int, int]:
        assert device == 0
        return self.capability

    def get_device_properties(self, device: int) -> Properties:
        assert device == 0
        return Properties(self.name, "5f0c", 14)

    def empty_cache(self) -> None:
        """Nothing is in it."""

    def mem_get_info(self, device: int) -> tuple[int, int]:
        assert device == 0
        if self.error:
            raise RuntimeError(self.error)
        return 4 * GIB, 5 * GIB


def found(cuda: Cuda, built_for: str | None = "12.8", triton: bool = True, missing: str = "") -> Gpu | str:
    def start() -> None:
        if missing:
            raise RuntimeError("Failed to find C compiler")

    return find_gpu(GpuSoftware(cuda, built_for, triton, start, dict, lambda: missing))


def written(session: Session) -> Event:
    """The end of a reply of the pair, some tokens long."""
    request = Generate(1, (Message("user", "abcabc"),), limits=Limits(4), speculation=Speculation("lookup"))
    *_, last = session.generate(request)
    return last


def check_reply(session: Session) -> None:
    last = written(session)
    assert isinstance(last, Finished)
    assert len(last.token_ids) == 4


@dataclass(frozen=True)
class Trouble:
    """A GPU that CUDA does not start on, and the sentence that the user reads; `visible` is CUDA_VISIBLE_DEVICES."""

    cuda: Cuda
    words: str
    visible: str | None = None


NONE = "No CUDA GPUs are available"
UNKNOWN = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
TROUBLE = {
    "no driver": Trouble(
        Cuda("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
        "no NVIDIA driver is found (a GPU of NVIDIA needs one)",
    ),
    "an old driver": Trouble(
        Cuda("The NVIDIA driver on your system is too old (found version 11040). Please update"),
        "the NVIDIA driver is too old for this torch, which is built for CUDA 12.8 (update the driver)",
    ),
    "a full card": Trouble(
        Cuda("CUDA error: out of memory", late=True),
        "the GPU has no memory left even to start CUDA (end other programs that use it)",
    ),
    "off the bus": Trouble(
        Cuda("CUDA error: GPU is lost.  Reboot the system to recover this GPU", late=True),
        "the GPU does not answer any more: CUDA error: GPU is lost.  Reboot the system to recover this GPU "
        "(restart the machine)",
    ),
    "another process's context": Trouble(
        Cuda("CUDA error: CUDA-capable device(s) is/are busy or unavailable", late=True),
        "the GPU is in use by another program that does not share it (end that program)",
    ),
    "a failed launch before": Trouble(
        Cuda("CUDA error: unspecified launch failure"),
        "the GPU failed before and needs a new engine: CUDA error: unspecified launch failure (start specchat again)",
    ),
    "a driver without a GPU": Trouble(Cuda(NONE), "no NVIDIA GPU is found"),
    "hidden by nothing": Trouble(Cuda(NONE), 'CUDA_VISIBLE_DEVICES is "", which hides every GPU (unset it)', ""),
    "hidden by -1": Trouble(Cuda(NONE), 'CUDA_VISIBLE_DEVICES is "-1", which hides every GPU (unset it)', "-1"),
    "a UUID of no GPU": Trouble(
        Cuda(NONE),
        f'CUDA_VISIBLE_DEVICES is "{UNKNOWN}", and no GPU is called so ("nvidia-smi -L" lists them)',
        UNKNOWN,
    ),
    "a slice that is not there": Trouble(
        Cuda("CUDA error: no CUDA-capable device is detected", late=True),
        'CUDA_VISIBLE_DEVICES is "MIG-1/2/0", and no GPU is called so ("nvidia-smi -L" lists them)',
        "MIG-1/2/0",
    ),
}


@pytest.fixture
def pair(tmp_path: Path) -> PairSpec:
    return PairSpec("p", "P", ModelSource(path=str(checkpoint(tmp_path / "m"))))


@pytest.mark.parametrize("name", TROUBLE)
def test_a_gpu_that_cuda_does_not_start_on_is_a_sentence_and_the_cpu_goes_on(
    name: str, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = TROUBLE[name]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if trouble.visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", trouble.visible)
    monkeypatch.setattr(devices, "find_gpu", lambda: found(trouble.cuda))
    monkeypatch.setattr(placing, "find_accelerator", lambda: "the GPU fails")
    session = load(pair, lambda _: None)
    assert session.info.load.device.startswith("cpu")
    assert session.info.notes.note == trouble.words
    check_reply(session)


def assembler_missing() -> None:
    """The start of Triton where its package has no assembler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NvidiaTool, "from_path", lambda _: None)
        find_ptxas(86)


WITHOUT_TRITON: dict[str, tuple[Gpu | str, str]] = {
    "no Triton": (
        found(Cuda(), triton=False),
        f'The package triton is not installed ("{install_command("triton")}" adds it)',
    ),
    "no C compiler": (
        found(Cuda(), missing=unsupported({}, lambda _: None)),
        'Triton does not start: no C compiler is found (install gcc, for example with "apt install gcc")',
    ),
    "no assembler": (
        find_gpu(GpuSoftware(Cuda(), "12.8", True, assembler_missing, dict, str)),
        "Triton does not start: Cannot find ptxas (install triton again, or set TRITON_PTXAS_PATH to the ptxas of a "
        "CUDA toolkit)",
    ),
    "a card that is too old": (
        found(Cuda(capability=(7, 5))),
        "The GPU (RTX 3060) has compute capability 7.5, and 8.0 or newer is needed",
    ),
}
"""GPUs that CUDA starts on and the kernels cannot run on, and the beginning of the sentence."""


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", WITHOUT_TRITON)
def test_where_the_kernels_cannot_be_built_transformers_goes_on_on_the_gpu(
    name: str, pair: PairSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the GPU stands main memory."""
    gpu, words = WITHOUT_TRITON[name]
    monkeypatch.setattr(devices, "find_gpu", lambda: gpu)
    for module in (placing, next_best, hf):
        monkeypatch.setattr(module, "find_accelerator", lambda: Accelerator("cuda", "RTX 3060", 4 * GIB))
    monkeypatch.setattr(hf, "kind", lambda: "cpu")
    monkeypatch.setattr(card, "record", lambda *_: GpuRecord(None, "RTX 3060"))
    session = load(pair, lambda _: None)
    assert session.info.load.device.startswith("transformers")
    assert session.info.notes.warning == f"{words}, so transformers runs p on RTX 3060."
    check_reply(session)


def test_triton_has_its_assembler_here() -> None:
    """Of both kinds: Blackwell's GPUs have one of their own."""
    for architecture in (86, 120):
        find_ptxas(architecture)


def test_pairs_are_loaded_where_triton_cannot_be_imported() -> None:
    asked = "import sys; sys.modules['triton'] = None; from specchat.engine.loading import hf, native, next_best"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_slice_of_a_gpu_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA shows a process one slice, with memory and multiprocessors of its own."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-c7384736-a75d-5afc-978f-d2f1294409fd")
    slice_ = found(Cuda(name="NVIDIA A100-SXM4-40GB MIG 1g.5gb"))
    assert isinstance(slice_, Gpu)
    assert (slice_.name, slice_.free, slice_.processors) == ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4 * GIB, 14)


def test_a_container_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert free_by_uuid() == {}
    assert isinstance(found(Cuda()), Gpu)
