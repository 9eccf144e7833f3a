"""The runner of a pair on a GPU: Triton kernels, captured graphs, one copy to the host a step."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from specchat.engine.cross_tokenizer.model import missing_features
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.costs import StepCosts
from specchat.engine.decoding.draft import Drafter, Role
from specchat.engine.decoding.length_policy import LengthPolicies
from specchat.engine.decoding.reply_rules import ReplyRules
from specchat.engine.decoding.step import Decoding
from specchat.engine.decoding.together import CommonPasses
from specchat.engine.device.apart import LoopsApart
from specchat.engine.device.beside import LoopsAhead, LoopsBeside
from specchat.engine.device.company import DeviceCompanion, DeviceTexts
from specchat.engine.device.compile import compile_all, rehearsed
from specchat.engine.device.cut import CutDecoder
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import Graphs, current
from specchat.engine.device.model import PADDED_ROWS, DeviceModel
from specchat.engine.device.rehearsal import HOST, Rehearsed, blank
from specchat.engine.device.stepwise import StepwiseExecutor
from specchat.engine.drafters.parts import Parts
from specchat.engine.drafters.skip_search import WINDOW
from specchat.engine.hardware.threads import free_cores
from specchat.engine.heads.files import FoundHeads
from specchat.engine.heads.target import read_heads
from specchat.engine.kernels.ahead import as_of, memory_of
from specchat.engine.kernels.gpu_shapes import VERIFY_ROWS
from specchat.engine.kernels.processors import as_with, processors
from specchat.engine.memory.cut import ON_TWO_GPUS
from specchat.engine.model.passes import NOTHING
from specchat.engine.protocol.options import Sampling
from specchat.engine.runners.host import NO_HEADS
from specchat.engine.runners.runner import SEARCHED, DraftingLayers, Runner, drafters_for
from specchat.engine.strategy import Feature


def device_runner(
    target: DeviceDecoder,
    draft: DeviceDecoder | HostModel | None,
    vocab: int,
    device: torch.device,
    captured: bool = True,
    graphs: type[Graphs] = Graphs,
    found: FoundHeads = NO_HEADS,
    chosen: DraftingLayers = SEARCHED,
    room: int = 0,
) -> Runner:
    """Make a runner. `vocab`: tokens that may be chosen; `captured`: see `Graphs`. A draft may run on the host.

    Caches of replies in company take `room` bytes at most; replies of a target on two GPUs take turns.

    One on another GPU than `device` runs there, as the host asks; no more than tokens go from GPU to GPU. Of a target
    on two GPUs `device` has the head.
    The heads in `found` run on the target's device in plain torch.
    """
    models: dict[Role, DeviceDecoder] = {"target": target}
    apart = on_another(draft, device)
    if isinstance(draft, DeviceDecoder) and apart is None:
        models["draft"] = draft
    executor = DeviceExecutor(models, vocab, device, captured, graphs)
    cut = target if isinstance(target, CutDecoder) else None
    if cut is not None:
        cut.use(executor.graphs, graphs(cut.front.device, [], captured))
    cached = {
        role: CachedModel(DeviceModel(model, role, vocab, executor.graphs, device)) for role, model in models.items()
    }
    small, second_memory = _drafting(draft, executor, cached, vocab, lambda its: graphs(its, [], captured))
    beside: dict[Role, CachedModel[HostModel]] = {} if small is None or "draft" in cached else {"draft": small}
    heads, found = read_heads(found, cached["target"])
    loops = LoopsBeside(heads, vocab, executor.policies, executor.pick_from)
    for role, head in heads.items():
        if not executor.drafts.add_head(role, head, cached["target"].model):
            executor.beside[role] = loops
    layers, exits = chosen.of(target.config, device)
    parts = Parts(
        target=cached["target"], layers=layers, joins=executor.joins, costs=executor.costs, draft=small, heads=heads
    )
    lacking = {**missing_features(draft), **(ON_SECOND if apart else {}), **exits, **(ON_BOTH if cut else {})}
    drafters, statuses = drafters_for(parts, lacking, found.facts)

    texts = DeviceTexts(cached["target"], vocab, 0 if cut else room, lambda state: graphs(device, state, captured))

    def ready(notify: Callable[[str], None]) -> None:
        compile_everywhere(target, draft, vocab, device, notify)
        notify("the prompt's passes")
        for one in cached.values():
            one.model.prepare()
        prepare(executor, cached["target"], drafters, notify)

    def memory() -> int:
        others = target, None if apart else draft, layers.adapter, *(one.model for one in heads.values())
        return executor.memory() + texts.memory() + sum(one.memory() for one in others if one is not None)

    return Runner(
        target=cached["target"],
        draft=small,
        executor=executor,
        drafters=drafters,
        statuses=statuses,
        earlier=parts.earlier,
        fences=parts.fences,
        vocab=target.config.vocab,
        eos=target.config.eos,
        place="cuda",
        free_cores=free_cores(0),
        device=_named(device, apart, cut),
        gpu=f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else "",
        exactness="row-invariant kernels" + (", captured graphs" if executor.graphs.captured else ""),
        memory=memory,
        prepare=ready,
        caches={**cached, **beside, **heads},
        stepwise=StepwiseExecutor(cached, beside, vocab),
        passes=CommonPasses(texts, DeviceCompanion) if texts.most > 1 else None,
        second_memory=second_memory + (0 if cut is None else cut.front_memory()),
    )


def _drafting(
    draft: DeviceDecoder | HostModel | None,
    executor: DeviceExecutor,
    cached: dict[Role, CachedModel[DeviceModel]],
    vocab: int,
    graphs_of: Callable[[torch.device], Graphs],
) -> tuple[CachedModel[Any] | None, int]:
    """The draft, and the bytes that it holds on a second GPU; `executor` gets loops of one that runs elsewhere."""
    small: CachedModel[Any] | None = cached.get("draft")
    if small is not None:
        small.asynchronous = True
    elif isinstance(draft, DeviceDecoder):
        own = graphs_of(draft.device)
        small = cached["draft"] = CachedModel(DeviceModel(draft, "draft", vocab, own, draft.device))
        executor.beside["draft"] = loops = LoopsApart(small, vocab, executor.policies, own)
        return small, draft.memory() + loops.memory()
    elif draft is not None:
        small = CachedModel(draft)
        executor.beside["draft"] = LoopsAhead({"draft": small}, vocab, executor.policies)
    return small, 0


ON_SECOND: Mapping[Feature, str] = {"draft trees": "the draft model runs on a second GPU, where it drafts chains"}
ON_BOTH: Mapping[Feature, str] = dict.fromkeys(("states", "exits", "skips"), ON_TWO_GPUS)


def _named(device: torch.device, apart: DeviceDecoder | None, cut: CutDecoder | None) -> str:
    """The GPU in words, with that of a draft `apart` and of the first layers of a target."""
    if device.type != "cuda":
        return "interpreted kernels"
    there = {} if apart is None else {"the draft": apart}
    if cut is not None:
        there[f"{cut.front.config.layers} of {cut.config.layers} layers"] = cut.front
    elsewhere = (f", {part} on a second GPU ({torch.cuda.get_device_name(one.device)})" for part, one in there.items())
    return torch.cuda.get_device_name(device) + "".join(elsewhere)


def on_another(draft: DeviceDecoder | HostModel | None, device: torch.device) -> DeviceDecoder | None:
    """The draft if it runs on another GPU than `device`."""
    return draft if isinstance(draft, DeviceDecoder) and draft.device != device else None


def compile_everywhere(
    target: DeviceDecoder,
    draft: DeviceDecoder | HostModel | None,
    vocab: int,
    device: torch.device,
    notify: Callable[[str], None],
) -> None:
    """Compile the kernels of a pair ahead, on each GPU that has a part of it."""
    apart = on_another(draft, device)
    if device.type == "cuda":
        compile_ahead(partial(rehearse, target, None if apart else draft, vocab), device, notify)
        if isinstance(target, CutDecoder):
            compile_ahead(partial(rehearse, target, None, vocab), target.front.device, notify)
    if apart is not None:
        compile_ahead(partial(rehearse_passes, apart, vocab), apart.device, notify)


def compile_ahead(run: Callable[[], object], device: torch.device, notify: Callable[[str], None]) -> None:
    """Compile in parallel all kernels that `run` launches, as for `device`, before their first launches there."""
    notify("kernels")
    try:
        with as_with(processors(device)), as_of(memory_of(device)), current(device):
            compile_all(rehearsed(run), notify)
    except Exception:
        logging.getLogger(__name__).warning("kernels will be compiled one after the other", exc_info=True)


def rehearse(target: DeviceDecoder, draft: DeviceDecoder | HostModel | None, vocab: int) -> None:
    """Launch in main memory the kernels that preparing such a pair launches; replies in company launch no others."""
    stand_in = blank(draft) if isinstance(draft, DeviceDecoder) else draft
    runner = device_runner(blank(target), stand_in, vocab, HOST, graphs=Rehearsed)
    assert isinstance(runner.executor, DeviceExecutor)
    runner.executor.pretend()
    runner.prepare(lambda _: None)


def rehearse_passes(decoder: DeviceDecoder, vocab: int) -> None:
    """Launch in main memory the kernels of a draft that the host asks for its passes."""
    graphs = Rehearsed(HOST, [])
    model = DeviceModel(blank(decoder), "draft", vocab, graphs, HOST)
    model.prepare()
    loops = LoopsApart(CachedModel(model), vocab, LengthPolicies(StepCosts()), graphs)
    for rows in PADDED_ROWS:
        loops.choose_there(model.logits_there([0] * rows, 0, NOTHING, min(rows, VERIFY_ROWS))[-1:], 1)


PROMPT = WINDOW + 2
DRAFTED = 3
"""Tokens of a draft with a first pass and later ones, unless passes of a head differ."""


def prepare(
    executor: DeviceExecutor,
    target: CachedModel[DeviceModel],
    drafters: Mapping[str, Drafter],
    notify: Callable[[str], None],
) -> None:
    """Launch each part of a step once, then reset caches and drafters.

    `notify` receives each part in words. Compiled kernels stay on disk; graphs are captured at each load.
    """
    prompt = [0] * max(1, min(PROMPT, target.model.context // 2))
    target.begin(prompt)
    decoding = Decoding(executor, target, ReplyRules(Sampling()), prompt)
    notify("verifying")
    executor.capture_verify()
    executor.rewind(prompt)
    executor.drafts.whole = True
    for name, drafter in drafters.items():
        notify(f"drafting by {name}")
        drafter.begin(prompt)
        decoding.step(drafter, max(DRAFTED, executor.drafts.longest), "coupled")
        decoding.close()
        drafter.warm(prompt)
    executor.drafts.whole = False
    target.keep(0)
    for drafter in drafters.values():
        drafter.forget()
    executor.costs.forget()
    executor.policies.forget()
