"""Memory estimate of one model from its shapes and formats, before anything is loaded."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

from specchat.engine.formats import by_quant
from specchat.engine.formats.activations import HeldFormats
from specchat.engine.formats.format import NESTED_BLOCK, Format, StorageLayout
from specchat.engine.kernels.gpu_shapes import PASS_ROWS, PROCESSORS, joined_scores
from specchat.engine.memory import gpu_need
from specchat.engine.memory.gpu_buffers import Cuts, prompt_rows
from specchat.engine.memory.host_need import CACHE_BLOCK, buffers, cache_bytes, packing_workspace, reference_workspace
from specchat.engine.memory.vectors import LANES, filled, panels_for, unsupported
from specchat.engine.program.lower import lower
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Experts, Matrix
from specchat.engine.weights.config import ModelConfig

Place = Literal["cpu", "cuda", "second-gpu"]
"""A model's memory; "second-gpu" is that of another GPU, of a draft or of a target's first layers."""
UNREAD_ROWS = 16
"""Rows of the head of first layers, which nothing reads."""
HEAD: Quant = "int8"
"""Format of a quantised draft's head: 4 bits would blur its choice."""


@dataclass(frozen=True)
class Model:
    """A model and the formats to load it in.

    `stored` is the checkpoint's own format, whose `quant` is that of the layers; None: dense. `left` are the names of
    matrices that are dense there all the same. `half` means that the CPU holds dense weights in 16 bits, as in the
    checkpoint. `head` is the format of the head on a GPU, beside a dense embedding; None is dense, as for every target.
    `narrowed` means that the compiled pass holds the dense matrices of products in bfloat16.
    `int8_head` means that a CPU holds a dense head as `HEAD`, beside the embedding where these are tied.
    `chosen` marks a default `quant`, for a GPU alone. `head_rows` are the rows of a head with a draft vocabulary.
    `threads` are those of a compiled pass on the CPU; 0 without one. `experts_in_main` are the layers, from the first
    that has experts, whose experts a GPU reads in main memory; `tables_on_gpu` means that it has the tables of
    `table_bytes` itself, of which it reads rows in main memory by default. `first` is the number of first layers that
    lie on the second GPU.
    """

    config: ModelConfig
    place: Place
    quant: Quant | None = None
    stored: Format | None = None
    half: bool = False
    head: Quant | None = None
    chosen: bool = False
    head_rows: int | None = None
    threads: int = 0
    experts_in_main: int = 0
    left: frozenset[tuple[str, ...]] = frozenset()
    int8_head: bool = False
    narrowed: bool = False
    tables_on_gpu: bool = False
    first: int = 0

    @property
    def parts(self) -> tuple["Model", ...]:
        """The model as it is loaded: its first layers by themselves, if they lie on a second GPU, then the rest."""
        if not self.first:
            return (self,)
        front, rest = self.config.halves(self.first)
        own = replace(self, config=front, place="second-gpu", head=None, head_rows=UNREAD_ROWS, first=0)
        return own, replace(self, config=rest, first=0)

    @property
    def held(self) -> HeldFormats:
        """The formats of its matrices in memory, but for what `rounding_of` adds."""
        head = self.config.recipe.head
        return HeldFormats(self.stored, self.quant, (head.names[0], head.inputs), self.place == "cpu")

    @property
    def fixed(self) -> bool:
        """True where the checkpoint itself is quantised to `quant`."""
        return self.stored is not None and self.stored.quant is not None

    @cached_property
    def compiled(self) -> bool:
        """True if a compiled pass runs the model; otherwise the reference does on the CPU."""
        return self.place == "cpu" and self.threads > 0 and not unsupported(self.config.recipe)

    @property
    def joined(self) -> dict[Matrix, Matrix]:
        """Matrices on a GPU by those that they follow, as rows of one (`recipe.Experts.joined`).

        Experts that a GPU reads in main memory have none after them: those are read at every step. Nor have those of a
        quantised checkpoint, which may store them in another format.
        """
        apart = self.place == "cpu" or (self.stored is not None and self.stored.stays)
        return {} if apart else self.config.recipe.joined(self.experts_in_main)

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


def need(model: Model, context: int, processors: int = PROCESSORS) -> Need:
    """Memory of `model` with a cache of `context` tokens, on a GPU of `processors` multiprocessors."""
    c, on_cpu = model.config, model.place == "cpu"
    context = min(context, c.longest)
    capacity = -(-(context if on_cpu else context + PASS_ROWS) // CACHE_BLOCK) * CACHE_BLOCK
    if not on_cpu:
        return Need(
            _weights(model), gpu_need.cache(c, context, capacity), _gpu_workspace(model, context, capacity, processors)
        )
    if not model.compiled:
        passing = reference_workspace(c, capacity)
        return Need(_weights(model), cache_bytes(c.recipe, capacity), passing, passing)
    c = replace(c, recipe=filled(c.recipe))
    model = replace(model, config=c)
    passing = packing_workspace(c, "quantised" if model.quant else "half" if model.half else "whole")
    ordered = model.stored is not None and model.stored.ordered
    kept = buffers(c, sum(model.head_matrix.outputs), model.threads, capacity, ordered)
    return Need(_weights(model), cache_bytes(c.recipe, capacity), kept + passing, passing)


def quantised(draft: Model, quant: Quant) -> Model:
    """Return `draft` quantised at load; on a GPU with its head, which a pass reads as it reads the layers."""
    return replace(draft, quant=quant, head=None if draft.place == "cpu" else HEAD)


class Storage(NamedTuple):
    """Outputs of a matrix that are stored alike, one after another, and their layout in memory."""

    outputs: int
    layout: StorageLayout


def _storage(model: Model, matrix: Matrix) -> list[Storage]:
    """The storage of a matrix, whose parts may be unlike where their names tell it."""
    form = _format(model, matrix)
    whole = model.place == "cpu" and not model.half and not (model.narrowed and model.compiled)
    dense = StorageLayout(32 if whole else 16)
    found = list[Storage]()
    for name, outputs in (matrix.of(0) if _of_expert(matrix) else matrix).parts:
        layout = (form.layout(matrix.inputs, name) if form else None) or dense
        before = found.pop().outputs if found and found[-1].layout == layout else 0
        found.append(Storage(before + outputs, layout))
    if {layout.scales for _, layout in found} == {"exponents", "none"}:
        # `quantise.fused` leaves MXFP4 in 4 bits beside blocks alone.
        return [Storage(sum(matrix.outputs), dense)]
    return found


def _format(model: Model, matrix: Matrix) -> Format | None:
    stored, quant = model.stored, None if matrix.dense or matrix.names in model.left else model.quant
    if stored and (stored.by_name or (stored.of_experts and _of_expert(matrix)) or (quant and stored.quant == quant)):
        return stored
    return by_quant(quant) if quant else None


def _weights(model: Model) -> int:
    c = model.config
    # A shared MLP that is one more expert is stored as the others.
    more = {one: also for one, also in model.joined.items() if _of_expert(one)}
    moved = frozenset(more.values())
    gates = {
        one.shared_gate: joined_scores(one.count) - one.count for one in c.recipe.mixtures if one.each.down in more
    }
    forms = [(m, gates.get(m, n + (m in more))) for m, n in c.recipe.forms if m not in moved]
    layers = sum(n * (_matrix(model, m) + (4 * _outputs(model, m) if m.bias else 0)) for m, n in forms)
    vectors = sum(prod(shape) for layer in c.recipe.layers for shape in layer.vectors.values())
    norms = 4 * (c.recipe.norm.values + sum(norm.values for layer in c.recipe.layers for norm in layer.norms) + vectors)
    of_head = _of_head(model)
    head = _matrix(replace(model, quant=of_head, stored=None if of_head else model.stored), model.head_matrix)
    of_inputs = c.recipe.per_layer
    inputs = _matrix(model, of_inputs.project) + 4 * of_inputs.norm.size if of_inputs else 0
    return layers + norms + head + inputs + table_bytes(model) - locked_bytes(model)


def _of_head(model: Model) -> Quant | None:
    return (HEAD if model.int8_head else None) if model.place == "cpu" else model.head


def table_bytes(model: Model) -> int:
    """Bytes of the tables that passes read by rows: embeddings that are not the head too, and inputs of layers."""
    c, of = model.config, model.config.recipe.per_layer
    shared = c.tied and model.head_rows is None and _of_head(model) is None
    embed = 0 if shared else _bytes_of(replace(model, quant=None, narrowed=False), c.recipe.embed)
    return embed + ((2 if model.half or model.place != "cpu" else 4) * of.table.parameters if of else 0)


def locked_bytes(model: Model) -> int:
    """Bytes of main memory that a GPU reads."""
    tables = 0 if model.place == "cpu" or model.tables_on_gpu else table_bytes(model)
    return tables + main_expert_bytes(model)


def main_expert_bytes(model: Model) -> int:
    """Bytes of experts that a GPU reads in main memory."""
    mixtures = [] if model.place == "cpu" else model.config.recipe.mixtures
    return sum(expert_bytes(model, one) * one.count for one in mixtures[: model.experts_in_main])


def expert_bytes(model: Model, of: Experts) -> int:
    """Bytes on a GPU of one expert's values, without scales and biases."""
    each = of.each.gate_up, of.each.down
    return sum(layout.value_bytes(outputs, one.inputs) for one in each for outputs, layout in _storage(model, one))


def _outputs(model: Model, matrix: Matrix) -> int:
    """Rows of weights: the compiled pass pads them to whole vectors, each of two parts for itself."""
    apart = matrix.outputs if len(matrix.outputs) == 2 else (sum(matrix.outputs),)
    return LANES * sum(map(panels_for, apart)) if model.compiled else sum(matrix.outputs)


def _matrix(model: Model, matrix: Matrix) -> int:
    return _bytes_of(model, matrix, _outputs(model, matrix))


def _bytes_of(model: Model, matrix: Matrix, rows: int = 0) -> int:
    """Bytes of a matrix, of so many rows if it is stored alike."""
    on_gpu, storage = model.place != "cpu", _storage(model, matrix)
    return sum(
        layout.bytes(
            rows if rows and len(storage) == 1 else outputs,
            matrix.inputs,
            _in_bytes(model, matrix, layout) if on_gpu else model.compiled and layout.scales in ("exponents", "table"),
            on_gpu,
        )
        for outputs, layout in storage
    )


def _in_bytes(model: Model, matrix: Matrix, layout: StorageLayout) -> bool:
    """True where the scales of a matrix take a byte each on a GPU."""
    if layout.scales == "table":
        # Experts have a table each, and one matrix of all of them has scales in float32.
        return not _of_expert(matrix)
    if layout.scales != "nested":
        return layout.scales == "exponents"
    # `quantise.fused` drops the nesting if a part with another after it does not fill its last block of scales.
    blocks = matrix.inputs // layout.block
    parts = matrix.parts[: None if _of_expert(matrix) else -1]
    # Rows that are put in another order are so, too (`matrices.reordered`).
    moved = matrix.alternating or (model.fixed and matrix.paired[1])
    return not moved and all(part * blocks % NESTED_BLOCK == 0 for _, part in parts)


def _of_expert(matrix: Matrix) -> bool:
    """True for a matrix of one expert that stands for those of all."""
    return "{}" in matrix.names[0]


def gpu_bits(model: Model, matrix: Matrix) -> tuple[int, ...]:
    """Bits of a matrix's values on a GPU, in each part of it that is stored unlike the others."""
    return tuple(layout.bits for _, layout in _storage(model, matrix))


def _gpu_workspace(model: Model, context: int, capacity: int, processors: int) -> int:
    recipe = model.config.recipe
    forms = *(form for form, _ in recipe.forms), *([recipe.per_layer.project] if recipe.per_layer else [])
    bits = {matrix: gpu_bits(model, matrix) for matrix in forms}
    head, cuts = model.head_matrix, Cuts(bits, model.joined, processors, prompt_rows(recipe))
    of_head = max(gpu_bits(replace(model, quant=model.head), head))
    sees, widest = model.config.sees, max((one.mutual for one in recipe.attentions), default=0)
    # Pictures of more rows than a pass are held before and after a layer, and as a part of it leaves them.
    rows = sees and sees * cuts.width + 3 * widest * (widest > cuts.width)
    return 4 * rows * recipe.hidden + gpu_need.workspace(lower(recipe), head, of_head, cuts, recipe, context, capacity)
