"""The device of each model of a pair, chosen before anything is loaded, or a sentence why it cannot run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

import torch

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.gpu_shapes import PROCESSORS
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.draft_quant import drafting
from specchat.engine.model.gpu import Gpu, find_gpu
from specchat.engine.model.gpu_need import unsupported
from specchat.engine.model.memory import free_memory
from specchat.engine.model.plan import Model, Place, Plan, check_fits, fits, plan, quantised
from specchat.engine.pair import Device, ModelSource, PairSpec


@dataclass(frozen=True)
class Machine:
    """The hardware to run on: a GPU or why there is none, in words, and free main memory in bytes, None if unknown."""

    gpu: Gpu | str
    free: int | None

    @property
    def available(self) -> Mapping[Place, int | None]:
        return {"cuda": self.gpu.free if isinstance(self.gpu, Gpu) else 0, "cpu": self.free}


@dataclass(frozen=True)
class Placement:
    """A choice of where and how each model is loaded.

    `note` says why an "auto" went to the CPU, empty when it did not; `otherwise` is what to load should the GPU fail
    for a pair that did not ask for it, None where nothing else is allowed or fits.
    """

    plan: Plan
    note: str
    otherwise: Plan | None


def this_machine(pair: PairSpec) -> Machine:
    """The machine at hand; the GPU is left alone when `pair` does not want it."""
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
    """Decide where `target` and `draft` run, with at most `context` tokens of cache.

    `threads` are those that a compiled pass on the CPU may have; 0 where there is none.

    "auto" is the GPU where there is one and the pair fits it, otherwise the CPU; a draft on "auto" follows the target.

    Raises:
        ModelError: a checkpoint cannot be quantised as asked.
        EngineError: "config": a GPU is asked for and cannot be used. "memory": the pair does not fit.
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
    models = [_model(source, checkpoint, threads) for source, checkpoint in sources]

    reason = next((words for model in models if (words := unsupported(model.config))), "")

    processors = machine.gpu.processors if isinstance(machine.gpu, Gpu) else PROCESSORS

    unsaid = pair.draft is not None and pair.draft.quant is None and models[-1].quant is None
    free_to_choose = unsaid and find_spec("bitsandbytes") is not None

    def laid_out(target_place: Place) -> Plan:
        placed = [
            replace(model, place=_placed(source.device, target_place))
            for model, (source, _) in zip(models, sources, strict=True)
        ]
        big, small = placed[0], placed[1] if len(placed) > 1 else None
        if small is not None and small.quant is not None and not small.fixed:
            small = quantised(small, small.quant)
        made = plan(big, small, context, processors)
        return drafting(made, machine.available) if free_to_choose else made

    asked = any(source.device == "cuda" for source, _ in sources)
    if asked and reason:
        raise EngineError("config", f'{pair.name} asks for device = "cuda": {reason}. Say device = "auto" or "cpu".')
    if wanted != "auto":
        chosen, note = laid_out(wanted), ""
    elif isinstance(machine.gpu, str) or reason:
        chosen, note = laid_out("cpu"), machine.gpu if isinstance(machine.gpu, str) else reason
    else:
        chosen, note = laid_out("cuda"), ""
        if not fits(chosen, machine.available) and fits(laid_out("cpu"), machine.available):
            chosen, note = laid_out("cpu"), f"the pair does not fit the free memory of the GPU ({machine.gpu.name})"
    check_fits(chosen, machine.available, pair.name)
    spare = laid_out("cpu") if wanted == "auto" and chosen.target.place == "cuda" and not asked else None
    return Placement(chosen, note, spare if spare and fits(spare, machine.available) else None)


def _placed(device: Device, otherwise: Place) -> Place:
    return otherwise if device == "auto" else device


def _model(source: ModelSource, checkpoint: Checkpoint, threads: int) -> Model:
    quant, fixed = checkpoint.kept(source.quant), checkpoint.quant is not None
    if quant is not None and not fixed and find_spec("bitsandbytes") is None:
        raise ModelError(
            f'{source.label}: quant = "{quant}" needs the package bitsandbytes, which is not installed. '
            "Install it, or leave quant out."
        )
    rows = None if checkpoint.drafts is None else len(checkpoint.drafts)
    model = Model(checkpoint.config, "cpu", quant, fixed, checkpoint.nested, head_rows=rows, threads=threads)
    return replace(model, half=half_on_cpu(checkpoint))


def half_on_cpu(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has 16 bits a weight, and keeps them on the CPU."""
    return checkpoint.dtype in (torch.float16, torch.bfloat16)
