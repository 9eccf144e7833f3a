"""NaN and garbage in whatever a pass or a step of the device path must not depend on, before each of them.

Buffers are found by walking the objects, so a new one is poisoned without being named here. Named is what has to stay.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.decoding.draft import Chain, Tree
from specchat.engine.decoding.length_policy import LengthPolicy
from specchat.engine.device.decoder import ALL_ROWS, Branches, DeviceDecoder, Exit, RowOptions
from specchat.engine.device.drafting import CapturedDrafts
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs
from specchat.engine.device.inputs import PassInputs
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.skips import SkipFlags
from specchat.engine.device.verify import Kind, Verifier
from specchat.engine.kernels.gpu_shapes import PASS_ROWS
from specchat.engine.protocol.options import Acceptance

WALKED = ("specchat.engine.device.", "specchat.engine.kernels.")
"""Modules whose objects are walked; those of others hold no buffers of a step."""
ALL, FIRST = slice(None), slice(1)

PASS_KEEPS = {"offsets": ALL, "whole": ALL}
"""Of `Buffers`: constants, and -inf for tokens outside a draft vocabulary."""
RECURRENT_KEEPS = dict.fromkeys(
    ("states", "positions", "entries", "_layers", "_checkpoints", "_chain", "_weights"), ALL
)
"""Of `Recurrent`: what it holds of a text, and constants."""
STEP_KEEPS = {
    "drafts._flags._flags": ALL,
    "_state.fed": FIRST,
    "_state.length": ALL,
    "_state.reals": ALL,
    "_state.integers": ALL,
    "_state.seed": ALL,
    "_state.in_prompt": ALL,
    "_state.counts": ALL,
    "_state.bias": ALL,
    "_state.eos": ALL,
    # Those of a chain, which `start` has put there.
    "_state.parents": ALL,
    "_state.depth": ALL,
    "_state.path": ALL,
    "_verifier.text": ALL,
    # Always 0: a level is judged from its first row on.
    "drafts.trees.growth.step.node": ALL,
}
"""Of `DeviceExecutor`: the text so far, the sampler's options, sub-layers left out, and what hangs together how."""

DRAFT_KEEPS = {
    **{name: kept for name, kept in STEP_KEEPS.items() if name.startswith("_state")},
    "_flags._flags": ALL,
    "_text": ALL,
    "trees.growth.step.node": ALL,
}
"""Of `CapturedDrafts`: the same, for drafts that begin before the host has read the last step's report."""
HEAD_KEEPS = {f"drafts._heads.{name}": ALL for name in ("_before", "_width", "_alone")}
"""Of heads that the executor runs: constants."""
VERIFY_KEEPS = {"_state": ALL, "_drawn": ALL, "text": ALL, "_on_host": ALL}
"""Of `Verifier`: what others hold, the end of the text, and reports that the host may not have read yet."""


def buffers(holder: object, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors that `holder` has, by their attributes; not weights, nor what graphs know of others."""
    if isinstance(holder, Tensor):
        yield path, holder
    elif isinstance(holder, DeviceDecoder | Graphs):
        return
    elif hasattr(holder, "_asdict"):
        for name, one in holder._asdict().items():
            yield from buffers(one, f"{path}.{name}" if path else name)
    elif isinstance(holder, list | tuple):
        for one in holder:
            yield from buffers(one, path)
    elif isinstance(holder, dict):
        for one in holder.values():
            yield from buffers(one, path)
    elif type(holder).__module__.startswith(WALKED) and hasattr(holder, "__dict__"):
        for name, one in vars(holder).items():
            yield from buffers(one, f"{path}.{name}" if path else name)


def spoil(tensor: Tensor) -> None:
    """Nothing that may be computed with: no number, no token, no position."""
    if tensor.is_floating_point():
        tensor.fill_(torch.nan)
    else:
        tensor.fill_(255 if tensor.dtype == torch.uint8 else 123_456_789)


@torch.inference_mode()
def spoil_but(holder: object, keeps: dict[str, slice]) -> None:
    """Spoil the tensors of `holder` but those parts, or those of the objects named; what shares their memory keeps it.

    `whole` is there with a draft vocabulary alone, `_checkpoints` after a long prompt, `_drawn` where there are drafts;
    another name that is not there is an error.
    """
    found = list(buffers(holder))
    kept, met = [], {"whole", "_checkpoints", "_drawn"}
    for path, tensor in found:
        for name in keeps:
            if path == name or path.startswith(name + "."):
                met.add(name)
                kept.append((tensor[keeps[name]], tensor[keeps[name]].clone()))
    assert met >= keeps.keys(), f"no longer there: {keeps.keys() - met}"
    for _, tensor in found:
        spoil(tensor)
    for part, before in kept:
        part.copy_(before)


def positions(model: DeviceDecoder) -> Iterator[Tensor]:
    """What is kept of a text, position by position: [.., positions, values]."""
    yield from model.caches.by_shape.values()
    if model.states is not None:
        yield model.states._kept


def spoil_states(model: DeviceDecoder, text: int) -> None:
    """NaN in entries of recurrent layers that are of no token before `text`, and in states of a longer text."""
    if model.recurrent is None:
        return
    taps, of = model.config.recipe.recurrent[0].taps, model.recurrent
    for states, positions, log in zip(of.states, of.positions, of.entries, strict=True):
        held = positions[0, 0].tolist()
        assert (positions == positions[0, 0]).all()
        of_text = {position % len(log) for position in range(max(0, held[0] - taps + 1), text)}
        log[[slot for slot in range(len(log)) if slot not in of_text]] = torch.nan
        for plane, position in zip(states, held, strict=True):
            if position > text or not text:
                plane.fill_(torch.nan)


def places(kept: Tensor, first: int, last: int) -> list[int]:
    """Where positions first, ..., last - 1 are kept, at most all of a ring."""
    entries = kept.shape[-2]
    return [position % entries for position in range(first, min(last, first + entries))]


def later(model: DeviceDecoder, kept: Tensor, first: int) -> list[int]:
    """Where positions from `first` on are kept; of a ring those of a pass, for beyond them are earlier ones."""
    return places(kept, first, model.capacity if kept.shape[-2] == model.capacity else first + PASS_ROWS)


@contextmanager
def outside_windows(model: DeviceDecoder, length: int) -> Iterator[None]:
    """NaN for a pass in what none of its rows sees, the first of which stands after `length` entries."""
    kept = []
    for index, entries in model.caches.entries.items():
        if window := model.config.recipe.layers[index].attention.window:
            for part in entries:
                # Of a ring those that no row of any pass from here on sees.
                last, number = max(0, length + 1 - window), part.shape[1]
                unseen = places(part, max(0, length + PASS_ROWS - number), last)
                kept.append((part, unseen, part[:, unseen].clone()))
    for part, unseen, _ in kept:
        part[:, unseen] = torch.nan
    yield
    for part, unseen, before in kept:
        part[:, unseen] = before


@contextmanager
def poisoned() -> Iterator[Counter[str]]:
    """Poison before each; counts the passes, the steps, their drafts and the prompts' passes."""
    counts = Counter[str]()
    forward, start, put = DeviceDecoder.forward, DeviceExecutor.start, PassInputs.put
    write, judge, draft = DeviceModel.write, Verifier.judge, CapturedDrafts.start

    def poisoned_pass(
        model: DeviceDecoder,
        tokens: Tensor,
        first: Tensor,
        rows: int,
        skip: SkipFlags | None = None,
        tree: Branches | None = None,
        early: Exit | None = None,
        options: RowOptions = ALL_ROWS,
    ) -> None:
        counts["passes"] += 1
        spoil_but(model.buffers, PASS_KEEPS)
        if model.recurrent is not None:
            spoil_but(model.recurrent, RECURRENT_KEEPS)
        for kept in positions(model):
            kept[..., places(kept, int(first), int(first) + rows), :] = torch.nan
        spoil_states(model, int(first))
        with outside_windows(model, int(first if tree is None else tree.length)):
            forward(model, tokens, first, rows, skip, tree, early, options)

    def poisoned_step(executor: DeviceExecutor, acceptance: Acceptance) -> None:
        counts["steps"] += 1
        start(executor, acceptance)
        spoil_but(executor, STEP_KEEPS | (HEAD_KEEPS if executor.drafts._heads else {}))
        for model in executor.drafts._models.values():
            for kept in positions(model):
                kept[..., later(model, kept, int(executor._state.length)), :] = torch.nan
            spoil_states(model, int(executor._state.length))

    def poisoned_draft(drafts: CapturedDrafts, proposal: Chain | Tree, policy: LengthPolicy | None) -> None:
        counts["drafts"] += 1
        of_heads = {name.removeprefix("drafts."): kept for name, kept in HEAD_KEEPS.items()} if drafts._heads else {}
        spoil_but(drafts, DRAFT_KEEPS | of_heads)
        draft(drafts, proposal, policy)

    def poisoned_inputs(inputs: PassInputs, *given: Any) -> int:
        spoil_but(inputs, {})
        return put(inputs, *given)

    def poisoned_write(model: DeviceModel, tokens: Sequence[int], first: int) -> None:
        counts["writes"] += 1
        spoil_but(model, {"_flags._flags": ALL})
        for kept in positions(model.decoder):
            kept[..., later(model.decoder, kept, first), :] = torch.nan
        spoil_states(model.decoder, first)
        write(model, tokens, first)

    def poisoned_verdict(verifier: Verifier, rows: int, kind: Kind, *logits: Tensor) -> None:
        """A plain step may begin before the last one has ended, without a start of its own."""
        spoil_but(verifier, VERIFY_KEEPS)
        judge(verifier, rows, kind, *logits)

    with pytest.MonkeyPatch.context() as patch:
        changed: list[tuple[Any, str, Any]] = [
            (DeviceDecoder, "forward", poisoned_pass),
            (DeviceExecutor, "start", poisoned_step),
            (PassInputs, "put", poisoned_inputs),
            (DeviceModel, "write", poisoned_write),
            (Verifier, "judge", poisoned_verdict),
            (CapturedDrafts, "start", poisoned_draft),
        ]
        for owner, name, instead in changed:
            patch.setattr(owner, name, instead)
        yield counts
