"""Placement of a pair's models on devices, decided before anything is loaded."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu import Gpu, find_gpu
from specchat.engine.kernels.gpu_shapes import PROCESSORS
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.memory.need import Model, Place, quantised
from specchat.engine.memory.plan import LEAST_CONTEXT, Plan, check_fits, context_of, drafting, fits, making_room, plan
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import left_dense

HELD_BACK = 0.1
"""Fraction of the free memory that a context as long as possible leaves to trained heads and other programs."""


@dataclass(frozen=True)
class Machine:
    """The hardware: a GPU or the reason why there is none, and free main memory in bytes, None if unknown.

    `lockable` as in `Plan`.
    """

    gpu: Gpu | str
    free: int | None
    lockable: int | None = None

    @property
    def available(self) -> Mapping[Place, int | None]:
        return {"cuda": self.gpu.free if isinstance(self.gpu, Gpu) else 0, "cpu": self.free}

    def less(self, fraction: float) -> "Machine":
        """The machine without a fraction of what is free."""
        gpu = self.gpu if isinstance(self.gpu, str) else replace(self.gpu, free=int((1 - fraction) * self.gpu.free))
        return replace(self, gpu=gpu, free=None if self.free is None else int((1 - fraction) * self.free))


@dataclass(frozen=True)
class Placement:
    """A plan of the load, with a fallback.

    `note` is the reason why an "auto", of the draft alone too, runs on the CPU, else empty. `otherwise` is the plan
    to load if the GPU fails; None where the pair asked for the GPU, or nothing else fits.
    """

    plan: Plan
    note: str
    otherwise: Plan | None


def this_machine(pair: PairSpec) -> Machine:
    """This machine; the GPU is not touched unless `pair` may use it."""
    sources = (pair.target, pair.draft) if pair.draft else (pair.target,)
    wanted = any(source.device != "cpu" for source in sources)
    return Machine(find_gpu() if wanted else "it was not asked for", free_memory())


def place(
    pair: PairSpec,
    target: Checkpoint,
    draft: Checkpoint | None,
    context: int,
    machine: Machine | None = None,
    threads: int = 0,
) -> Placement:
    """Place `target` and `draft`, with at most `context` tokens of cache.

    `threads` is the number for a compiled pass on the CPU; 0 where there is none. "auto" is the GPU if the pair fits
    one, otherwise the CPU; a draft on "auto" follows the target, unless it has no room beside it on the GPU.

    Raises:
        ModelError: a checkpoint does not support the quantisation requested.
        EngineError: "config": the pair asks for a GPU that cannot be used. "memory": the pair does not fit.
    """
    machine = machine or this_machine(pair)
    wanted = pair.target.device
    sources = [(pair.target, target)]
    if pair.draft is not None and draft is not None:
        sources.append((pair.draft, draft))
    for source, _ in sources:
        if source.device == "cuda" and isinstance(machine.gpu, str):
            raise EngineError(
                "config", f'{source.label} asks for device = "cuda": {machine.gpu}. Say device = "auto" or "cpu".'
            )
    models = [_model(pair, source, checkpoint, threads) for source, checkpoint in sources]

    reason = next((words for model in models if (words := unsupported(model.config))), "")

    processors = machine.gpu.processors if isinstance(machine.gpu, Gpu) else PROCESSORS

    open_quant = pair.draft is not None and pair.draft.quant is None and models[-1].quant is None
    free_to_choose = open_quant and find_spec("bitsandbytes") is not None

    def laid_out(target_place: Place, draft_place: Place | None = None) -> Plan:
        places = target_place, draft_place or target_place
        placed = [
            replace(model, place=_placed(source.device, where))
            for model, (source, _), where in zip(models, sources, places, strict=False)
        ]
        big, small = placed[0], placed[1] if len(placed) > 1 else None
        if small is not None and small.quant is not None and not small.fixed:
            small = quantised(small, small.quant)
        planned = replace(plan(big, small, context, processors), lockable=machine.lockable)
        planned = drafting(planned, machine.available) if free_to_choose else planned
        return making_room(planned, machine.available)

    requested = any(source.device == "cuda" for source, _ in sources)
    if requested and reason:
        raise EngineError("config", f'{pair.name} asks for device = "cuda": {reason}. Say device = "auto" or "cpu".')
    if wanted != "auto":
        chosen, note = laid_out(wanted), ""
    elif isinstance(machine.gpu, str) or reason:
        chosen, note = laid_out("cpu"), machine.gpu if isinstance(machine.gpu, str) else reason
    else:
        chosen, note = laid_out("cuda"), ""
        if not fits(chosen, machine.available):
            name = machine.gpu.name
            if len(sources) > 1 and fits(apart := laid_out("cuda", "cpu"), machine.available):
                chosen, note = apart, f"the draft has no room beside the target on the GPU ({name}) and runs on the CPU"
            elif fits(laid_out("cpu"), machine.available):
                chosen, note = laid_out("cpu"), f"the pair does not fit the free memory of the GPU ({name})"
    check_fits(chosen, machine.available, pair.name)
    if chosen.target.place == "cuda" and isinstance(machine.gpu, Gpu):
        note = "; ".join(filter(None, (note, machine.gpu.note)))
    fallback = laid_out("cpu") if wanted == "auto" and chosen.target.place == "cuda" and not requested else None
    return Placement(chosen, note, fallback if fallback and fits(fallback, machine.available) else None)


def longest_context(
    pair: PairSpec, target: Checkpoint, draft: Checkpoint | None, machine: Machine, threads: int = 0
) -> int:
    """The longest context, up to the model's own, with which a pair fits where it runs with the default one.

    Raises:
        EngineError: it does not fit with the default either.
    """
    usual = place(pair, target, draft, context_of(target.config, None), machine, threads).plan
    contexts = range(usual.context, target.config.context + 1, LEAST_CONTEXT)
    machine = machine.less(HELD_BACK)

    def too_long(context: int) -> bool:
        try:
            found = place(pair, target, draft, context, machine, threads).plan
        except EngineError:
            return True
        return (found.on_gpu, found.target.experts_in_main) != (usual.on_gpu, usual.target.experts_in_main)

    return contexts[max(0, bisect_left(contexts, True, key=too_long) - 1)]


def _placed(device: Device, otherwise: Place) -> Place:
    return otherwise if device == "auto" else device


def _model(pair: PairSpec, source: ModelSource, checkpoint: Checkpoint, threads: int) -> Model:
    quant, head = checkpoint.kept(source.quant), source.head or pair.head
    made_here = {"quant": quant if checkpoint.quant is None else None, "head": head}
    for key, setting in made_here.items():
        if setting is not None and find_spec("bitsandbytes") is None:
            raise ModelError(
                f'{source.label}: {key} = "{setting}" needs the package bitsandbytes, which is not installed. '
                f"Install it, or leave {key} out."
            )
    rows = None if checkpoint.drafts is None else len(checkpoint.drafts)
    stored, half = checkpoint.format, half_on_cpu(checkpoint)
    left = left_dense(checkpoint, checkpoint.config.recipe) if stored and stored.renames else frozenset()
    model = Model(checkpoint.config, "cpu", quant, stored, half=half, head_rows=rows, threads=threads, left=left)
    narrowed = (source.activations or pair.activations) == "bfloat16"
    return replace(model, int8_head=head is not None and model.held.dense_head, narrowed=narrowed)


def half_on_cpu(checkpoint: Checkpoint) -> bool:
    """True where a checkpoint has 16 bits per weight, which it keeps on the CPU."""
    return checkpoint.dtype in (torch.float16, torch.bfloat16)
