"""Weights of a model in the device decoder's formats: from a checkpoint, or random at published shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.formats.gpu_blocks import InWords
from specchat.engine.formats.layout import Blocks, Joined, Plain, Table, Weight, mapped, tensors_of, values_of
from specchat.engine.formats.quantise import by_experts, by_rows, quantise
from specchat.engine.formats.scale_tables import by_exponents
from specchat.engine.formats.words import in_words
from specchat.engine.hardware.page_locked import page_locked, values_in_main
from specchat.engine.kernels.gpu_shapes import joined_scores
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Layer, Matrix, Norm, Recipe
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.config import ModelConfig
from specchat.engine.weights.matrices import TensorSource, packing, read_dense_table, read_matrix, read_table, walk
from specchat.engine.weights.weights import Weights


class Product(NamedTuple):
    """A matrix and its bias, float32 [outputs]; of experts those of all, one after the other."""

    weight: Weight
    bias: Tensor | None


@dataclass(frozen=True)
class ModelWeights:
    """The tensors of a recipe.

    Attributes:
        embed: embeddings, in the compute dtype or in blocks; on the device, or in main memory that it reads.
        products: matrices of the layers, those of experts by their form (`recipe.Layer.forms`). The values of experts
            may lie in main memory that the device reads.
        joined: matrices by those that they follow in `products`, as rows of one (`recipe.Experts.joined`).
        norms: all norms including the last one, float32; ones where a norm has no weight.
        vectors: the other tensors of the layers, by name, float32 (`recipe.Layer.vectors`).
        head: in the compute dtype unless quantised; the same as `embed` if the model is tied and it is not quantised
            at load.
        tokens: int64 [rows of the head], the token of each row; None if row i is token i.
        rows: the table of `PerLayer`, in the compute dtype, on the device or in main memory that it reads; None without
            one.
    """

    embed: Tensor | InWords
    products: dict[Matrix, Product]
    norms: dict[Norm, Tensor]
    vectors: dict[str, Tensor]
    head: Weight
    tokens: Tensor | None = None
    rows: Tensor | None = None
    joined: Mapping[Matrix, Matrix] = field(default_factory=dict)


def load(
    checkpoint: Checkpoint,
    quant: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    head: Quant | None = None,
    experts_in_main: int = 0,
    tables_on_gpu: bool = False,
) -> ModelWeights:
    """Read a checkpoint layer by layer, so that main memory holds at most one unquantised layer.

    `experts_in_main` and `tables_on_gpu` as in `memory.need.Model`.

    Raises:
        ModelError: weights missing, damaged, of other shapes, or quantised in an unknown format.
        PageLockRefused: the system does not lock main memory for experts or tables.
    """
    with Weights(checkpoint) as weights:
        recipe, fixed = checkpoint.config.recipe, checkpoint.quant is not None
        weights.check(recipe)
        # Matrices that bitsandbytes left dense stay dense.
        packer = _DevicePacker(weights, recipe, None if fixed else quant, device, dtype, experts_in_main)
        joined = {} if fixed else recipe.joined(experts_in_main)
        return packer.weights(joined, head, checkpoint.drafts, tables_on_gpu)


def random(
    config: ModelConfig,
    quant: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    head: Quant | None = None,
) -> ModelWeights:
    """Return random weights of the right shapes, scaled so that activations stay finite."""
    packer = _DevicePacker(RandomTensors(device, dtype, seed), config.recipe, quant, device, dtype)
    return packer.weights(config.recipe.joined(), head)


class RandomTensors:
    """Random matrices; vectors are zeros or ones."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int = 0) -> None:
        self.device = device
        self._dtype = dtype
        self._generator = torch.Generator(device).manual_seed(seed)

    def linear(self, name: str, outputs: int, inputs: int) -> Tensor:
        del name
        drawn = torch.randn(outputs, inputs, generator=self._generator, device=self.device, dtype=torch.float32)
        return drawn.div_(inputs**0.5).to(self._dtype)

    def get(self, name: str, *shape: int) -> Tensor:
        return torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)


class _DevicePacker:
    """Packs tensors for `device`; experts of the first `experts_in_main` mixtures stay in main memory."""

    def __init__(
        self,
        source: TensorSource,
        recipe: Recipe,
        quant: Quant | None,
        device: torch.device,
        dtype: torch.dtype,
        experts_in_main: int = 0,
    ) -> None:
        self._source = source
        self._recipe = recipe
        self._quantised = packing(quant)
        self._device = device
        self._dtype = dtype
        first = recipe.mixtures[:experts_in_main]
        self._in_main = {form for one in first for form in (one.each.gate_up, one.each.down)}
        self._routers = {one.router for one in recipe.mixtures}

    def weights(
        self,
        joined: Mapping[Matrix, Matrix],
        of_head: Quant | None,
        drafts: Sequence[int] | None = None,
        tables_on_gpu: bool = False,
    ) -> ModelWeights:
        recipe, tokens = self._recipe, None if drafts is None else torch.tensor(drafts)
        source, in_main = self._source, not tables_on_gpu
        of_rows = read_table(source, recipe.embed)
        of_scores = of_rows if recipe.tied else read_table(source, recipe.head)
        scores = self._table(of_scores if tokens is None else by_rows(of_scores, itemgetter(tokens)))
        head = quantise(scores, of_head) if of_head and isinstance(scores, Tensor) else scores
        embed = scores if recipe.tied and tokens is None and head is scores else self._table(of_rows, in_main)
        products, norms, vectors = walk(recipe, self._source, self._product, self._vector, joined)
        inputs = read_dense_table(source, recipe.per_layer.table) if recipe.per_layer else None
        return ModelWeights(
            embed,
            products,
            norms,
            vectors,
            head,
            None if tokens is None else tokens.to(self._device),
            None if inputs is None else self._dense(inputs, in_main),
            joined,
        )

    def _table(self, table: Table, in_main: bool = False) -> Tensor | InWords:
        """A table on the device, or in main memory that the device reads."""
        if isinstance(table, Tensor):
            return self._dense(table, in_main)
        if in_main:
            return mapped(in_words(table), lambda tensor: page_locked(tensor, tensor.dtype, self._device))
        return in_words(mapped(table, lambda tensor: tensor.to(self._device)))

    def _dense(self, table: Tensor, in_main: bool) -> Tensor:
        return page_locked(table, self._dtype, self._device) if in_main else table.to(self._device, self._dtype)

    def _pack(self, matrix: Matrix, weight: Weight) -> Weight:
        if isinstance(weight, Tensor):
            return self._quantised(matrix, weight.to(self._device, self._dtype))
        return mapped(weight, lambda tensor: tensor.to(self._device))

    def _product(self, form: Matrix, count: int, after: Matrix | None, layer: Layer | None) -> Product:
        del layer
        scores = sum(form.outputs)
        zeros = joined_scores(scores) - scores - 1 if after and form in self._routers else 0
        weight, bias = read_matrix(self._source, form, self._pack, count, after, zeros)
        weight = _for_kernels(by_experts(weight, count) if count > 1 else weight)
        weight = values_in_main(weight, self._device) if form in self._in_main else weight
        return Product(weight, None if bias is None else self._vector(bias))

    def _vector(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, torch.float32)


def _for_kernels(weight: Weight) -> Weight:
    """A weight in the order, and with the scales, that kernels read."""
    match weight:
        case Joined(parts):
            return Joined(tuple(map(_part_for_kernels, parts)))
        case _:
            return _part_for_kernels(weight)


def _part_for_kernels(part: Plain) -> Plain:
    return in_words(part) if isinstance(part, Blocks) else by_exponents(part)


def held_bytes(weights: ModelWeights) -> int:
    """Bytes on the device, a tied table counted once, and nothing that lies in main memory."""
    apart = [] if weights.embed is weights.head else tensors_of(weights.embed)
    tables = [one for one in (*apart, weights.rows) if one is not None and one.is_cuda]
    tensors: list[Tensor | None] = [*tensors_of(weights.head), weights.tokens, *tables]
    tensors += [*weights.norms.values(), *weights.vectors.values()]
    for product in weights.products.values():
        tensors += [*tensors_of(product.weight), product.bias]
    device = values_of(weights.head).device
    return sum(t.nbytes for t in tensors if t is not None and t.device == device)
