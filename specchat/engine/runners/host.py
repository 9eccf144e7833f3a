"""A pair on the host's processor."""

import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.registry import DraftModel, drafters_for
from specchat.engine.model.decoder import Decoder
from specchat.engine.runners.runner import Runner


def host_runner(target: Decoder, draft: Decoder | None) -> Runner:
    """The plain-torch decoder and the drafters that go with it."""
    cached: dict[Role, CachedModel[Decoder]] = {"target": CachedModel(target)}
    if draft is not None:
        cached["draft"] = CachedModel(draft)
    executor = HostExecutor(cached)
    drafting = DraftModel(cached["draft"], executor, ahead=False) if draft is not None else None
    earlier, fences = Earlier(), Fences()
    drafters, statuses = drafters_for(
        cached["target"], target.config.layers, executor, drafting, earlier, executor.costs, fences
    )
    threads = torch.get_num_threads()
    return Runner(
        target=cached["target"],
        draft=cached.get("draft"),
        executor=executor,
        drafters=drafters,
        statuses=statuses,
        earlier=earlier,
        fences=fences,
        vocab=target.config.vocab,
        eos=target.config.eos,
        place="cpu",
        device=f"cpu, {threads} thread{'s' * (threads != 1)}, {torch.backends.cpu.get_cpu_capability()}",
        gpu="",
        exactness="row-invariant products: " + ", ".join(sorted(target.arrangements())),
        memory=lambda: sum(one.model.memory() for one in cached.values()),
        prepare=lambda _: None,
    )
