"""Memory estimate of a pair from its shapes, before anything is loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from specchat.engine.errors import EngineError
from specchat.engine.gpu_shapes import PASS_ROWS, PROCESSORS
from specchat.engine.model import gpu_need
from specchat.engine.model.blocks import BLOCK, MXFP4_BLOCK, NESTED_BLOCK
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.gpu_states import checkpoints
from specchat.engine.model.host_need import CACHE_BLOCK, buffers, entries, packing_workspace, reference_workspace
from specchat.engine.model.vectors import LANES, panels_for
from specchat.engine.model.vectors import fits as fills_vectors
from specchat.engine.pair import Quant
from specchat.engine.recipe import Matrix, PerLayer

Place = Literal["cpu", "cuda"]
GIB = 1 << 30
SPARE = 0.05
"""Fraction of memory left free: allocators round up, and the estimate is good to 5 %."""
DEFAULT_CONTEXT = 8192
"""Default tokens of cache: published contexts of 128 k would take all memory."""
LEAST_CONTEXT = 1024
"""Least context to propose: too little of a chat would fit into a smaller one."""
CONTEXT_STEP = 256

HEAD: Quant = "int8"
"""Format of a quantised draft's head: 4 bits would blur its choice."""
GPU_RUNTIME = 256 << 20
"""Bytes of CUDA beside tensors for a running pair: modules, loaded at their first launch, and captured graphs, in which
each node holds a kernel's arguments. Estimated, not measured; 5 % of a GPU of 8 GB would be less."""


@dataclass(frozen=True)
class Model:
    """A model and the formats to load it in; with `fixed` the checkpoint itself is quantised to `quant`.

    `nested` means that the scales of 4-bit weights are quantised too, never on the CPU. `half` means that the CPU holds
    dense weights in 16 bits, as in the checkpoint. `head` is the format of the head on a GPU, beside a dense embedding;
    None is dense, as for every target. `chosen` marks a default `quant`, for a GPU alone. `head_rows` are the rows of a
    head with a draft vocabulary. `threads` are those of a compiled pass on the CPU; 0 without one. `packed_experts`
    are stored in MXFP4 and stay so.
    """

    config: ModelConfig
    place: Place
    quant: Quant | None = None
    fixed: bool = False
    nested: bool = True
    half: bool = False
    head: Quant | None = None
    chosen: bool = False
    head_rows: int | None = None
    threads: int = 0
    packed_experts: bool = False

    @property
    def compiled(self) -> bool:
        """True if a compiled pass runs the model; otherwise the reference does on the CPU."""
        return self.place == "cpu" and self.threads > 0 and fills_vectors(self.config)

    @property
    def head_matrix(self) -> Matrix:
        """Output matrix, with the rows of the draft vocabulary if there is one."""
        head = self.config.recipe.head
        return replace(head, outputs=(self.head_rows,)) if self.head_rows else head


@dataclass(frozen=True)
class Need:
    """Bytes of one model. `workspace` is for a step, or for loading the largest matrix if that is more.

    `shared` is its part that models on one device use in turn.
    """

    weights: int
    cache: int
    workspace: int
    shared: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.workspace


@dataclass(frozen=True)
class Plan:
    """A pair with `context` tokens of cache in each model, and its memory.

    `processors` are the GPU's multiprocessors, which determine the tiling of products; `besides` are the bytes of
    trained heads on the target's device.
    """

    target: Model
    draft: Model | None
    context: int
    processors: int = PROCESSORS
    besides: int = 0

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.target, self.draft) if self.draft else (self.target,)

    def need(self, place: Place) -> Need:
        """Memory of all models on `place`."""
        needs = [need(model, self.context, self.processors) for model in self.models if model.place == place]
        weights, cache = sum(n.weights for n in needs), sum(n.cache for n in needs)
        own, shared = sum(n.workspace - n.shared for n in needs), max([0, *(n.shared for n in needs)])
        weights += self.besides if self.target.place == place else 0
        if place == "cpu":
            # A GPU reads tables of inputs where they are; checkpoints of its recurrent states are held here.
            on_gpu = [model for model in self.models if model.place == "cuda"]
            weights += sum(map(_table, on_gpu))
            cache += sum(checkpoints(model.config.recipe) for model in on_gpu)
            return Need(weights, cache, own + shared, shared)
        verifying = gpu_need.verifying(self.target.config) if self.target.place == "cuda" else 0
        return Need(weights, cache, (GPU_RUNTIME if needs else 0) + verifying + own)

    def on(self, place: Place) -> "Plan":
        """Return the plan with both models on `place`."""
        moved = replace(self.draft, place=place) if self.draft else None
        if moved and moved.chosen and place == "cpu":
            moved = replace(moved, quant=None, head=None, chosen=False)
        return replace(self, target=replace(self.target, place=place), draft=moved)


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


def need(model: Model, context: int, processors: int = PROCESSORS) -> Need:
    """Memory of `model` with a cache of `context` tokens, on a GPU of `processors` multiprocessors."""
    c, on_cpu = model.config, model.place == "cpu"
    context = min(context, c.longest)
    capacity = _rounded(context if on_cpu else context + PASS_ROWS, CACHE_BLOCK)
    if not on_cpu:
        return Need(_weights(model), gpu_need.cache(c, context, capacity), _gpu_workspace(model, capacity, processors))
    if not model.compiled:
        passing = reference_workspace(c, capacity)
        return Need(_weights(model), 4 * entries(c.recipe, capacity), passing, passing)
    passing = packing_workspace(c, "quantised" if model.quant else "half" if model.half else "whole")
    kept = buffers(c, sum(model.head_matrix.outputs), model.threads, capacity)
    return Need(_weights(model), 4 * entries(c.recipe, capacity), kept + passing, passing)


def fits(plan: Plan, available: Mapping[Place, int | None]) -> bool:
    """True if the models fit the free bytes of each device; None is unknown, and counts as enough."""
    return not list(_lacking(plan, available))


def check_fits(plan: Plan, available: Mapping[Place, int | None], name: str) -> None:
    """Check that the pair `name` fits the free bytes of each device.

    Raises:
        EngineError: "memory": it does not; with the numbers and the nearest setting that fits.
    """
    for place in _lacking(plan, available):
        needed, free = plan.need(place), available[place] or 0
        parts = f"weights {_gib(needed.weights)}, cache {_gib(needed.cache)}, workspace {_gib(needed.workspace)}"
        kind = "memory" if place == "cpu" else "GPU memory"
        raise EngineError(
            "memory",
            f"{name} needs {_gib(needed.total)} GiB of {kind} with context {plan.context} ({parts}); "
            f"{_gib(int((1 - SPARE) * free))} of the {_gib(free)} GiB that are free can be used. "
            f"{nearest(plan, available)}",
        )


def nearest(plan: Plan, available: Mapping[Place, int | None]) -> str:
    """Advice in a sentence: the nearest setting to `plan` that fits."""
    for changed, words in _alternatives(plan):
        if fits(changed, available):
            return f"It fits with {words}."
    return "No setting makes it fit: choose a smaller pair, or free memory by closing other programs."


def _alternatives(plan: Plan) -> Iterator[tuple[Plan, str]]:
    """Yield other settings, nearest first: a smaller context, fewer bits, the CPU."""
    for context in range(_rounded(plan.context, CONTEXT_STEP) - CONTEXT_STEP, LEAST_CONTEXT - 1, -CONTEXT_STEP):
        yield replace(plan, context=context), f"context = {context}"
    context = min(plan.context, LEAST_CONTEXT)
    for smaller, words in _fewer_bits(plan):
        yield smaller, words
        yield replace(smaller, context=context), f"{words} and context = {context}"
    if any(model.place == "cuda" for model in plan.models):
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
            yield replace(plan, target=target or plan.target, draft=draft), f'quant = "{quant}" for both models'


def _quantised(model: Model, quant: Quant) -> Model | None:
    """Return `model` with fewer bits a weight; None if that is impossible."""
    wider = model.quant is None or (model.quant == "int8" and quant == "nf4")
    if model.fixed or not wider:
        return None
    return replace(model, quant=quant)


def quantised(draft: Model, quant: Quant) -> Model:
    """Return `draft` quantised at load; on a GPU with its head, which a pass reads as it reads the layers."""
    return replace(draft, quant=quant, head=HEAD if draft.place == "cuda" else None)


def _kept(quant: Quant | None, matrix: Matrix) -> Quant | None:
    """Format of a matrix; None is dense, also for 4 bits in blocks that would cross rows."""
    return None if matrix.dense or (quant in ("nf4", "fp4") and matrix.inputs % BLOCK) else quant


def _weights(model: Model) -> int:
    c, on_cpu = model.config, model.place == "cpu"
    layers = sum(n * (_matrix(model, m) + (4 * _outputs(model, m) if m.bias else 0)) for m, n in c.recipe.forms)
    vectors = sum(prod(shape) for layer in c.recipe.layers for shape in layer.vectors.values())
    norms = 4 * (c.recipe.norm.size + sum(norm.size for layer in c.recipe.layers for norm in layer.norms) + vectors)
    head = _matrix(replace(model, quant=None if on_cpu else model.head), model.head_matrix)
    shared = c.tied and model.head_rows is None and (on_cpu or model.head is None)
    table = 0 if shared else (2 if not on_cpu or model.half else 4) * c.vocab * c.hidden
    return layers + norms + table + head + (_inputs(model, c.recipe.per_layer) if c.recipe.per_layer else 0)


def _inputs(model: Model, of: PerLayer) -> int:
    """Weights that make the inputs of layers, on the model's device."""
    return (_table(model) if model.place == "cpu" else 0) + _matrix(model, of.project) + 4 * of.norm.size


def _table(model: Model) -> int:
    """Rows of tokens, which stay in main memory, as stored there or in 16 bits for a GPU."""
    of = model.config.recipe.per_layer
    return (2 if model.half or model.place == "cuda" else 4) * of.table.parameters if of else 0


def _outputs(model: Model, matrix: Matrix) -> int:
    """Rows of weights: the compiled pass pads them to whole vectors, each of two parts for itself."""
    apart = matrix.outputs if len(matrix.outputs) == 2 else (sum(matrix.outputs),)
    return LANES * sum(map(panels_for, apart)) if model.compiled else sum(matrix.outputs)


def _matrix(model: Model, matrix: Matrix) -> int:
    outputs, inputs, on_cpu = _outputs(model, matrix), matrix.inputs, model.place == "cpu"
    quant = _kept(model.quant, matrix)
    if _packed(model, matrix):
        scales = outputs * inputs // MXFP4_BLOCK
        of_scales = 4 * scales if on_cpu else scales + 4 * -(-scales // NESTED_BLOCK) + 4 * outputs
        return outputs * inputs // 2 + of_scales
    if quant is None:
        return outputs * inputs * (4 if on_cpu and not model.half else 2)
    if quant == "int8":
        return outputs * inputs + 4 * outputs
    blocks = inputs // BLOCK
    packed, scales = outputs * inputs // 2, outputs * blocks
    # `quantise.fused` drops the nesting if a part with another after it does not fill its last block of scales.
    aligned = all(part * blocks % NESTED_BLOCK == 0 for _, part in matrix.parts[: None if _of_expert(matrix) else -1])
    # Stored rows in another order are so, too (`matrices.reordered`).
    if on_cpu or not model.nested or not aligned or (model.fixed and matrix.paired[1]):
        return packed + 4 * scales
    return packed + scales + 4 * -(-scales // NESTED_BLOCK) + 4 * outputs


def _of_expert(matrix: Matrix) -> bool:
    """True for a matrix of one expert that stands for those of all."""
    return "{}" in matrix.names[0]


def _packed(model: Model, matrix: Matrix) -> bool:
    """True for experts that are stored in MXFP4 and stay so."""
    return model.packed_experts and _of_expert(matrix)


def _gpu_workspace(model: Model, capacity: int, processors: int) -> int:
    bits = {None: 16, "int8": 8, "nf4": 4, "fp4": 4}
    recipe = model.config.recipe
    forms = *(form for form, _ in recipe.forms), *([recipe.per_layer.project] if recipe.per_layer else [])
    kept = {matrix: 4 if _packed(model, matrix) else bits[_kept(model.quant, matrix)] for matrix in forms}
    head = model.head_matrix
    return gpu_need.workspace(model.config, head, kept | {head: bits[model.head]}, capacity, processors)


def _lacking(plan: Plan, available: Mapping[Place, int | None]) -> Iterator[Place]:
    for place in ("cuda", "cpu"):
        free = available.get(place)
        if free is not None and plan.need(place).total > (1 - SPARE) * free:
            yield place


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
