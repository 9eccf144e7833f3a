"""The trained heads of a pair: found and weighed before anything is loaded. What is wrong with them stops no pair."""

from collections.abc import Callable
from dataclasses import replace

from specchat.engine.api import Loading
from specchat.engine.errors import EngineError
from specchat.engine.heads.families import Found
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.mtp_settings import told_of
from specchat.engine.heads.need import need
from specchat.engine.hub import locate
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.gpu import Gpu, find_gpu
from specchat.engine.model.memory import free_memory
from specchat.engine.model.plan import GIB, Plan, fits
from specchat.engine.pair import PairSpec, StrategyStatus
from specchat.engine.strategies import STRATEGIES, Head


def found(pair: PairSpec, target: Checkpoint, progress: Callable[[Loading], None]) -> Found:
    """The heads that `pair` names, downloaded first where needed, and the layer that its target brings along."""
    files: dict[Head, HeadFiles] = {}
    refused: dict[Head, str] = {}
    for head, source in pair.heads.items():
        try:
            files[head] = HeadFiles.open(locate(source, progress))
        except EngineError as error:
            refused[head] = error.message
    if "mtp" not in pair.heads:
        if told_of(target.settings):
            files["mtp"] = HeadFiles(target.folder, target.settings, target.shards)
        else:
            refused["mtp"] = "the target has no layer for it, and [pair.heads] in models.toml names none"
    return Found(files, refused)


def fitting(heads: Found, plan: Plan) -> tuple[Found, Plan]:
    """The heads that fit the free memory beside the models of `plan`, and the plan with them."""
    if not heads.files:
        return heads, plan
    place, kind = plan.target.place, "memory" if plan.target.place == "cpu" else "GPU memory"
    free = {place: free_memory() if place == "cpu" else _free_on_gpu()}
    refused: dict[Head, str] = {}
    for head, files in heads.files.items():
        try:
            needed = need(head, files, plan.target.config, plan.context, place)
        except EngineError as error:
            refused[head] = error.message
            continue
        more = replace(plan, besides=plan.besides + needed)
        if fits(more, free):
            plan = more
        else:
            refused[head] = (
                f"the heads take {needed / GIB:.1f} GiB of {kind} beside the models, which are not free. Close other "
                "programs, or set a smaller context for the pair."
            )
    return heads.without(refused), plan


def _free_on_gpu() -> int | None:
    gpu = find_gpu()
    return gpu.free if isinstance(gpu, Gpu) else None


def told(pair: PairSpec, statuses: tuple[StrategyStatus, ...]) -> str:
    """That heads which `pair` names are not used, in sentences; empty where all are."""
    reasons = {
        STRATEGIES[status.name].needs_head: status.reason
        for status in statuses
        if not status.available and STRATEGIES[status.name].needs_head in pair.heads
    }
    return " ".join(f"{pair.id} drafts without {head} heads: {reason.rstrip('.')}." for head, reason in reasons.items())
