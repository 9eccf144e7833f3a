"""Trains a model on packed rows: warm-up, a constant phase, and a decay on longer rows; resumable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specchat.tune.training import Muon, half_precision
from training.data import Rows
from training.model import Llama, Shape


@dataclass(frozen=True)
class Recipe:
    """Schedule of a training run: a number of steps or, where `seconds` is given, a time."""

    steps: int
    tokens_a_step: int = 2048
    decay: float = 0.2
    warmup: int = 20
    muon_rate: float = 0.02
    adam_rate: float = 0.004
    prompt_weight: float = 0.1
    save_every: int = 50
    seed: int = 7
    seconds: float | None = None

    def done(self, step: int, passed: float) -> float:
        """Fraction of the run that is over after a number of steps and of seconds."""
        return step / self.steps if self.seconds is None else passed / self.seconds

    def rate(self, step: int, done: float) -> float:
        """Fraction of the full learning rate at a step."""
        rise = min(1.0, (step + 1) / self.warmup)
        fall = min(1.0, (1 - done) / max(1 / self.steps, self.decay))
        return rise * max(fall, 0.0)

    def decaying(self, done: float) -> bool:
        """True in the decay phase."""
        return done >= 1 - self.decay


Loss = Callable[[Llama, Tensor, Tensor], Tensor]


def weighted_loss(model: Llama, tokens: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of the next token, weighted by token."""
    return weighted(model(tokens[:, :-1])[0], tokens, weights)


def weighted(logits: Tensor, tokens: Tensor, weights: Tensor) -> Tensor:
    """The same of logits after all tokens but the last."""
    losses = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    mass = weights[:, 1:].flatten()
    return (losses * mass).sum() / mass.sum()


def optimizers(model: Llama, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for embedding and norms."""
    matrices: list[Tensor] = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    return [Muon(matrices, lr=recipe.muon_rate), adam]


def batch(rows: Rows, step: int, recipe: Recipe, pad: int) -> tuple[Tensor, Tensor]:
    """Rows of a step in a fixed random order, and token weights."""
    count = max(1, recipe.tokens_a_step // rows.tokens.shape[1])
    epoch, at = divmod(step * count, len(rows.tokens) // count * count)
    order = torch.randperm(len(rows.tokens), generator=torch.Generator().manual_seed(recipe.seed + epoch))
    chosen = order[at : at + count]
    tokens, replies = rows.tokens[chosen], rows.replies[chosen]
    weights = torch.where(replies, 1.0, recipe.prompt_weight) * (tokens != pad)
    return tokens, weights


def evaluate(model: Llama, rows: Rows, device: str, count: int = 24) -> float:
    """Nats per reply token on the first rows."""
    total, mass = 0.0, 0.0
    with torch.no_grad():
        for start in range(0, min(count, len(rows.tokens)), 8):
            tokens = rows.tokens[start : start + 8].to(device)
            weights = rows.replies[start : start + 8].float().to(device)
            weight = float(weights[:, 1:].sum())
            total += float(weighted_loss(model, tokens, weights)) * weight
            mass += weight
    return total / mass


@dataclass(frozen=True)
class Lessons:
    """Training data: rows and loss of the constant phase and of the decay, and held-out rows."""

    constant: Rows
    decay: Rows
    held_out: Rows
    constant_loss: Loss = weighted_loss
    decay_loss: Loss = weighted_loss


def train(
    shape: Shape, recipe: Recipe, lessons: Lessons, folder: Path, device: str, pad: int, first: Llama | None = None
) -> Llama:
    """Train from the weights of `first`, or resume from the folder's checkpoint; returns the model."""
    torch.manual_seed(recipe.seed)
    model = Llama(shape).to(device)
    if first is not None:
        model.load_state_dict(first.state_dict())
    tools = optimizers(model, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    path, step, before = folder / "checkpoint.pt", 0, 0.0
    if path.exists():
        stored = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(stored["model"])
        for tool, state in zip(tools, stored["tools"], strict=True):
            tool.load_state_dict(state)
        step, before = stored["step"], stored["seconds"]
    log = (folder / "train.log").open("a", buffering=1)
    began, shown, seen, start = time.time(), 0.0, 0, step
    precision = half_precision(device)
    while (done := recipe.done(step, passed := before + time.time() - began)) < 1:
        late = recipe.decaying(done)
        rows, loss = (lessons.decay, lessons.decay_loss) if late else (lessons.constant, lessons.constant_loss)
        tokens, weights = (part.to(device) for part in batch(rows, step, recipe, pad))
        for tool, full in zip(tools, (recipe.muon_rate, recipe.adam_rate), strict=True):
            tool.param_groups[0]["lr"] = full * recipe.rate(step, done)
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            value = loss(model, tokens, weights)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for tool in tools:
            tool.step()
            tool.zero_grad(set_to_none=True)
        now, seen = value.item(), seen + tokens.numel()
        shown = now if step == start else 0.9 * shown + 0.1 * now
        step += 1
        if step % 20 == 0:
            spent = time.time() - began
            log.write(f"step {step} loss {shown:.4f} tokens/s {seen / spent:.0f} minutes {spent / 60:.1f}\n")
        if step % recipe.save_every == 0:
            if step % (2 * recipe.save_every) == 0:
                log.write(f"step {step} held-out {evaluate(model, lessons.held_out, device):.4f}\n")
            _save(path, model, tools, step, passed)
    log.write(f"step {step} held-out {evaluate(model, lessons.held_out, device):.4f}\n")
    _save(path, model, tools, step, passed)
    return model


def _save(path: Path, model: Llama, tools: list[torch.optim.Optimizer], step: int, seconds: float) -> None:
    """Replace the checkpoint."""
    states = [tool.state_dict() for tool in tools]
    new = path.with_name("new.pt")
    torch.save({"model": model.state_dict(), "tools": states, "step": step, "seconds": seconds}, new)
    new.replace(path)
