"""Times drafts by trained heads of random weights, beside plain steps of their target, Qwen3-8B's shapes in NF4.

Random heads are hardly ever right, so a step's time is measured and its tokens are not: a row tells from how many
accepted draft tokens a step on it is faster than plain decoding.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from measure.gpu.checks import Check, command
from measure.gpu.head_files import write_heads
from measure.gpu.kernels import Rows
from measure.gpu.steps import Setting, on_gpu
from specchat.bench.shapes import StepCost, timed_in_turn
from specchat.engine.decoding.draft import Drafter, Proposal, Tree
from specchat.engine.decoding.outcome import StepOutcome
from specchat.engine.reply.measure import Unlike
from specchat.engine.runners.device import device_runner
from specchat.engine.runners.runner import Runner

DRAFTS: Sequence[tuple[str, int]] = (("eagle3", 5), ("dflash", 15), ("medusa", 12), ("eagle3-tree", 12))
"""Strategies, and the draft tokens of a step by each."""
LEVELS = 5
"""Levels of a tree at most: passes of its head."""
VERIFIED = (8, 16)
"""Rows of verify passes that are timed without a draft."""
LAYERS = 36


class Whole(Drafter):
    """A drafter whose trees keep unlikely paths too, up to LEVELS tokens long: all paths of random heads are."""

    def __init__(self, of: Drafter) -> None:
        self.name, self._of = of.name, of

    @property
    def instant(self) -> bool:
        return self._of.instant

    def begin(self, prompt: Sequence[int], ends: Collection[int] = ()) -> None:
        self._of.begin(prompt, ends)

    def propose(self, token_ids: Sequence[int], limit: int) -> Proposal:
        made = self._of.propose(token_ids, limit)
        return made._replace(least=0.0, levels=min(made.levels, LEVELS)) if isinstance(made, Tree) else made

    def observe(self, token_ids: Sequence[int], outcome: StepOutcome) -> None:
        self._of.observe(token_ids, outcome)


def headed(setting: Setting, folder: Path) -> Runner:
    """A target of random weights with a head of each family, whose files are written into `folder`."""
    target, found = setting.decoder(setting.quant), write_heads(folder, setting.shapes.target)
    return device_runner(target, None, setting.shapes.target.vocab, setting.device, found=found)


def heads(setting: Setting) -> Rows:
    """Milliseconds of a plain step, of verify passes, and of drafts and steps by each head, in turn."""
    with TemporaryDirectory(prefix="specchat-heads-") as folder:
        runner = headed(setting, Path(folder))
    tried: list[tuple[Drafter, int]] = [(runner.drafters["plain"], 0)]
    tried += [(Unlike(), rows - 1) for rows in VERIFIED]
    tried += [(Whole(runner.drafters[name]), length) for name, length in DRAFTS]
    timed = timed_in_turn(runner, tried, lambda _: None, lambda: True)
    costs = [StepCost.of(length, steps) for (_, length), steps in zip(tried, timed, strict=True)]
    plain, found = costs[0], Rows()
    assert plain is not None
    for (drafter, _), steps, cost in zip(tried, timed, costs, strict=True):
        if cost is None:
            continue
        drafted = median(outcome.drafted for _, outcome in steps)
        found.append(
            {
                "step": f"verify {drafted + 1:.0f}" if isinstance(drafter, Unlike) else drafter.name,
                "drafted": drafted,
                "draft ms": cost.draft_ms.median,
                "a token": cost.draft_ms.median / drafted if drafted else 0.0,
                "verify ms": cost.verify_ms.median,
                "other ms": cost.other_ms.median,
                "step ms": cost.step_ms.median,
                "low": cost.step_ms.low,
                "high": cost.step_ms.high,
                "pays from": max(0.0, cost.step_ms.median / plain.step_ms.median - 1),
            }
        )
    return found


def _on_gpu(_: Any) -> Rows:
    return heads(on_gpu(LAYERS))


CHECKS: Mapping[str, Check] = {"heads": _on_gpu}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()
