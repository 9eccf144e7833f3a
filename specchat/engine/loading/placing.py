"""The devices of a pair: checks of the GPU, and the plan by what is free."""

import logging
from contextlib import suppress
from dataclasses import replace

import torch

from specchat.engine.cpu import compiled
from specchat.engine.errors import EngineError
from specchat.engine.gpu_checks import card
from specchat.engine.hardware import page_locked
from specchat.engine.hardware.accelerator import Accelerator, find_accelerator
from specchat.engine.hardware.gpu import CHOSEN, SECOND, Gpu
from specchat.engine.hardware.gpu_failure import REPORT, UNTIL, GpuLost, first_line
from specchat.engine.hardware.gpu_record import GpuRecord
from specchat.engine.hardware.threads import CORES
from specchat.engine.loading.drafting import noted
from specchat.engine.loading.next_best import KernelsUnsupported
from specchat.engine.loading.pictures import tower_need
from specchat.engine.loading.progress import Bar
from specchat.engine.memory import devices, gpu_need
from specchat.engine.memory.devices import Machine, Placement, place
from specchat.engine.memory.plan import GIB, LEAST_CONTEXT, Plan, context_of
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig


def placed(pair: PairSpec, target: Checkpoint, draft: Checkpoint | None, bar: Bar) -> Placement:
    """Place a pair on this machine, whose GPUs are checked before.

    Raises:
        EngineError: it does not fit, or asks for a GPU that cannot be used.
        KernelsUnsupported: the kernels do not run on the GPU, and torch does.
        GpuLost: the GPU failed.
    """
    threads = CORES if compiled.likely_available() else 0
    machine = devices.this_machine(pair)
    _check_gpu_runs(pair, machine, target.config)
    if pair.long_context:
        context = devices.longest_context(pair, target, draft, machine, threads, tower_need(target, on_gpu=True))
    else:
        context = context_of(target.config, pair.context)
    placement = place(pair, target, draft, context, machine, threads)
    if placement.plan.target.place == "cuda" and torch.cuda.is_available():
        asked, notes = placement.plan.locked, list[str]()
        if asked and (lockable := page_locked.lockable(asked, CHOSEN.device)) < asked:
            machine = replace(machine, lockable=lockable)
            placement = place(pair, target, draft, context, machine, threads)
            notes.append(_unlocked(placement.plan, asked))
        if "second-gpu" in placement.plan.places and (wrong := _wrong(pair, SECOND.device, bar)):
            machine = replace(machine, second=wrong)
            placement = place(pair, target, draft, context, machine, threads)
            notes.append(f"the second GPU is not used: {wrong}")
        if placement.plan.target.place == "cuda" and (wrong := _wrong(pair, CHOSEN.device, bar)):
            raise KernelsUnsupported(wrong, UNTIL if card.record().passes("kernels", pair.id) else REPORT)
        if "second-gpu" in placement.plan.places:
            GpuRecord.use(card.record(), card.record(SECOND.device), pair=pair.id)
        placement = replace(placement, note=noted(placement.note, *notes))
    with bar.compiling(placement.plan):
        if any(model.compiled for model in placement.plan.models):
            if compiled.unavailable():
                placement = place(pair, target, draft, context, machine)
            compiled.unavailable(compiled.CHOICE)  # chosen now, not in the first reply
    return placement


def smaller(pair: PairSpec, target: Checkpoint, draft: Checkpoint | None, before: Placement) -> Placement | None:
    """The pair on its GPU with half the context of `before` or less, which fits what is free now; None if none does."""
    machine = replace(devices.this_machine(pair), lockable=before.plan.lockable)
    if "second-gpu" not in before.plan.places:
        machine = replace(machine, second="it was not checked")
    context = before.plan.context // 2
    while context >= LEAST_CONTEXT:
        with suppress(EngineError):
            found = place(pair, target, draft, context, machine)
            if found.plan.target.place == "cuda":
                return replace(before, plan=found.plan)
        context //= 2
    return None


def _unlocked(plan: Plan, asked: int) -> str:
    """Note that the system locks less main memory for the GPU than `asked`, and what became of the pair."""
    otherwise = "the rest lies on the GPU" if plan.target.place == "cuda" else "the pair runs on the CPU"
    return (
        f"the GPU was to read {asked / GIB:.1f} GiB of main memory, and the system locks some "
        f"{(plan.lockable or 0) / GIB:.1f} for it (WSL 1 in all, 0.5 in Docker), so {otherwise}"
    )


def _check_gpu_runs(pair: PairSpec, machine: Machine, target: ModelConfig) -> None:
    """Check that the kernels support the GPU and the target, if the pair may use a GPU.

    Raises:
        KernelsUnsupported: they do not, and torch does.
    """
    if pair.target.device == "cpu":
        return
    if isinstance(machine.gpu, Gpu):
        if reason := gpu_need.unsupported(target):
            raise KernelsUnsupported(reason)
        return
    found = find_accelerator()
    if isinstance(found, Accelerator):
        ours = found.kind == "cuda" and torch.version.hip is None
        raise KernelsUnsupported(machine.gpu if ours else "specchat's own kernels are for NVIDIA GPUs")


def _wrong(pair: PairSpec, device: torch.device, bar: Bar) -> str:
    """Fault of the kernels on a GPU, by a check or an earlier result; "" where there is none.

    Raises:
        GpuLost: the GPU failed.
    """
    from specchat.engine.gpu_checks import remembered  # imports Triton

    GpuRecord.use(card.record(device), pair=pair.id)
    try:
        return remembered.wrong(pair.id, device, lambda part: bar.show(f"preparing the GPU: {part}", 0.1))
    except Exception as error:
        logging.getLogger(__name__).info("the GPU failed its checks", exc_info=True)
        raise GpuLost(pair, first_line(error)) from None
