"""Placement of a pair's models on devices, decided before anything is loaded."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu import Gpu, find_gpu, find_second
from specchat.engine.kernels.gpu_shapes import PROCESSORS
from specchat.engine.memory.cut import cannot_cut
from specchat.engine.memory.gpu_need import unsupported
from specchat.engine.memory.need import Model, Place
from specchat.engine.memory.plan import (
    LEAST_CONTEXT,
    Plan,
    check_fits,
    context_of,
    cut_in_two,
    drafting,
    fits,
    for_both,
    making_room,
    plan,
)
from specchat.engine.protocol.pair import Device, ModelSource, PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import left_dense

HELD_BACK, HELD_BACK_ON_CPU = 0.1, 0.5
"""Fraction of the free memory that a context as long as possible leaves to trained heads and other programs."""


@dataclass(frozen=True)
class Machine:
    """The hardware: a GPU or the reason why there is none, and free main memory in bytes, None if unknown.

    `lockable` as in `Plan`; `second` is another GPU for a draft or some layers, or the reason why there is none.
    """

    gpu: Gpu | str
    free: int | None
    lockable: int | None = None
    second: Gpu | str = "it was not asked for"

    @property
    def available(self) -> Mapping[Place, int | None]:
        first, second = (gpu.free if isinstance(gpu, Gpu) else 0 for gpu in (self.gpu, self.second))
        return {"cuda": first, "second-gpu": second, "cpu": self.free}

    def less(self, fraction: float, besides: int = 0) -> "Machine":
        """The machine without a fraction of what is free, and without `besides` bytes of a GPU."""
        gpu, second = (
            one if isinstance(one, str) else replace(one, free=int((1 - fraction) * one.free) - besides)
            for one in (self.gpu, self.second)
        )
        free = None if self.free is None else int((1 - fraction) * self.free)
        return replace(self, gpu=gpu, second=second, free=free)


@dataclass(frozen=True)
class Placement:
    """A plan of the load, with a fallback.

    `note` is the reason why an "auto" runs on the CPU, or the draft alone elsewhere, else empty. `otherwise` is the
    plan to load if the GPU fails; None where the pair asked for the GPU, or nothing else fits.
    """

    plan: Plan
    note: str
    otherwise: Plan | None


def this_machine(pair: PairSpec) -> Machine:
    """This machine; a GPU is not touched unless `pair` may use it."""
    sources = (pair.target, pair.draft) if pair.draft else (pair.target,)
    wanted = any(source.device != "cpu" for source in sources)
    machine = Machine(find_gpu() if wanted else "it was not asked for", free_memory())
    apart = pair.target.device in ("auto", "both-gpus") or (pair.draft and pair.draft.device in ("auto", "second-gpu"))
    return replace(machine, second=find_second()) if apart and isinstance(machine.gpu, Gpu) else machine


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
    one, otherwise the CPU; a draft on "auto" follows the target, unless it has no room beside it on the GPU, and then
    goes to a second one with room, else to the CPU. A target that is too large for the GPU has its first layers on a
    second one, if both are enough.

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
        _check_wanted(source, target if source is pair.target else None, machine)
    models = [_model(pair, source, checkpoint, threads) for source, checkpoint in sources]

    reason = next((words for model in models if (words := unsupported(model.config))), "")

    processors, others = (
        gpu.processors if isinstance(gpu, Gpu) else PROCESSORS for gpu in (machine.gpu, machine.second)
    )

    open_quant = pair.draft is not None and pair.draft.quant is None and models[-1].quant is None
    free_to_choose = open_quant and find_spec("bitsandbytes") is not None

    def laid_out(target_place: Place, draft_place: Place | None = None, cut: bool = False) -> Plan:
        places = target_place, draft_place or target_place
        placed = [
            replace(model, place=_placed(source.device, where))
            for model, (source, _), where in zip(models, sources, places, strict=False)
        ]
        big, small = placed[0], placed[1] if len(placed) > 1 else None
        planned = replace(plan(big, small, context, processors), lockable=machine.lockable, others=others)
        planned = drafting(planned, machine.available, cut, free_to_choose)
        return (cut_in_two if cut else making_room)(planned, machine.available)

    requested = [source.device for source, _ in sources if source.device not in ("auto", "cpu")]
    if requested and reason:
        raise EngineError(
            "config", f'{pair.name} asks for device = "{requested[0]}": {reason}. Say device = "auto" or "cpu".'
        )
    if wanted == "cpu":
        chosen, note = laid_out("cpu"), ""
    elif isinstance(machine.gpu, str) or reason:
        chosen, note = laid_out("cpu"), machine.gpu if isinstance(machine.gpu, str) else reason
    elif wanted == "both-gpus":
        chosen, note = laid_out("cuda", cut=True), ""
    else:
        chosen, note = _on_gpu(laid_out, machine, machine.gpu, wanted == "auto")
    check_fits(chosen, machine.available, pair.name)
    if chosen.target.place == "cuda" and isinstance(machine.gpu, Gpu):
        note = "; ".join(filter(None, (note, machine.gpu.note)))
    fallback = laid_out("cpu") if wanted == "auto" and chosen.target.place == "cuda" and not requested else None
    return Placement(chosen, note, fallback if fallback and fits(fallback, machine.available) else None)


def _on_gpu(laid_out: Callable[..., Plan], machine: Machine, gpu: Gpu, auto: bool) -> tuple[Plan, str]:
    """The plan of a pair for a `gpu`, and the reason why not all of it is there; `auto` allows a target elsewhere."""
    chosen, note = laid_out("cuda"), ""
    crowded = not fits(chosen, machine.available)
    apart = f"the draft has no room beside the target on the GPU ({gpu.name}) and runs on"
    # Equal to `chosen` where the draft is not free to go.
    second, experts = laid_out("cuda", "second-gpu"), chosen.target.experts_in_main
    better = fits(second, machine.available) and (crowded or second.target.experts_in_main < experts)
    if better and second != chosen and isinstance(machine.second, Gpu):
        chosen, note, crowded = second, f"{apart} a second one ({machine.second.name})", False
    cut = laid_out("cuda", cut=True) if auto and for_both(chosen, machine.available) else None
    if cut is not None and fits(cut, machine.available):
        return cut, f"the target does not fit the GPU ({gpu.name}), and has layers on a second one too"
    if crowded and auto:
        if chosen.draft is not None and fits(beside := laid_out("cuda", "cpu"), machine.available):
            return beside, f"{apart} the CPU"
        if fits(on_cpu := laid_out("cpu"), machine.available):
            return on_cpu, f"the pair does not fit the free memory of the GPU ({gpu.name})"
        chosen = cut or chosen
    return chosen, note


def _check_wanted(source: ModelSource, target: Checkpoint | None, machine: Machine) -> None:
    """Raise EngineError ("config") if a model asks for a GPU that cannot be used; `target` is the checkpoint of one."""
    second = machine.gpu if isinstance(machine.gpu, str) else machine.second
    gpus = {"cuda": machine.gpu, "second-gpu": second, "both-gpus": second}
    if target is None:
        gpus["both-gpus"] = "layers of a target alone lie on both"
    else:
        gpus["second-gpu"] = 'that is of drafts, and "cuda" is the GPU with most free memory'
        gpus["both-gpus"] = cannot_cut(target.config.recipe) or second
    if isinstance(reason := gpus.get(source.device), str):
        raise EngineError(
            "config", f'{source.label} asks for device = "{source.device}": {reason}. Say device = "auto" or "cpu".'
        )


def longest_context(
    pair: PairSpec, target: Checkpoint, draft: Checkpoint | None, machine: Machine, threads: int = 0, tower: int = 0
) -> int:
    """The longest context, up to the model's own, with which a pair fits where it runs with the default one.

    `tower` bytes of a GPU stay free, if the pair fits beside them.

    Raises:
        EngineError: it does not fit with the default either.
    """
    usual = place(pair, target, draft, context_of(target.config, None), machine, threads).plan
    contexts = range(usual.context, target.config.context + 1, LEAST_CONTEXT)

    def too_long(context: int, machine: Machine) -> bool:
        try:
            found = place(pair, target, draft, context, machine, threads).plan
        except EngineError:
            return True
        return (found.places, found.target.experts_in_main) != (usual.places, usual.target.experts_in_main)

    def fitting(machine: Machine) -> int:
        return bisect_left(contexts, True, key=lambda context: too_long(context, machine))

    if usual.target.place == "cpu":
        count = fitting(machine.less(HELD_BACK_ON_CPU))
    else:
        count = fitting(machine.less(HELD_BACK, tower)) or fitting(machine.less(HELD_BACK))
    return contexts[max(0, count - 1)]


def _placed(device: Device, otherwise: Place) -> Place:
    if device == "both-gpus":
        return "cuda"
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
