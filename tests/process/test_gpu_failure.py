"""Errors of the GPU: recognised in all their guises, and told apart from memory that ran out."""

import pytest
import torch

from specchat.engine.hardware.gpu_failure import describe, is_gpu_failure
from specchat.engine.protocol.requests import Count, Generate


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
        RuntimeError("CUDA driver error: invalid argument"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
    ],
)
def test_failures_are_recognised(error: Exception) -> None:
    assert is_gpu_failure(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("shapes differ"),
        ValueError("CUDA error"),
    ],
)
def test_other_errors_are_not_taken_for_one(error: Exception) -> None:
    assert not is_gpu_failure(error)


def test_what_was_being_done_is_told() -> None:
    error = RuntimeError("CUDA error: unspecified launch failure.\nmore")
    assert describe(error, Count(1, ()), "the log") == (
        "The GPU failed (CUDA error: unspecified launch failure) while tokens were being counted; see the log."
    )
    assert "what there is of it is kept" in describe(error, Generate(1, ()), "the log")
