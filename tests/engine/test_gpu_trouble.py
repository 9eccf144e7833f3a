"""What may be wrong with a GPU: each a sentence, and the pair is loaded in the next best place."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from specchat.engine.loading import load, native
from specchat.engine.model import devices
from specchat.engine.model.gpu import Gpu, find_gpu, free_by_uuid
from specchat.engine.model.plan import GIB
from specchat.engine.pair import ModelSource, PairSpec
from tests.engine.test_gpu import Properties
from tests.engine.tiny import checkpoint


@dataclass
class Cuda:
    """torch.cuda that starts, or gives an error at once or once memory is asked for; of one card."""

    error: str = ""
    late: bool = False
    name: str = "RTX 3060"

    def init(self) -> None:
        if self.error and not self.late:
            raise RuntimeError(self.error)

    def device_count(self) -> int:
        return 1

    def set_device(self, device: int) -> None:
        assert device == 0

    def get_device_capability(self, device: int) -> tuple[int, int]:
        assert device == 0
        return 8, 0

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

    return find_gpu(cuda, built_for, triton, start, dict, lambda: missing)


TROUBLE = {
    "no driver": (Cuda("Found no NVIDIA driver on your system. Please check"), "no NVIDIA GPU is found"),
    "an old driver": (
        Cuda("The NVIDIA driver on your system is too old (found version 11040). Please update"),
        "the NVIDIA driver is too old for this torch",
    ),
    "a full card": (Cuda("CUDA error: out of memory", late=True), "the GPU has no memory left even to start CUDA"),
    "off the bus": (
        Cuda("CUDA error: GPU is lost.  Reboot the system to recover this GPU", late=True),
        "the GPU does not answer any more",
    ),
    "another process's context": (
        Cuda("CUDA error: CUDA-capable device(s) is/are busy or unavailable", late=True),
        "in use by another program that does not share it",
    ),
    "a failed launch before": (Cuda("CUDA error: unspecified launch failure"), "the GPU failed before"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_each_trouble_is_a_sentence_and_the_pair_loads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, words = TROUBLE[name]
    reason = found(cuda)
    assert isinstance(reason, str)
    assert words in reason
    monkeypatch.setattr(devices, "find_gpu", lambda: found(cuda))
    monkeypatch.setattr(native, "find_accelerator", lambda: "the GPU fails")
    info = load(PairSpec("p", "P", ModelSource(path=str(checkpoint(tmp_path / "m")))), lambda _: None).info
    assert info.device.startswith("cpu")
    assert info.note == reason


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        (None, "no NVIDIA GPU is found"),
        ("", 'CUDA_VISIBLE_DEVICES is "", which hides every GPU'),
        ("-1", 'CUDA_VISIBLE_DEVICES is "-1", which hides every GPU'),
        (
            "GPU-8932f937",
            'CUDA_VISIBLE_DEVICES is "GPU-8932f937", and no GPU is called so ("nvidia-smi -L" lists them)',
        ),
        ("MIG-1/2/0", 'CUDA_VISIBLE_DEVICES is "MIG-1/2/0", and no GPU is called so'),
    ],
)
@pytest.mark.parametrize("error", ["No CUDA GPUs are available", "CUDA error: no CUDA-capable device is detected"])
def test_a_gpu_that_is_hidden_is_said(
    visible: str | None, words: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert words in str(found(Cuda(error)))


def test_triton_missing_or_without_a_compiler() -> None:
    assert "the package triton is not installed" in str(found(Cuda(), triton=False))
    assert found(Cuda(), missing="no C compiler is found") == "Triton does not start: no C compiler is found"


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
