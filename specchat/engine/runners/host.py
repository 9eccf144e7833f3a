"""A pair on the host's processor, or one that is asked from there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from specchat.engine.cpu import compiled
from specchat.engine.decoding.cached import CachedModel, HostModel
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.drafters.earlier import Earlier
from specchat.engine.drafters.early_exit import Exits
from specchat.engine.drafters.fences import Fences
from specchat.engine.drafters.registry import DraftModel, drafters_for
from specchat.engine.heads.families import Found, Heads, read
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.decoder import CachedDecoder, Decoder
from specchat.engine.model.plan import Place
from specchat.engine.model.vectors import fits
from specchat.engine.pair import Quant
from specchat.engine.runners.runner import Runner
from specchat.engine.threads import spare
from specchat.engine.translation.model import refused_by

NO_HEADS = Found()


class OwnModel(HostModel, Protocol):
    """A model that our own decoder runs on the processor."""

    @property
    def config(self) -> ModelConfig:
        """Its shapes."""
        ...

    @property
    def threads(self) -> int:
        """The most that work on it."""
        ...

    @property
    def exactness(self) -> str:
        """Why rows come out alike whatever goes with them, in words."""
        ...


@dataclass(frozen=True)
class TargetInfo:
    """What is told of a target, as in `Runner`.

    `layers` are those that may be left out; `threads` are those of the processor that it computes with; `trees` says
    whether it checks trees; `refused` why it cannot have a strategy; `guard` makes choices again that may be off;
    `config` is that of a model of our own, and `exit_layer` the number of its layers that are to draft.
    """

    layers: int
    eos: frozenset[int]
    device: str
    exactness: str
    threads: int
    place: Place = "cpu"
    trees: bool = True
    refused: Mapping[str, str] = field(default_factory=dict)
    guard: Guard | None = None
    config: ModelConfig | None = None
    exit_layer: int | None = None


def host_model(
    checkpoint: Checkpoint, context: int | None = None, quant: Quant | None = None, drafting: bool = False
) -> OwnModel:
    """A checkpoint that our own decoder runs: compiled where that can be, in plain torch otherwise.

    Raises:
        ModelError: weights missing, damaged or of other shapes.
    """
    if not fits(checkpoint.config) or compiled.unavailable():
        return Decoder(checkpoint, context, quant, drafting)
    from specchat.engine.cpu.decoder import CpuDecoder

    return CpuDecoder(checkpoint, context, quant)


def host_runner(
    target: OwnModel, draft: HostModel | None, exit_layer: int | None = None, found: Found = NO_HEADS
) -> Runner:
    """A target of our own on the processor, and the drafters that go with it."""
    threads = f"up to {target.threads} threads" if target.threads > 1 else "1 thread"
    words = f"cpu, {threads}, {torch.backends.cpu.get_cpu_capability()}"
    c = target.config
    about = TargetInfo(c.layers, c.eos, words, target.exactness, target.threads, config=c, exit_layer=exit_layer)
    return assembled(target, draft, about, found)


def assembled(target: HostModel, draft: HostModel | None, about: TargetInfo, found: Found = NO_HEADS) -> Runner:
    """Models that the host runs step by step, and the drafters that go with them; `found` for a target of our own."""
    cached: dict[Role, CachedModel[HostModel]] = {}
    heads = Heads({}, (), found)
    if isinstance(target, CachedDecoder):
        own = CachedModel(target)
        cached["target"] = own
        heads = read(found, own)
        cached.update(heads.models.items())
    else:
        cached["target"] = CachedModel(target)
    if draft is not None:
        cached["draft"] = CachedModel(draft)
    executor = HostExecutor(cached, about.guard, about.trees)
    drafting = DraftModel(cached["draft"], executor, ahead=False) if draft is not None else None
    earlier, fences = Earlier(), Fences()
    refused = {**refused_by(draft), **about.refused, **heads.found.unfit()}
    c = about.config
    exits = Exits(executor, c.layers, c.head_layers, about.exit_layer) if c is not None else None
    headed = [maker.make(executor) for maker in heads.makers]
    drafters, statuses = drafters_for(
        cached["target"], about.layers, executor, drafting, earlier, executor.costs, fences, refused, exits, headed
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
        spare=spare(about.threads),
        device=about.device,
        gpu="",
        exactness=about.exactness,
        memory=lambda: sum(one.model.memory() for one in cached.values()),
        prepare=lambda _: None,
    )
