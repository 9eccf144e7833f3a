"""Trainings on a GPU against the same on the processor, for `specchat doctor --gpu`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import cast

import torch

from specchat.engine.device.model import DeviceModel
from specchat.engine.gpu_checks import demo
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Sampling
from specchat.engine.runners.host import host_model
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.tune.draft import DraftLearner
from specchat.tune.families import FAMILIES, untrained
from specchat.tune.learner import Learner
from specchat.tune.rows import SUFFIX, TrainingText, reply
from specchat.tune.target import DeviceTarget, FrozenTarget
from specchat.tune.training import ROWS, Training

STEPS, TOKENS = 6, 60
APART = 0.02
"""Allowed relative difference of losses: Muon rounds to bfloat16, each device in its own way."""


def trainings(notes: Notes) -> None:
    """Note losses, times and memory of each kind of training of the demo's parts, on both devices.

    The target's states come from captured passes, which were captured before states were asked for.
    """
    opened, small = Checkpoint.open(notes.demo / "target"), Checkpoint.open(notes.demo / "draft")
    pair = demo.runner(notes.demo, None, captured=True)
    model = cast(DeviceModel, pair.target.model)
    count = opened.config.layers
    layers = sorted({count, *(layer for one in FAMILIES.values() for layer in one.layers(count))})
    with TemporaryDirectory(prefix="specchat-tune-") as folder, torch.enable_grad():
        rows = [Path(folder) / f"{number}{SUFFIX}" for number in range(ROWS)]
        for number, path in enumerate(rows):
            prompt = list(range(20 + number, 60 + number))
            text = [*prompt, *demo.write(pair, "plain", 0, Sampling(), prompt, TOKENS)]
            model.record_states(layers)
            pair.target.keep(0)
            pair.target.begin(text)
            states = {each: model.states(each, 0, len(text) - 1).cpu() for each in layers}
            TrainingText(torch.tensor(text), len(prompt), states).write(path)
        there = DeviceTarget(opened, model)
        del pair, model
        host = host_model(opened, demo.CONTEXT)
        assert isinstance(host, CachedDecoder)
        replies = [reply(path) for path in rows]
        kinds: dict[str, Callable[[FrozenTarget], Learner]] = {
            "draft": partial(_draft, small, False),
            "adapters": partial(_draft, small, True),
            **{name: partial(_heads, name, replies) for name in FAMILIES},
        }
        for kind, make in kinds.items():
            _compare(notes, kind, make, FrozenTarget(opened, host), there, rows)


def _draft(draft: Checkpoint, adapted: bool, target: FrozenTarget) -> Learner:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(1)
        return DraftLearner(target, draft, "forward", adapted).to(target.device)


def _heads(name: Head, replies: Sequence[Sequence[int]], target: FrozenTarget) -> Learner:
    return untrained(name, target, replies)


def _compare(
    notes: Notes,
    kind: str,
    make: Callable[[FrozenTarget], Learner],
    here: FrozenTarget,
    there: FrozenTarget,
    rows: Sequence[Path],
) -> None:
    found = []
    for number, target in enumerate((here, there)):
        on_gpu = target.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        learner = make(target)
        training, begun = Training(learner, rows[0].with_name(f"{kind}-{number}")), perf_counter()
        found.append([at.loss for at in training.run(rows, STEPS, lambda: False)])
        notes.row(
            what=kind,
            device=target.device.type,
            losses=found[-1],
            step_ms=1e3 * (perf_counter() - begun) / STEPS,
            peak=torch.cuda.max_memory_allocated() if on_gpu else None,
        )
        apart = {one.device.type for one in (*learner.parameters(), *learner.buffers())} - {target.device.type}
        notes.expect(not apart, f"{kind}: parts of it are not on the {target.device.type}")
    worst = max(abs(one - other) / abs(other) for other, one in zip(*found, strict=True))
    notes.within(f"{kind}, losses", worst, APART)
