"""The tensors of a recipe: one walk to all of them, and how each is read from a checkpoint."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Generic, NamedTuple, Protocol, TypeVar, overload

import torch
from torch import Tensor

from specchat.engine.formats.layout import Blocks, EightBit, FileRows, FourBit, Joined, Table, Weight
from specchat.engine.formats.quantise import by_rows, dequantised, fused, fused_experts, quantise
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Layer, Matrix, Norm, Recipe
from specchat.engine.weights.weights import Files, Weights

Product = TypeVar("Product")
Vector = TypeVar("Vector")
SLAB = 1 << 22
"""Values of a head that are quantised at a time."""
Pack = Callable[[Matrix, Weight], Weight]
"""Returns the form in which an executor holds a stored part of a matrix."""


class TensorSource(Protocol):
    """TensorSource by name: those of a checkpoint (`Weights`), or others of the same shapes."""

    device: torch.device

    def linear(self, name: str, outputs: int, inputs: int) -> Weight:
        """Matrix `name`, without ".weight"."""
        ...

    def get(self, name: str, *shape: int) -> Tensor:
        """Tensor `name` as float32 of exactly `shape`."""
        ...


class Walked(NamedTuple, Generic[Product, Vector]):
    """The tensors of a recipe but for its tables; matrices of experts are those of their form."""

    products: dict[Matrix, Product]
    norms: dict[Norm, Vector]
    vectors: dict[str, Vector]


def walk(
    recipe: Recipe,
    source: TensorSource,
    product: Callable[[Matrix, int, Matrix | None, Layer | None], Product],
    vector: Callable[[Tensor], Vector],
    joined: Mapping[Matrix, Matrix] = {},
) -> Walked[Product, Vector]:
    """Pack all tensors but the tables of embeddings, logits and inputs of layers, in the order of a pass.

    Args:
        product: packs a form, the number of its matrices, and the one after them; inputs of layers have no layer.
        vector: packs float32 tensors that are no matrices.
        joined: matrices by those that they follow, as rows of one (`recipe.Experts.joined`).
    """
    own, moved = recipe.per_layer, frozenset(joined.values())
    forms = [(*form, layer) for layer in recipe.layers for form in layer.forms if form[0] not in moved]
    products = {form: product(form, count, joined.get(form), layer) for form, count, layer in forms}
    norms = [*(norm for layer in recipe.layers for norm in layer.norms), recipe.norm]
    if own is not None:
        products[own.project] = product(own.project, 1, None, None)
        norms.append(own.norm)
    shapes = {name: shape for layer in recipe.layers for name, shape in layer.vectors.items()}
    return Walked(
        products,
        {norm: vector(read_norm(source, norm)) for norm in norms},
        {name: vector(source.get(name, *shape)) for name, shape in shapes.items()},
    )


def read_named(checkpoint: Files, *parts: Matrix | Norm | Layer) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of parts of a recipe, float32, as they are stored: matrices, then norms, then others.

    Raises:
        ModelError: one is missing, damaged or of another shape.
    """
    layers = [part for part in parts if isinstance(part, Layer)]
    matrices = [part for part in parts if isinstance(part, Matrix)] + [form for one in layers for form, _ in one.forms]
    norms = [part for part in parts if isinstance(part, Norm)] + [norm for one in layers for norm in one.norms]
    shapes: dict[str, tuple[int, ...]] = {}
    for matrix in matrices:
        for name, outputs in matrix.parts:
            shapes |= {f"{name}.weight": (outputs, matrix.inputs)} | (
                {f"{name}.bias": (outputs,)} if matrix.bias else {}
            )
    for one in (*(norm.shapes for norm in norms), *(layer.vectors for layer in layers)):
        shapes |= one
    with Weights(checkpoint) as weights:
        for name, shape in shapes.items():
            yield name, weights.get(name, *shape).clone()


def packing(quant: Quant | None) -> Pack:
    """Quantise as `quant` where a matrix and its storage allow it."""

    def pack(matrix: Matrix, weight: Weight) -> Weight:
        wanted = None if matrix.dense else quant
        return quantise(weight, wanted) if wanted is not None and isinstance(weight, Tensor) else weight

    return pack


def read_matrix(
    source: TensorSource, form: Matrix, pack: Pack, count: int = 1, after: Matrix | None = None, zeros: int = 0
) -> tuple[Weight, Tensor | None]:
    """Read `count` matrices of a form and the one after them as one, with `zeros` more rows, and its bias, if any.

    The bias is float32 [outputs].

    Raises:
        ModelError: tensors missing, damaged or of other shapes.
    """
    matrices = [*(form.of(number) for number in range(count)), *([after] if after else [])]
    parts = [(matrix, place, *part) for matrix in matrices for place, part in enumerate(matrix.parts)]
    biases = [
        reordered(source.get(f"{name}.bias", outputs), matrix.order(place))
        for matrix, place, name, outputs in (parts if form.bias else [])
    ]
    pieces = [
        pack(form, reordered(_in_place(form, source.linear(name, outputs, matrix.inputs)), matrix.order(place)))
        for matrix, place, name, outputs in parts
    ]
    if zeros:
        pieces.append(pack(form, torch.zeros(zeros, form.inputs)))
    whole = fused(pieces) if count == 1 else fused_experts(pieces, len(form.parts))
    return reordered(whole, form.turns), reordered(torch.cat(biases), form.turns) if biases else None


def _in_place(form: Matrix, weight: Weight) -> Weight:
    """A weight whose inputs are in their order if its form is dense: executors multiply that without another order."""
    moved = form.dense and isinstance(weight, FourBit) and weight.order is not None
    return dequantised(weight, torch.float32) if moved else weight


@overload
def reordered(weight: Tensor, order: list[int]) -> Tensor: ...


@overload
def reordered(weight: Weight, order: list[int]) -> Weight: ...


def reordered(weight: Weight, order: list[int]) -> Weight:
    """The rows of a matrix in an order, for which nested scales are dequantised; an empty one leaves them.

    -1 stands for a row of zeros.
    """
    if not order:
        return weight

    if isinstance(weight, Joined):
        return fused(_runs(weight, order))

    def chosen(rows: Tensor) -> Tensor:
        return torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])[order] if -1 in order else rows[order]

    found: Weight = by_rows(weight, chosen)
    return found


def _runs(weight: Joined, order: list[int]) -> list[Weight]:
    """The rows in an order, in runs of one part each; a row of zeros is of the part before it."""
    begins = list(accumulate((part.shape[0] for part in weight.parts), initial=0))
    runs: list[tuple[int, list[int]]] = []
    for row in order:
        part = (runs[-1][0] if runs else 0) if row < 0 else bisect_right(begins, row) - 1
        if not runs or runs[-1][0] != part:
            runs.append((part, []))
        runs[-1][1].append(row if row < 0 else row - begins[part])
    return [reordered(weight.parts[part], rows) for part, rows in runs]


def read_table(source: TensorSource, matrix: Matrix) -> Table:
    """Read a table of embeddings as stored; float32 in other formats, which no known checkpoint has for it.

    Raises:
        ModelError: it is missing, damaged or of another shape.
    """
    weight, _ = read_matrix(source, matrix, packing(None))
    return as_table(weight)


def as_table(weight: Weight) -> Table:
    """A matrix as a table; float32 of formats that no known checkpoint has for one."""
    return weight if isinstance(weight, Tensor | Blocks) else dequantised(weight, torch.float32)


def read_dense_table(source: TensorSource, matrix: Matrix) -> Tensor:
    """Read a table of embeddings; float32 where it is quantised.

    Raises:
        ModelError: as `read_table`.
    """
    table = read_table(source, matrix)
    return table if isinstance(table, Tensor) else dequantised(table, torch.float32)


def int8_head(table: Table | FileRows) -> Table | FileRows | EightBit:
    """The rows of a head in 8 bits, with a scale each; as they are where the checkpoint has quantised them.

    Raises:
        ModelError: bitsandbytes is not installed.
    """
    if not isinstance(table, Tensor):
        return table
    rows = [quantise(some, "int8") for some in table.split(max(1, SLAB // table.shape[1]))]
    head = fused(rows)
    assert isinstance(head, EightBit)
    return head


def read_norm(source: TensorSource, norm: Norm) -> Tensor:
    """Read the weight of a norm and its bias, if any, float32 [values]; ones where it has no weight.

    Raises:
        ModelError: it is missing, damaged or of another shape.
    """
    if not norm.name:
        return torch.ones(norm.size, device=source.device)
    weight = source.get(f"{norm.name}.weight", norm.size)
    weight = weight + 1 if norm.plus_one else weight
    weight = weight if norm.factor == 1 else weight * norm.factor
    return torch.cat([weight, source.get(f"{norm.name}.bias", norm.size)]) if norm.bias else weight
