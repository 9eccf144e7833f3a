"""Distils the target's distribution into the draft, on the target's own replies."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from training.corpus.mixture import dialogues
from training.data import Rows, pack_encoded
from training.generate import generate
from training.model import Llama
from training.tokenizer import END, PAD, encode, token_id
from training.train import Loss

HARD_SHARE = 0.2
TEACHER_SHARPNESS = 1.6
"""Factor on the target's logits, because its replies are sampled at a low temperature."""
TEMPERATURES = (0.0, 0.0, 0.7, 1.0)


def distillation_loss(teacher: Llama) -> Loss:
    """Divergence of the draft's distribution from the teacher's, with a share of plain cross-entropy."""

    def loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
        with torch.no_grad():
            wanted, _ = teacher(tokens[:, :-1])
        logits, _ = model(tokens[:, :-1])
        scores = F.log_softmax(logits.flatten(0, 1).float(), -1)
        truth = F.softmax(TEACHER_SHARPNESS * wanted.flatten(0, 1).float(), -1)
        soft = -(truth * scores).sum(-1)
        hard = F.nll_loss(scores, tokens[:, 1:].flatten(), reduction="none")
        mass = weights[:, 1:].flatten()
        return (((1 - HARD_SHARE) * soft + HARD_SHARE * hard) * mass).sum() / mass.sum()

    return loss


def sample_rows(
    target: Llama,
    tokenizer: Tokenizer,
    seed: int,
    count: int,
    length: int,
    device: str,
    batch: int = 48,
    limit: int = 224,
) -> Rows:
    """Rows of training prompts with greedy and sampled replies of the target."""
    end = token_id(tokenizer, END)
    prompts: list[list[int]] = []
    for dialogue in dialogues(seed, count):
        ends = [index for index, message in enumerate(dialogue.messages) if message["role"] == "user"]
        tokens, _ = encode(tokenizer, dialogue.messages[: ends[len(prompts) % len(ends)] + 1], reply=True)
        if len(tokens) < length - limit:
            prompts.append(tokens)
    found: list[tuple[list[int], list[bool]]] = []
    span = 16 * batch
    for start in range(0, len(prompts), span):
        part = sorted(prompts[start : start + span], key=len)
        for at in range(0, len(part), batch):
            some = part[at : at + batch]
            heat = [TEMPERATURES[index % len(TEMPERATURES)] for index in range(len(some))]
            replies = generate(target, some, limit, end, heat, device, seed=seed + start + at)
            for prompt, reply in zip(some, replies, strict=True):
                tail = reply if len(reply) == limit else [*reply, end]
                found.append((prompt + tail, [False] * len(prompt) + [True] * len(tail)))
    return pack_encoded(iter(found), length, token_id(tokenizer, PAD))
