"""The runner of a pair on the CPU, or of one that the host runs step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from specchat.engine.cpu import compiled
from specchat.engine.cross_tokenizer.model import missing_features
from specchat.engine.decoding.cached import CachedModel, HostModel, ReadsTextsApart
from specchat.engine.decoding.draft import Role
from specchat.engine.decoding.guard import Guard
from specchat.engine.decoding.host import HostExecutor
from specchat.engine.decoding.together import CommonPasses
from specchat.engine.drafters.parts import Parts, TargetLayers
from specchat.engine.hardware.threads import free_cores
from specchat.engine.heads.files import FoundHeads
from specchat.engine.heads.target import read_heads
from specchat.engine.memory.need import Place
from specchat.engine.memory.vectors import fits
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.pair import Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.runner import SEARCHED, DraftingLayers, Runner, drafters_for
from specchat.engine.strategy import Feature
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig

NO_HEADS = FoundHeads()


@runtime_checkable
class NativeModel(HostModel, Protocol):
    """A model of a native decoder on the CPU."""

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        ...

    @property
    def threads(self) -> int:
        """Limit of the threads."""
        ...

    @property
    def instructions(self) -> str:
        """Instructions of the processor that its products are made by, in words."""
        ...

    @property
    def exactness(self) -> str:
        """Reason why a row does not depend on the other rows, in words."""
        ...


@dataclass(frozen=True)
class TargetInfo:
    """Properties of a target for its runner.

    `threads`: of the CPU; `trees`: True where it verifies trees; `unsupported`: reasons by unsupported feature; `guard`
    repeats choices that rounding may change.
    """

    eos: frozenset[int]
    device: str
    exactness: str
    threads: int
    place: Place = "cpu"
    trees: bool = True
    unsupported: Mapping[Feature, str] = field(default_factory=dict)
    guard: Guard | None = None
    layers: TargetLayers = field(default_factory=TargetLayers)


def host_model(checkpoint: Checkpoint, context: int | None = None, quant: Quant | None = None) -> NativeModel:
    """Load a checkpoint for a native decoder: the compiled one where it is supported, else the reference.

    Raises:
        ModelError: weights missing, damaged or of other shapes.
    """
    if not fits(checkpoint.config) or compiled.unavailable():
        return ReferenceDecoder(checkpoint, context, quant)
    from specchat.engine.cpu.decoder import CpuDecoder

    return CpuDecoder(checkpoint, context, quant)


def host_runner(
    target: NativeModel,
    draft: HostModel | None,
    chosen: DraftingLayers = SEARCHED,
    found: FoundHeads = NO_HEADS,
) -> Runner:
    """Make the runner of a native target on the CPU, with its drafters."""
    threads = f"up to {target.threads} threads" if target.threads > 1 else "1 thread"
    words = f"cpu, {threads}, {target.instructions}"
    c = target.config
    layers, unsupported = chosen.of(c)
    info = TargetInfo(c.eos, words, target.exactness, target.threads, unsupported=unsupported, layers=layers)
    runner = assembled(target, draft, info, found)
    adapter = layers.adapter
    return runner if adapter is None else replace(runner, memory=lambda: runner.memory() + adapter.memory())


def assembled(target: HostModel, draft: HostModel | None, info: TargetInfo, found: FoundHeads = NO_HEADS) -> Runner:
    """Make a runner of models that the host runs step by step; `found`: heads of a native target."""
    cached: dict[Role, CachedModel[HostModel]] = {}
    heads: Mapping[str, CachedModel[HostModel]] = {}
    if isinstance(target, CachedDecoder):
        cached["target"] = own = CachedModel(target)
        heads, found = read_heads(found, own)
        cached.update(heads)
    else:
        cached["target"] = CachedModel(target)
    if draft is not None:
        cached["draft"] = CachedModel(draft)
    executor = HostExecutor(cached, info.guard, info.trees)
    parts = Parts(
        target=cached["target"],
        layers=info.layers,
        joins=executor.joins,
        costs=executor.costs,
        draft=cached.get("draft"),
        heads=heads,
    )
    drafters, statuses = drafters_for(parts, {**missing_features(draft), **info.unsupported}, found.facts)
    return Runner(
        target=cached["target"],
        draft=cached.get("draft"),
        executor=executor,
        drafters=drafters,
        statuses=statuses,
        earlier=parts.earlier,
        fences=parts.fences,
        vocab=target.vocab,
        eos=info.eos,
        place=info.place,
        free_cores=free_cores(info.threads),
        device=info.device,
        gpu="",
        exactness=info.exactness,
        memory=lambda: sum(one.model.memory() for one in cached.values()),
        prepare=lambda _: None,
        caches=cached,
        passes=CommonPasses(target) if isinstance(target, ReadsTextsApart) else None,
    )
