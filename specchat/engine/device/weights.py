"""A model's weights as the device decoder multiplies them: from a checkpoint, or random at published shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.kernels.formats import EightBit, FourBit, Nested, Weight
from specchat.engine.model.checkpoint import Checkpoint
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.parts import EMBEDDING, HEAD, Block, block
from specchat.engine.model.quantise import fused, quantise
from specchat.engine.model.weights import Weights
from specchat.engine.pair import Quant
from specchat.engine.recipe import Matrix, Norm


class Product(NamedTuple):
    """A matrix and its bias, float32 [outputs]."""

    weight: Weight
    bias: Tensor | None


LayerWeights = Block[Product, Tensor]
"""One transformer block; the norms are float32."""


@dataclass(frozen=True)
class ModelWeights:
    """All of a model: `embed` is in the compute dtype, as is `head` unless it is quantised; tied, they are one then.

    `tokens` int64 [rows of the head] are those that the rows belong to, None where each token has one.
    """

    embed: Tensor
    layers: list[LayerWeights]
    norm: Tensor
    head: Weight
    tokens: Tensor | None = None


Read = Callable[[str, int, int], Weight]
"""(name without ".weight", outputs, inputs) -> the matrix as the checkpoint has it."""
ReadVector = Callable[[str, int], Tensor]


def load(
    checkpoint: Checkpoint, quant: Quant | None, device: torch.device, dtype: torch.dtype, head: Quant | None = None
) -> ModelWeights:
    """Read a checkpoint layer by layer, so that no more than one unquantised layer is in main memory at once.

    Raises:
        ModelError: weights missing, damaged, of other shapes, or quantised in a way that is not known.
    """
    with Weights(checkpoint) as weights:

        def vector(name: str, size: int) -> Tensor:
            return weights.get(name, size)

        # What bitsandbytes left dense, or gives dense, stays so.
        asked = quant if checkpoint.quant is None else None
        return _assemble(checkpoint.config, asked, head, device, dtype, weights.linear, vector, checkpoint.drafts)


def random(
    config: ModelConfig,
    quant: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    seed: int = 0,
    head: Quant | None = None,
) -> ModelWeights:
    """Weights of the right shapes and no meaning, scaled so that activations stay finite."""
    generator = torch.Generator(device).manual_seed(seed)

    def matrix(_: str, outputs: int, inputs: int) -> Tensor:
        drawn = torch.randn(outputs, inputs, generator=generator, device=device, dtype=torch.float32)
        return drawn.div_(inputs**0.5).to(dtype)

    def vector(name: str, size: int) -> Tensor:
        return torch.zeros(size) if name.endswith(".bias") else torch.ones(size)

    return _assemble(config, quant, head, device, dtype, matrix, vector)


def _assemble(
    c: ModelConfig,
    quant: Quant | None,
    of_head: Quant | None,
    device: torch.device,
    dtype: torch.dtype,
    read: Read,
    vector: ReadVector,
    drafts: Sequence[int] | None = None,
) -> ModelWeights:
    tokens = None if drafts is None else torch.tensor(drafts)

    def dense(name: str, rows: Tensor | None = None) -> Tensor:
        weight = read(name, c.vocab, c.hidden)
        if not isinstance(weight, Tensor):
            raise TypeError(f"{name} is quantised; embeddings and heads are not")
        return (weight if rows is None else weight[rows]).to(device, dtype)

    def norm(one: Norm) -> Tensor:
        return vector(f"{one.name}.weight", one.size).to(device, torch.float32)

    def product(matrix: Matrix) -> Product:
        parts = [read(name, outputs, matrix.inputs) for name, outputs in matrix.parts]
        ready = [p.to(device, dtype) if isinstance(p, Tensor) else moved(p, device) for p in parts]
        if quant is not None:
            ready = [quantise(p, quant) if isinstance(p, Tensor) else p for p in ready]
        biases = [vector(f"{name}.bias", outputs) for name, outputs in matrix.parts] if matrix.bias else []
        return Product(fused(ready), torch.cat(biases).to(device, torch.float32) if biases else None)

    embed = dense(EMBEDDING)
    head = embed if c.tied and tokens is None else dense(EMBEDDING if c.tied else HEAD, tokens)
    return ModelWeights(
        embed=embed,
        layers=[block(c, index).made(product, norm) for index in range(c.layers)],
        norm=norm(c.recipe.norm),
        head=head if of_head is None else quantise(head, of_head),
        tokens=None if tokens is None else tokens.to(device),
    )


def moved(weight: FourBit | EightBit, device: torch.device) -> FourBit | EightBit:
    """The same weight on `device`."""
    match weight:
        case FourBit(packed, scales, code, block, nested):
            inner = nested and Nested(nested.code.to(device), nested.absmax.to(device), nested.offset.to(device))
            return FourBit(packed.to(device), scales.to(device), code.to(device), block, inner)
        case EightBit(values, scales):
            return EightBit(values.to(device), scales.to(device))


def held_bytes(weights: ModelWeights) -> int:
    """Bytes on the device, a tied table counted once."""
    tensors: list[Tensor | None] = [weights.embed, weights.norm, weights.tokens]
    if weights.head is not weights.embed:
        tensors += _tensors(weights.head)
    for layer in weights.layers:
        tensors += layer.norms
        for product in layer.products:
            tensors += [*_tensors(product.weight), product.bias]
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def _tensors(weight: Weight) -> list[Tensor]:
    match weight:
        case FourBit(packed, scales, code, _, nested):
            inner = [nested.code, nested.absmax, nested.offset] if nested else []
            return [packed, scales, code, *inner]
        case EightBit(values, scales):
            return [values, scales]
        case _:
            return [weight]
