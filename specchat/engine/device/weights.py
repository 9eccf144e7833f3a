"""Weights of a model in the device decoder's formats: from a checkpoint, or random at published shapes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specchat.engine.device.page_locked import page_locked, values_in_main
from specchat.engine.formats.layout import Weight, mapped, tensors_of
from specchat.engine.formats.quantise import by_exponents, dequantised, fused, quantise
from specchat.engine.kernels.gpu_shapes import joined_scores
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Matrix, Norm, Recipe
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import reordered
from specchat.engine.weights.weights import Weights

Read = Callable[[str, int, int], Weight]
"""(name without ".weight", outputs, inputs) -> the matrix in the checkpoint's format."""


class ReadVector(Protocol):
    """Reads a tensor that is no matrix by its whole name and its shape."""

    def __call__(self, name: str, *shape: int) -> Tensor: ...


class Product(NamedTuple):
    """A matrix and its bias, float32 [outputs]; of experts those of all, one after the other."""

    weight: Weight
    bias: Tensor | None


@dataclass(frozen=True)
class ModelWeights:
    """The tensors of a recipe.

    Attributes:
        embed: embeddings, in the compute dtype.
        products: matrices of the layers, those of experts by their form (`recipe.Layer.forms`). The values of experts
            may lie in main memory that the device reads.
        joined: matrices by those that they follow in `products`, as rows of one (`recipe.Experts.joined`).
        norms: all norms including the last one, float32; ones where a norm has no weight.
        vectors: the other tensors of the layers, by name, float32 (`recipe.Layer.vectors`).
        head: in the compute dtype unless quantised; the same as `embed` if the model is tied and its head is dense.
        tokens: int64 [rows of the head], the token of each row; None if row i is token i.
        rows: the table of `PerLayer`, in the compute dtype, in main memory that the device reads; None without one.
    """

    embed: Tensor
    products: dict[Matrix, Product]
    norms: dict[Norm, Tensor]
    vectors: dict[str, Tensor]
    head: Weight
    tokens: Tensor | None = None
    rows: Tensor | None = None
    joined: Mapping[Matrix, Matrix] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        embed: Tensor,
        product: Callable[[Matrix, int, Matrix | None], Product],
        norm: Callable[[Norm], Tensor],
        vector: ReadVector,
        head: Weight,
        tokens: Tensor | None = None,
        rows: Tensor | None = None,
        joined: Mapping[Matrix, Matrix] = {},
    ) -> "ModelWeights":
        """Build weights, whose products, norms and vectors are read one by one, in the order of the layers.

        `product` is given a form, how many matrices it stands for, and the one after them, if any.
        """
        own = recipe.per_layer
        norms = (*(one for layer in recipe.layers for one in layer.norms), recipe.norm, *([own.norm] if own else []))
        forms = (*recipe.forms, *([(own.project, 1)] if own else []))
        moved = frozenset(joined.values())
        apart = (form for form in forms if form[0] not in moved)
        products = {matrix: product(matrix, count, joined.get(matrix)) for matrix, count in apart}
        vectors = {name: vector(name, *shape) for layer in recipe.layers for name, shape in layer.vectors.items()}
        return cls(embed, products, {one: norm(one) for one in norms}, vectors, head, tokens, rows, joined)


def load(
    checkpoint: Checkpoint,
    quant: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    head: Quant | None = None,
    experts_in_main: int = 0,
) -> ModelWeights:
    """Read a checkpoint layer by layer, so that main memory holds at most one unquantised layer.

    `experts_in_main` as in `model.need.Model`.

    Raises:
        ModelError: weights missing, damaged, of other shapes, or quantised in an unknown format.
        PageLockRefused: the system does not lock main memory for experts or a table of inputs.
    """
    with Weights(checkpoint) as weights:
        weights.check(checkpoint.config.recipe)

        def vector(name: str, *shape: int) -> Tensor:
            return weights.get(name, *shape)

        # Matrices that bitsandbytes left dense stay dense.
        fixed, recipe, drafts = checkpoint.quant is not None, checkpoint.config.recipe, checkpoint.drafts
        wanted = None if fixed else quant
        joined = {} if fixed else recipe.joined(experts_in_main)
        return _assemble(recipe, wanted, head, device, dtype, weights.linear, vector, drafts, experts_in_main, joined)


def random(
    config: ModelConfig,
    quant: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    head: Quant | None = None,
) -> ModelWeights:
    """Return random weights of the right shapes, scaled so that activations stay finite."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(_: str, outputs: int, inputs: int) -> Tensor:
        drawn = torch.randn(outputs, inputs, generator=generator, device=device, dtype=torch.float32)
        return drawn.div_(inputs**0.5).to(dtype)

    def vector(name: str, *shape: int) -> Tensor:
        return torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)

    return _assemble(config.recipe, quant, head, device, dtype, matrix, vector, joined=config.recipe.joined())


def _assemble(
    recipe: Recipe,
    quant: Quant | None,
    of_head: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    read: Read,
    vector: ReadVector,
    drafts: Sequence[int] | None = None,
    experts_in_main: int = 0,
    joined: Mapping[Matrix, Matrix] = {},
) -> ModelWeights:
    routers = {one.router for one in recipe.mixtures}
    in_main = {form for one in recipe.mixtures[:experts_in_main] for form in (one.each.gate_up, one.each.down)}
    tokens = None if drafts is None else torch.tensor(drafts)

    def dense(matrix: Matrix, rows: Tensor | None = None) -> Tensor:
        ((name, outputs),) = matrix.parts
        stored = read(name, outputs, matrix.inputs)
        weight = stored if isinstance(stored, Tensor) else dequantised(stored, dtype)
        return (weight if rows is None else weight[rows]).to(device, dtype)

    def placed(name: str, *shape: int) -> Tensor:
        return vector(name, *shape).to(device, torch.float32)

    def norm(one: Norm) -> Tensor:
        if not one.name:
            return torch.ones(one.size, device=device)
        weight = placed(f"{one.name}.weight", one.size)
        weight = weight + 1 if one.plus_one else weight
        return weight if one.factor == 1 else weight * one.factor

    def bias(matrix: Matrix, place: int, name: str, outputs: int) -> Tensor:
        found, order = vector(f"{name}.bias", outputs), matrix.order(place)
        return found[order] if order else found

    def part(matrix: Matrix, place: int, name: str, outputs: int) -> Weight:
        weight = reordered(read(name, outputs, matrix.inputs), matrix.order(place))
        if not isinstance(weight, Tensor):
            return mapped(weight, lambda tensor: tensor.to(device))
        dense = weight.to(device, dtype)
        return dense if quant is None or matrix.dense else quantise(dense, quant)

    def product(form: Matrix, count: int, more: Matrix | None) -> Product:
        matrices = [*(form.of(number) for number in range(count)), *([more] if more else [])]
        parts = [(matrix, place, *each) for matrix in matrices for place, each in enumerate(matrix.parts)]
        biases = [bias(*each) for each in parts] if form.bias else []
        pieces = [part(*each) for each in parts]
        if more and form in routers:
            rest = joined_scores(sum(form.outputs)) - sum(form.outputs) - 1
            pieces.append(torch.zeros(rest, form.inputs, dtype=dtype, device=device))
        weight = by_exponents(reordered(fused(pieces), form.turns))
        weight = values_in_main(weight, device) if form in in_main else weight
        whole = reordered(torch.cat(biases), form.turns).to(device, torch.float32) if biases else None
        return Product(weight, whole)

    def table(matrix: Matrix) -> Tensor:
        ((name, outputs),) = matrix.parts
        stored = read(name, outputs, matrix.inputs)
        if not isinstance(stored, Tensor):
            raise TypeError(f"{name} is quantised; tables of inputs are not")
        return page_locked(stored, dtype, device)

    embed = dense(recipe.embed)
    head = embed if recipe.tied and tokens is None else dense(recipe.head, tokens)
    return ModelWeights.of(
        recipe,
        embed,
        product,
        norm,
        placed,
        head if of_head is None else quantise(head, of_head),
        None if tokens is None else tokens.to(device),
        table(recipe.per_layer.table) if recipe.per_layer else None,
        joined,
    )


def held_bytes(weights: ModelWeights) -> int:
    """Bytes on the device, a tied table counted once, and nothing that lies in main memory."""
    tensors: list[Tensor | None] = [weights.embed, weights.tokens, *weights.norms.values(), *weights.vectors.values()]
    if weights.head is not weights.embed:
        tensors += tensors_of(weights.head)
    for product in weights.products.values():
        tensors += [*tensors_of(product.weight), product.bias]
    return sum(t.numel() * t.element_size() for t in tensors if t is not None and t.device == weights.embed.device)
