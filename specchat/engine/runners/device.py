"""A pair on a GPU: Triton kernels, captured graphs, one copy to the host a step."""

import logging
from collections.abc import Callable
from functools import partial

import torch

from specchat.engine.cross_tokenizer.model import unsupported_strategies
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import Role
from specchat.engine.device.compile import compile_all, rehearsed
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs, current
from specchat.engine.device.handed import HandedDrafts
from specchat.engine.device.model import DeviceModel
from specchat.engine.device.on_host import DraftsOnHost
from specchat.engine.device.prepare import prepare
from specchat.engine.device.rehearsal import HOST, Rehearsed, blank
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.registry import DraftModel, drafters_for
from specchat.engine.heads.families import Found, read
from specchat.engine.kernels.products import as_with, processors
from specchat.engine.runners.host import NO_HEADS
from specchat.engine.runners.runner import Runner
from specchat.engine.threads import spare


def device_runner(
    target: DeviceDecoder,
    draft: DeviceDecoder | HostModel | None,
    vocab: int,
    device: torch.device,
    captured: bool = True,
    graphs: type[Graphs] = Graphs,
    found: Found = NO_HEADS,
) -> Runner:
    """The Triton decoder; `vocab` tokens may be chosen, a draft may also run on the host; `captured` as in `Graphs`.

    The heads that were `found` run beside the target, in plain torch that the host asks for.
    """
    models: dict[Role, DeviceDecoder] = {"target": target}
    if isinstance(draft, DeviceDecoder):
        models["draft"] = draft
    executor = DeviceExecutor(models, vocab, device, captured, graphs)
    cached = {
        role: CachedModel(DeviceModel(model, role, vocab, executor.graphs, device)) for role, model in models.items()
    }
    drafting: DraftModel | None = None
    if draft is not None and not isinstance(draft, DeviceDecoder):
        on_host = CachedModel(draft)
        by_host = DraftsOnHost({"draft": on_host}, vocab, executor.stops, executor.fill)
        executor.handed.append(by_host)
        drafting = DraftModel(on_host, by_host, ahead=False)
    elif "draft" in cached:
        drafting = DraftModel(cached["draft"], executor, ahead=True)
    heads = read(found, cached["target"])
    by_role: dict[Role, CachedModel[HostModel]] = dict(heads.models.items())
    by_heads = HandedDrafts(by_role, vocab, executor.stops, executor.fill, executor.pick_from)
    if heads.models:
        executor.handed.append(by_heads)
    for maker in heads.makers:
        if maker.chain is not None:
            executor.add_head(*maker.chain, cached["target"].model)
    headed = [maker.make(by_heads if maker.chain is None else executor) for maker in heads.makers]
    earlier, fences = Earlier(), Fences()
    refused = {**unsupported_strategies(draft), **heads.found.unfit()}
    drafters, statuses = drafters_for(
        cached["target"],
        target.config.layers,
        executor,
        drafting,
        earlier,
        executor.costs,
        fences,
        refused,
        headed=headed,
    )

    def ready(told: Callable[[str], None]) -> None:
        if device.type == "cuda":
            compile_ahead(target, draft, vocab, device, told)
        prepare(executor, cached["target"], drafters, told)

    def memory() -> int:
        beside = sum(one.model.memory() for one in heads.models.values())
        return executor.memory() + target.memory() + beside + (draft.memory() if draft is not None else 0)

    return Runner(
        target=cached["target"],
        draft=drafting.cached if drafting is not None else None,
        executor=executor,
        drafters=drafters,
        statuses=statuses,
        earlier=earlier,
        fences=fences,
        vocab=target.config.vocab,
        eos=target.config.eos,
        place="cuda",
        spare=spare(0),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "interpreted kernels",
        gpu=f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else "",
        exactness="row-invariant kernels" + (", captured graphs" if executor.graphs.captured else ""),
        memory=memory,
        prepare=ready,
    )


def compile_ahead(
    target: DeviceDecoder,
    draft: DeviceDecoder | HostModel | None,
    vocab: int,
    device: torch.device,
    told: Callable[[str], None],
) -> None:
    """Compile all kernels of a pair at a time; without, each would be compiled at its first launch."""
    told("kernels")
    try:
        with as_with(processors(device)), current(device):
            compile_all(rehearsed(partial(rehearse, target, draft, vocab)), told)
    except Exception:
        logging.getLogger(__name__).warning("kernels will be compiled one after the other", exc_info=True)


def rehearse(target: DeviceDecoder, draft: DeviceDecoder | HostModel | None, vocab: int) -> None:
    """Launch in main memory what a pair of these launches when it is prepared."""
    stand_in = blank(draft) if isinstance(draft, DeviceDecoder) else draft
    runner = device_runner(blank(target), stand_in, vocab, HOST, graphs=Rehearsed)
    assert isinstance(runner.executor, DeviceExecutor)
    runner.executor.pretend()
    runner.prepare(lambda _: None)
