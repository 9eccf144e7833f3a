"""Muon: momentum whose update is orthogonalised, for the matrices inside the layers."""

from __future__ import annotations

import torch
from torch import Tensor

MOMENTUM = 0.9
ROUNDS = 4


def half_precision(device: torch.device | str) -> torch.dtype:
    """bfloat16 on a GPU or a CPU with its instructions; float32 on other CPUs, which would emulate it slowly."""
    on_gpu = torch.device(device).type == "cuda"
    return torch.bfloat16 if on_gpu or torch.cpu._is_avx512_bf16_supported() else torch.float32


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [n, rows, columns] with singular values near one, by Newton and Schulz's iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x: Tensor = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(half_precision(x.device))
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """SGD with Nesterov momentum and orthogonalised updates; equal shapes are treated together."""

    def __init__(self, params: list[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                shapes.setdefault(parameter.shape, []).append(parameter)
            for shape, same in shapes.items():
                updates = []
                for parameter in same:
                    slope = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                    momentum.lerp_(slope, 1 - MOMENTUM)
                    updates.append(slope.lerp(momentum, MOMENTUM))
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for parameter, update in zip(same, orthogonal(torch.stack(updates)), strict=True):
                    parameter.mul_(1 - 0.05 * group["lr"]).add_(update, alpha=-scale)
