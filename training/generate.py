"""Batched greedy or sampled generation, for measurements and distillation."""

from __future__ import annotations

import torch
from torch import Tensor

from training.model import Llama


@torch.no_grad()
def generate(
    model: Llama,
    prompts: list[list[int]],
    limit: int,
    end: int,
    temperatures: list[float],
    device: str = "cpu",
    seed: int = 0,
) -> list[list[int]]:
    """Reply to each prompt without its end token; temperature 0 is greedy."""
    width = max(map(len, prompts))
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    tokens = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=device)
    columns = torch.arange(width + limit, device=device)
    shown = columns[None] >= (width - lengths)[:, None]
    positions = (columns[None, :width] - (width - lengths)[:, None]).clamp(min=0)
    mask = shown[:, None, None, :width] & (columns[:width][None, :] <= columns[:width][:, None])[None, None]
    mask = mask | torch.eye(width, dtype=torch.bool, device=device)
    logits, past = model(tokens, None, positions, mask)
    heat = torch.tensor(temperatures, device=device)[:, None]
    dice = torch.Generator(device=device).manual_seed(seed)
    replies: list[list[int]] = [[] for _ in prompts]
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for step in range(limit):
        chosen = _choose(logits[:, -1].float(), heat, dice)
        done |= chosen == end
        if bool(done.all()):
            break
        for reply, token, finished in zip(replies, chosen.tolist(), done.tolist(), strict=True):
            if not finished:
                reply.append(token)
        logits, past = model(chosen[:, None], past, (lengths + step)[:, None], shown[:, None, None, : width + step + 1])
    return replies


def _choose(logits: Tensor, heat: Tensor, dice: torch.Generator) -> Tensor:
    """The next token of each row."""
    noise = -torch.log(
        -torch.log(torch.rand(logits.shape, generator=dice, device=logits.device).clamp(1e-20, 1 - 1e-7))
    )
    return (logits + heat * noise).argmax(-1)
