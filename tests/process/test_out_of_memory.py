"""Memory that ran out: recognised in all its guises, and told with the nearest setting."""

import errno

import pytest
import torch

from specchat.engine.hardware.out_of_memory import describe, ran_out
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.protocol.requests import Count, Generate, Load

PAIR = PairSpec("p", "P", ModelSource(path="/t"))


def test_torchs_own_failure_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert ran_out(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("unable to mmap 64 bytes from file </m/model.safetensors>: Cannot allocate memory (12)"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    ],
)
def test_other_failures_are_recognised(error: Exception) -> None:
    assert ran_out(error)


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes differ"), ValueError("out of memory"), KeyError("x"), ImportError("x")]
)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not ran_out(error)


@pytest.mark.parametrize(
    ("source", "context", "advice"),
    [
        (ModelSource(path="/t"), 8192, "Set context = 4096"),
        (ModelSource(path="/t"), 1500, "Set context = 1024"),
        (ModelSource(path="/t"), 1024, 'Set quant = "nf4"'),
        (ModelSource(path="/t", quant="int8"), None, 'Set quant = "nf4"'),
        (ModelSource(path="/t", quant="nf4"), 512, 'Set device = "cpu"'),
        (ModelSource(path="/t", quant="nf4", device="cpu"), 512, "Choose a smaller pair, or close"),
    ],
)
def test_the_nearest_setting_is_told(source: ModelSource, context: int | None, advice: str) -> None:
    pair = PairSpec("p", "P", source)
    assert advice in describe(Generate(1, ()), pair, context)


def test_what_was_being_done_is_told() -> None:
    assert "while P was being loaded" in describe(Load(PAIR), PAIR, None)
    assert "while the reply was being written; what there is of it is kept" in describe(Generate(1, ()), PAIR, None)
    assert "while tokens were being counted" in describe(Count(1, ()), None, None)
