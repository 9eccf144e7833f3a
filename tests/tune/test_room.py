"""What a tune may take of a GPU beside the chat, and the sentences where there is too little."""

from pathlib import Path

import pytest
import torch

from specchat.engine.errors import EngineError
from specchat.engine.hardware import free_memory as memory
from specchat.tune.plan import IMPORTED, TunePlan
from specchat.tune.room import LEFT, check_room, free_bytes, leave_room
from specchat.tune.work import _failing

GPU, CPU, GB = torch.device("cuda", 0), torch.device("cpu"), 10**9


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A GPU of 24 GB with 6 GB free beside what the chat leaves, of whose memory this process has 3 GB; its limits."""
    limits: list[float] = []
    monkeypatch.setattr(memory, "free_memory", lambda: 8 * GB)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (6 * GB + LEFT, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3 * GB)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, _: limits.append(share))
    return limits


def plan(memory: int, gpu: int = 0) -> TunePlan:
    return TunePlan(1.0, 1.0, 1.0, memory, gpu)


def test_a_tune_leaves_a_part_of_the_gpu_to_the_chat(card: list[float]) -> None:
    assert free_bytes(GPU) == 6 * GB
    assert free_bytes(CPU) == 8 * GB
    leave_room(CPU)
    assert not card
    leave_room(GPU)
    assert card == [pytest.approx(9 / 24)]


def test_what_fits_begins() -> None:
    check_room(plan(8 * GB + IMPORTED + GB), CPU, GB)
    check_room(plan(8 * GB + IMPORTED, 9 * GB), GPU, 3 * GB)


@pytest.mark.parametrize(
    ("device", "planned", "words"),
    [
        (CPU, plan(10 * GB), "This takes 10 GB of memory, and 9.3 GB are there. Close other programs"),
        (GPU, plan(9 * GB, 9 * GB), "This takes 9.0 GB of memory, and 8.3 GB are there."),
        (GPU, plan(GB, 11 * GB), r"takes 11 GB of the GPU's memory .* 9.0 GB are there: 2.0 GB are missing. With "
                                 r"--device cpu it is trained in main memory; heads or a smaller draft take less\."),
    ],
)  # fmt: skip
def test_what_does_not_fit_says_how_much_is_missing(device: torch.device, planned: TunePlan, words: str) -> None:
    with pytest.raises(EngineError, match=words) as raised:
        check_room(planned, device, 3 * GB if device == GPU else GB)
    assert raised.value.kind == "memory"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), "memory",
         "The GPU's memory ran out while training.*same command again, or go on in main memory with --device cpu"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "memory", "The GPU's memory ran out"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "model",
         r"The GPU failed while training \(CUDA error.*--device cpu goes on in main memory"),
        (MemoryError(), "memory", "^Memory ran out while training"),
    ],
)  # fmt: skip
def test_a_gpu_that_fails_or_is_full_is_told(error: Exception, kind: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=words) as raised, _failing(tmp_path):
        raise error
    assert raised.value.kind == kind
    assert f"What was trained so far is kept in {tmp_path}." in raised.value.message
