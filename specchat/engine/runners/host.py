"""A pair on the host's processor, or one that is asked from there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.registry import DraftModel, drafters_for
from specchat.engine.model.decoder import Decoder
from specchat.engine.model.plan import Place
from specchat.engine.runners.runner import Runner


@dataclass(frozen=True)
class About:
    """What is told of a target, as in `Runner`.

    `layers` are those that may be left out; `trees` says whether it checks trees; `refused` why it cannot have a
    strategy; `error` is what rows of different passes may differ by in a logit.
    """

    layers: int
    eos: frozenset[int]
    device: str
    exactness: str
    place: Place = "cpu"
    trees: bool = True
    refused: Mapping[str, str] = field(default_factory=dict)
    error: float = 0.0


def host_runner(target: Decoder, draft: Decoder | None) -> Runner:
    """The plain-torch decoder and the drafters that go with it."""
    threads = torch.get_num_threads()
    words = f"cpu, {threads} thread{'s' * (threads != 1)}, {torch.backends.cpu.get_cpu_capability()}"
    exactness = "row-invariant products: " + ", ".join(sorted(target.arrangements()))
    return assembled(target, draft, About(target.config.layers, target.config.eos, words, exactness))


def assembled(target: HostModel, draft: HostModel | None, about: About) -> Runner:
    """Models that the host runs step by step, and the drafters that go with them."""
    cached: dict[Role, CachedModel[HostModel]] = {"target": CachedModel(target)}
    if draft is not None:
        cached["draft"] = CachedModel(draft)
    executor = HostExecutor(cached, Guard(target, about.error) if about.error else None, about.trees)
    drafting = DraftModel(cached["draft"], executor, ahead=False) if draft is not None else None
    earlier, fences = Earlier(), Fences()
    drafters, statuses = drafters_for(
        cached["target"], about.layers, executor, drafting, earlier, executor.costs, fences, about.refused
    )
    return Runner(
        target=cached["target"],
        draft=cached.get("draft"),
        executor=executor,
        drafters=drafters,
        statuses=statuses,
        earlier=earlier,
        fences=fences,
        vocab=target.vocab,
        eos=about.eos,
        place=about.place,
        device=about.device,
        gpu="",
        exactness=about.exactness,
        memory=lambda: sum(one.model.memory() for one in cached.values()),
        prepare=lambda _: None,
    )
