"""Memory estimate of a pair, before anything is loaded, and the nearest setting that fits."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from specchat.engine.errors import EngineError
from specchat.engine.kernels.gpu_shapes import PROCESSORS
from specchat.engine.memory import gpu_need
from specchat.engine.memory.cut import cannot_cut, cuts
from specchat.engine.memory.gpu_states import checkpoints
from specchat.engine.memory.need import (
    Model,
    Need,
    Place,
    expert_bytes,
    locked_bytes,
    need,
    quantised,
)
from specchat.engine.protocol.pair import DEFAULT_CONTEXT, Quant
from specchat.engine.weights.config import ModelConfig

GIB = 1 << 30
SPARE = 0.05
"""Fraction of memory left free: allocators round up, and the estimate is good to 5 %."""
LEAST_CONTEXT = 1024
"""Least context to propose: too little of a chat would fit into a smaller one."""
CONTEXT_STEP = 256

GPU_RUNTIME = 256 << 20
"""Bytes of CUDA beside tensors for a running pair: modules, loaded at their first launch, and captured graphs, in which
each node holds a kernel's arguments. Estimated, not measured; 5 % of a GPU of 8 GB would be less."""


@dataclass(frozen=True)
class Plan:
    """A pair with `context` tokens of cache in each model, and its memory.

    `processors` are the GPU's multiprocessors, which determine the tiling of products, and `others` those of a second
    GPU; `besides` are the bytes of trained heads and an adapter on the target's device. `lockable` are the bytes of
    main memory that the system locks for a GPU to read; None: as many as are asked for. `left` bytes of
    the target's GPU are free beside all this, for caches of replies that decode in one pass.
    """

    target: Model
    draft: Model | None
    context: int
    processors: int = PROCESSORS
    besides: int = 0
    lockable: int | None = None
    others: int = PROCESSORS
    left: int = 0

    @property
    def locked(self) -> int:
        """Bytes of main memory that a GPU reads."""
        return sum(map(locked_bytes, self.parts))

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def parts(self) -> tuple[Model, ...]:
        """The models, in two where layers lie on two GPUs."""
        return tuple(part for model in self.models for part in model.parts)

    @property
    def places(self) -> tuple[Place, ...]:
        """Places of the target and of the draft."""
        return tuple(part.place for part in self.parts)

    def need(self, place: Place) -> Need:
        """Memory of all models on `place`."""
        processors = self.others if place == "second-gpu" else self.processors
        needs = [need(model, self.context, processors) for model in self.parts if model.place == place]
        weights, cache = sum(n.weights for n in needs), sum(n.cache for n in needs)
        own, shared = sum(n.workspace - n.shared for n in needs), max([0, *(n.shared for n in needs)])
        weights += self.besides if self.target.place == place else 0
        if place == "cpu":
            # A GPU reads tables, and some experts, where they are; checkpoints of its states are held here.
            on_gpu = [model for model in self.models if model.place != "cpu"]
            weights += self.locked
            cache += sum(checkpoints(model.config.recipe) for model in on_gpu)
            return Need(weights, cache, own + shared, shared)
        verifying = gpu_need.verifying(self.target.config) if self.target.place == place else 0
        return Need(weights, cache, (GPU_RUNTIME if needs else 0) + verifying + own)

    def leaving(self, free: int | None) -> "Plan":
        """Return the plan with what it leaves of the `free` bytes of a target's GPU for texts, besides their graphs."""
        room = 0 if free is None else (1 - SPARE) * free - self.need(self.target.place).total - GPU_RUNTIME
        return replace(self, left=max(0, int(room)))

    def changed(self, change: Callable[[Model], Model]) -> "Plan":
        """Return the plan with both models changed."""
        return replace(self, target=change(self.target), draft=self.draft and change(self.draft))

    def with_int8_cache(self) -> "Plan":
        """Return the plan with the KV entries of both models in 8 bits."""
        return self.changed(lambda model: replace(model, config=model.config.with_cache("int8")))

    def apart(self) -> "Plan":
        """Return the plan with each model on a GPU of its own."""
        moved = self.on("cuda")
        return replace(moved, draft=moved.draft and replace(moved.draft, place="second-gpu"))

    def on(self, place: Place) -> "Plan":
        """Return the plan with both models on `place`."""
        moved = replace(self.draft, place=place) if self.draft else None
        if moved and moved.chosen and place == "cpu":
            moved = replace(moved, quant=None, head=None, chosen=False)
        return replace(self, target=replace(self.target, place=place, first=0), draft=moved)


def context_of(config: ModelConfig, asked: int | None) -> int:
    """Tokens of cache for a pair that requests `asked` tokens, or the default."""
    return min(asked, config.longest) if asked else min(DEFAULT_CONTEXT, config.context)


def shortened(asked: int | None, longest: int, label: str) -> str:
    """Message that the model `label` cannot hold the requested context; empty if it can."""
    if asked is None or asked <= longest:
        return ""
    return f"context = {asked} is more than {label} can hold: it is run with {longest} tokens, its longest."


def plan(target: Model, draft: Model | None, context: int, processors: int = PROCESSORS) -> Plan:
    """Plan a pair with a context of at most the target's own."""
    return Plan(target, draft, min(context, target.config.longest), processors)


def fits(plan: Plan, available: Mapping[Place, int | None]) -> bool:
    """True if the models fit the free bytes of each device; None is unknown, and counts as enough."""
    return not list(_lacking(plan, available))


def making_room(plan: Plan, available: Mapping[Place, int | None]) -> Plan:
    """`plan` with the target's experts in main memory, of as few layers as the GPU needs; without, if that is in vain.

    The cache stays on the GPU: every token reads all of it, and but some experts. A target on two GPUs is cut anew.
    """
    target, free = plan.target, available.get("cuda")
    if target.place == "cpu" or free is None:
        return plan
    plan = _with_tables(plan, available)
    if target.first:
        return cut_in_two(plan, available)
    room = inf if plan.lockable is None else plan.lockable - plan.locked
    lacking = plan.need("cuda").total - (1 - SPARE) * free
    for layers, one in enumerate([None, *target.config.recipe.mixtures]):
        moved = one.count * expert_bytes(target, one) if one else 0
        lacking, room = lacking - moved, room - moved
        if lacking <= 0 <= room:
            return replace(plan, target=replace(plan.target, experts_in_main=layers))
    return plan


def cut_in_two(plan: Plan, available: Mapping[Place, int | None]) -> Plan:
    """`plan` with as few first layers of the target on the second GPU as the GPU needs; all experts are on GPUs.

    A hidden state takes the bus less than the experts of a token do.
    """

    def made(first: int) -> Plan:
        return _with_tables(replace(plan, target=replace(plan.target, experts_in_main=0, first=first)), available)

    found = cuts(plan.target.config.recipe)
    at = bisect_left(found, True, key=lambda first: fits(made(first), {"cuda": available.get("cuda")}))
    return made(found[min(at, len(found) - 1)])


def for_both(plan: Plan, available: Mapping[Place, int | None]) -> bool:
    """True for a target that does not fit one GPU with all its experts, and can be cut in two."""
    alone = replace(plan, draft=None, target=replace(plan.target, experts_in_main=0))
    fits_one = fits(alone, {"cuda": available.get("cuda")})
    return not fits_one and bool(available.get("second-gpu")) and not cannot_cut(plan.target.config.recipe)


def _with_tables(plan: Plan, available: Mapping[Place, int | None]) -> Plan:
    """`plan` with tables on the GPU where the system does not lock them, or main memory has no room."""
    if (plan.lockable is not None and plan.locked > plan.lockable) or "cpu" in _lacking(plan, available):
        return plan.changed(lambda model: replace(model, tables_on_gpu=True))
    return plan


def check_fits(plan: Plan, available: Mapping[Place, int | None], name: str) -> None:
    """Check that the pair `name` fits the free bytes of each device.

    Raises:
        EngineError: "memory": it does not; with the numbers and the nearest setting that fits.
    """
    for place in _lacking(plan, available):
        needed, free = plan.need(place), available[place] or 0
        parts = f"weights {_gib(needed.weights)}, cache {_gib(needed.cache)}, workspace {_gib(needed.workspace)}"
        kind = {"cpu": "memory", "cuda": "GPU memory", "second-gpu": "the second GPU's memory"}[place]
        kind += " for experts that the GPU has no room for" * (place == "cpu" and plan.target.experts_in_main > 0)
        raise EngineError(
            "memory",
            f"{name} needs {_gib(needed.total)} GiB of {kind} with context {plan.context} ({parts}); "
            f"{_gib(int((1 - SPARE) * free))} of the {_gib(free)} GiB that are free can be used. "
            f"{'' if plan.lockable is None else f'The system locks {_gib(plan.lockable)} GiB for the GPU. '}"
            f"{nearest(plan, available)}",
        )


def nearest(plan: Plan, available: Mapping[Place, int | None]) -> str:
    """Advice in a sentence: the nearest setting to `plan` that fits."""

    def fitting(changed: Plan) -> bool:
        return fits(making_room(changed, available), available)

    contexts = range(_rounded(plan.context, CONTEXT_STEP) - CONTEXT_STEP, LEAST_CONTEXT - 1, -CONTEXT_STEP)

    def longest(changed: Plan) -> int:
        """The longest context with which `changed` fits; 0: none."""
        if fitting(changed):
            return changed.context
        found = bisect_left(contexts, True, key=lambda context: fitting(replace(changed, context=context)))
        return contexts[found] if found < len(contexts) else 0

    full, int8 = longest(plan), longest(plan.with_int8_cache())
    of_int8 = 'cache = "int8"' + f" and context = {int8}" * (int8 < plan.context)
    if full:
        return f"It fits with context = {full}{f', or with {of_int8}' if int8 > full else ''}."
    if int8:
        return f"It fits with {of_int8}."
    for changed, words in _alternatives(plan):
        if fitting(changed):
            return f"It fits with {words}."
    return "No setting makes it fit: choose a smaller pair, or free memory by closing other programs."


def _alternatives(plan: Plan) -> Iterator[tuple[Plan, str]]:
    """Yield settings other than the context, nearest first: fewer bits, the CPU."""
    context = min(plan.context, LEAST_CONTEXT)
    for smaller, words in _fewer_bits(plan):
        yield smaller, words
        yield replace(smaller, context=context), f"{words} and context = {context}"
    if any(place != "cpu" for place in plan.places):
        there = plan.on("cpu")
        yield there, 'device = "cpu"'
        for smaller, words in _fewer_bits(there):
            yield smaller, f'device = "cpu" and {words}'


def _fewer_bits(plan: Plan) -> Iterator[tuple[Plan, str]]:
    for quant in ("int8", "nf4"):
        target = _quantised(plan.target, quant)
        draft = quantised(plan.draft, quant) if plan.draft and _quantised(plan.draft, quant) else None
        if target:
            yield replace(plan, target=target), f'quant = "{quant}" for the target'
        if draft:
            whose = "both models" if target else "the draft"
            yield replace(plan, target=target or plan.target, draft=draft), f'quant = "{quant}" for {whose}'


def _quantised(model: Model, quant: Quant) -> Model | None:
    wider = model.quant is None or (model.quant == "int8" and quant == "nf4")
    if model.fixed or not wider:
        return None
    return replace(model, quant=quant)


def _lacking(plan: Plan, available: Mapping[Place, int | None]) -> Iterator[Place]:
    for place in ("cuda", "second-gpu", "cpu"):
        free = available.get(place)
        if free is not None and plan.need(place).total > (1 - SPARE) * free:
            yield place


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"


MIN_PARAMETERS = 100_000_000
"""Smallest draft worth quantising; below, launches take most of a pass. Estimated: on an RTX 4090 285 launches take
0.8 ms, and reading 200 MB takes 0.2 ms."""


def drafting(plan: Plan, available: Mapping[Place, int | None], cut: bool = False, free: bool = True) -> Plan:
    """`plan` with its draft's quantisation for the `available` bytes: none for a small draft, else int8, and nf4 where
    the pair fits no other way. A draft that is not `free` has the bits of its pair or checkpoint. If the plan is to be
    `cut`, that is done for each."""
    first: Plan | None = None
    for draft in _kept(plan.draft, free) if plan.draft else ():
        chosen = replace(plan, draft=draft)
        chosen = cut_in_two(chosen, available) if cut else chosen
        if fits(chosen, available):
            return chosen
        first = first or chosen
    return first or plan


def _kept(draft: Model, free: bool) -> Iterator[Model]:
    if not free:
        yield draft if draft.fixed or draft.quant is None else quantised(draft, draft.quant)
        return
    if draft.place == "cpu" or draft.config.parameters() < MIN_PARAMETERS:
        yield draft
    if draft.place != "cpu":
        yield replace(quantised(draft, "int8"), chosen=True)
        yield replace(quantised(draft, "nf4"), chosen=True)
