"""The trained parts of a pair, found and measured before anything is loaded. Faulty heads do not stop the pair."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.errors import EngineError
from specchat.engine.fetch.hub import locate
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu import Gpu, find_gpu
from specchat.engine.heads.files import FoundHeads, HeadFiles
from specchat.engine.heads.recipe import need
from specchat.engine.memory.cut import ON_TWO_GPUS
from specchat.engine.memory.plan import GIB, Plan, fits
from specchat.engine.protocol.events import Loading
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.protocol.pair_info import StrategyStatus
from specchat.engine.strategies import HEADS, STRATEGIES
from specchat.engine.strategy import Head, resolved
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.exit_adapter import adapter_bytes


def found(pair: PairSpec, target: Checkpoint, progress: Callable[[Loading], None]) -> FoundHeads:
    """Find the heads that `pair` names, downloaded if need be, and the layer that its target includes.

    `drafts` of the target are the tokens that heads may propose which use its output matrix.
    """
    files: dict[Head, HeadFiles] = {}
    unsupported: dict[Head, str] = {}
    for head, source in pair.heads.items():
        try:
            files[head] = HeadFiles.open(locate(source, progress))
        except EngineError as error:
            unsupported[head] = error.message
    for head, family in HEADS.items():
        if family.in_target and head not in pair.heads:
            if resolved(family.in_target)(target.settings):
                own = HeadFiles(target.folder, target.settings, target.shards, format=target.format)
                files[head] = replace(own, nextn=target.nextn)
            else:
                unsupported[head] = "the target has no layer for it, and [pair.heads] in models.toml names none"
    if target.drafts is not None:
        files = {head: replace(one, frequent=target) for head, one in files.items()}
    return FoundHeads(files, unsupported)


def has_own_layer(pair: PairSpec, target: Checkpoint) -> bool:
    """True if `target` should include a layer that drafts with its output matrix, or `pair` names such a layer."""
    return any(
        family.in_target and (head in pair.heads or resolved(family.in_target)(target.settings))
        for head, family in HEADS.items()
    )


def own_layer_drafts(statuses: tuple[StrategyStatus, ...]) -> bool:
    """True if a layer that drafts with the target's output matrix was loaded."""
    heads = (STRATEGIES[status.name].head for status in statuses if status.available)
    return any(head is not None and head.in_target for head in heads)


def fitting(heads: FoundHeads, plan: Plan) -> tuple[FoundHeads, Plan]:
    """The heads that fit the free memory beside `plan`, and the plan with them."""
    if not heads.files or plan.target.first:
        return heads.without(dict.fromkeys(heads.files, ON_TWO_GPUS)), plan
    unsupported: dict[Head, str] = {}
    for head, files in heads.files.items():
        try:
            needed = need(head, files, plan.target.config, plan.context, plan.target.place)
        except EngineError as error:
            unsupported[head] = error.message
            continue
        plan, reason = with_room(plan, needed, "the heads take")
        if reason:
            unsupported[head] = reason
    return heads.without(unsupported), plan


def with_adapter(pair: PairSpec, plan: Plan) -> tuple[PairSpec, Plan, str]:
    """`pair` and the plan with its adapter for `early-exit`; where that does not fit, without, and a sentence."""
    if pair.exit is None or plan.target.first:
        return replace(pair, exit=None), plan, ""
    plan, reason = with_room(plan, adapter_bytes(plan.target.config), "it takes")
    if reason:
        return replace(pair, exit=None), plan, f"early-exit drafts without its adapter: {reason}"
    return pair, plan, ""


def with_room(plan: Plan, needed: int, takes: str) -> tuple[Plan, str]:
    """The plan with `needed` bytes on the target's device; where they are not free, `plan` and why in words."""
    place = plan.target.place
    free, kind = (free_memory(), "memory") if place == "cpu" else (free_on_gpu(), "GPU memory")
    more = replace(plan, besides=plan.besides + needed)
    if fits(more, {place: free}):
        return more, ""
    return plan, (
        f"{takes} {needed / GIB:.1f} GiB of {kind} beside the models, which are not free. Close other programs, or set "
        "a smaller context for the pair."
    )


def free_on_gpu() -> int | None:
    """Free bytes of the GPU; None without one."""
    gpu = find_gpu()
    return gpu.free if isinstance(gpu, Gpu) else None


def unused_heads(pair: PairSpec, statuses: tuple[StrategyStatus, ...]) -> str:
    """Sentences on heads that `pair` names and that are not used; empty where all are."""
    families = ((STRATEGIES[status.name].head, status) for status in statuses if not status.available)
    reasons = {
        family.name: status.reason for family, status in families if family is not None and family.name in pair.heads
    }
    return " ".join(f"{pair.id} drafts without {head} heads: {reason.rstrip('.')}." for head, reason in reasons.items())
