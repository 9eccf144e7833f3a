"""Buffers of a pass on a GPU, by operation: plans sum them, and the executor allocates them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from specchat.engine.kernels.gpu_shapes import (
    DENSE_ROWS,
    PROMPT_ROWS,
    VERIFY_ROWS,
    activates,
    attention_splits,
    joined_scores,
    tiling,
)
from specchat.engine.program.ops import Attend, Expand, GatedProduct, GateInput, MakeInputs, Mix, Multiply, Program
from specchat.engine.recipe import Experts, Gated, Latent, Matrix, Recipe


class Shape(NamedTuple):
    """Shape of a buffer. `single` ones are float32, others in the compute dtype."""

    sizes: tuple[int, ...]
    single: bool = True


@dataclass(frozen=True)
class Cuts:
    """Splits of a model's products on a GPU.

    Attributes:
        bits: those of a value in each part of a matrix, of unlike storage.
        joined: matrices by those that they follow, as rows of one (`recipe.Experts.joined`).
        processors: multiprocessors of the GPU.
        width: rows of the widest pass of a prompt.
    """

    bits: Mapping[Matrix, tuple[int, ...]]
    joined: Mapping[Matrix, Matrix]
    processors: int
    width: int

    def sums(self, matrix: Matrix, top: int = 1) -> Shape:
        """Partial sums of a product with `top` matrices for each row: [splits, width * top, outputs]."""
        outputs = self._outputs(matrix)
        splits = tiling(outputs, matrix.inputs, max(self.bits[matrix]), self.processors, top).splits
        return Shape((splits, self.width * top, outputs))

    def gates(self, feed: Gated, top: int = 1) -> Shape:
        """The sums before an activation; none where the product applies it, which products without gates do not."""
        matrix = feed.gate_up
        (bits, *others), outputs = self.bits[matrix], self._outputs(matrix)
        within = activates(outputs, matrix.inputs, bits, self.processors, top)
        return Shape((0,)) if within and not others and not feed.ungated else self.sums(matrix, top)

    def more(self, feed: Experts) -> int:
        """One where the shared MLP is an expert more, of every row."""
        return int(feed.each.down in self.joined)

    def _outputs(self, matrix: Matrix) -> int:
        outputs = sum(matrix.outputs)
        of_router = matrix in self.joined and "{}" not in matrix.names[0]
        return joined_scores(outputs) if of_router else outputs


def prompt_rows(recipe: Recipe) -> int:
    """Rows of the widest pass of a prompt."""
    return PROMPT_ROWS if recipe.mixtures else DENSE_ROWS


def shapes(op: Any, cuts: Cuts) -> Iterator[tuple[str, Shape]]:
    """The buffers that an operation writes, by name: its `out`, and those between its kernels."""
    if isinstance(op, Multiply):
        yield op.out.name, cuts.sums(op.matrix)
    elif isinstance(op, Mix):
        yield from _of_mixture(op, op.of, cuts)
    elif isinstance(op, MakeInputs):
        yield "projected inputs", cuts.sums(op.of.project)
        yield "token inputs", Shape((cuts.width, op.of.width // op.of.norm.size, op.of.norm.size))
    elif isinstance(op, Expand):
        yield from _of_latents(op, op.of, cuts)
    elif hasattr(op, "out"):
        yield op.out.name, Shape((cuts.width, op.out.width), single=False)
    if isinstance(op, GatedProduct):
        yield "gates and values", cuts.gates(op.of)
    elif isinstance(op, GateInput):
        yield "input gates", cuts.sums(op.of.gate)
    elif isinstance(op, Attend):
        yield "queries", Shape((cuts.width, op.of.heads, op.of.head_dim), single=False)


def _of_latents(op: Expand, of: Latent, cuts: Cuts) -> Iterator[tuple[str, Shape]]:
    yield op.out.name, Shape((1, cuts.width, op.out.width))
    yield "latent of keys", Shape((cuts.width, of.key_value.inputs), single=False)
    yield "parts of heads", cuts.sums(of.key_value)
    if of.query:
        yield "latent of queries", Shape((cuts.width, of.query.inputs), single=False)
        yield "queries of latents", cuts.sums(of.query)


def _of_mixture(op: Mix, of: Experts, cuts: Cuts) -> Iterator[tuple[str, Shape]]:
    """A pair is a row with one of its experts."""
    top = of.top + cuts.more(of)
    yield "scores", cuts.sums(of.router)
    yield "gates and values of pairs", cuts.gates(of.each, top)
    yield "gated pairs", Shape((cuts.width * top, of.each.width), single=False)
    yield op.out.name, cuts.sums(of.each.down, top)
    if of.shared and not cuts.more(of):
        yield from _of_shared(of.shared, cuts)
        if of.shared_gate:
            yield "shared gate", cuts.sums(of.shared_gate)


def _of_shared(of: Gated, cuts: Cuts) -> Iterator[tuple[str, Shape]]:
    yield "gates and values", cuts.gates(of)
    yield "gated", Shape((cuts.width, of.width), single=False)
    yield "shared", cuts.sums(of.down)


def attention_sets(recipe: Recipe, context: int, capacity: int) -> tuple[int, int, int, int]:
    """Rows, heads, values of a head and splits of attention's partial sums: wider passes have none in memory."""
    mixers = recipe.attentions
    windows = {mixer.window if mixer.window < context else 0 for mixer in mixers}
    splits = max((attention_splits(capacity, window) for window in windows), default=0)
    return VERIFY_ROWS, max((mixer.heads for mixer in mixers), default=0), recipe.deepest, splits


def size_of(program: Program, cuts: Cuts) -> int:
    """Bytes of the buffers of a pass: operations share those of a name, as large as the largest."""
    largest: dict[str, int] = {}
    for op in program.kinds:
        for name, (sizes, single) in shapes(op, cuts):
            largest[name] = max(largest.get(name, 0), (4 if single else 2) * prod(sizes))
    return sum(largest.values())
