"""The precision of products in training: bfloat16 where the processor multiplies it, float32 elsewhere."""

from __future__ import annotations

import torch


def half_precision(device: torch.device | str) -> torch.dtype:
    """bfloat16 on a GPU or a CPU with its instructions; float32 on other CPUs, which would emulate it slowly."""
    on_gpu = torch.device(device).type == "cuda"
    return torch.bfloat16 if on_gpu or torch.cpu._is_avx512_bf16_supported() else torch.float32
