"""The matrices and norms of a layer, read from a checkpoint for the decoder in plain torch."""

import torch
from torch import Tensor

from specchat.engine.kernels.formats import Weight
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.norm import RMSNorm
from specchat.engine.model.parts import Block, block
from specchat.engine.model.quantise import fused, quantise
from specchat.engine.model.quantised import QuantisedLinear, linear_of
from specchat.engine.model.rows import Linear
from specchat.engine.model.weights import Weights
from specchat.engine.pair import Quant
from specchat.engine.recipe import Matrix, Norm

Product = Linear | QuantisedLinear
Layer = Block[Product, RMSNorm]


def read(weights: Weights, c: ModelConfig, index: int, quant: Quant | None, drafting: bool) -> Layer:
    """Layer number `index`, quantised as `quant` says where it is dense; `drafting` as for `Linear`."""

    def stored(name: str, outputs: int, inputs: int) -> Weight:
        weight = weights.linear(name, outputs, inputs)
        return quantise(weight, quant) if quant is not None and isinstance(weight, Tensor) else weight

    def product(matrix: Matrix) -> Product:
        weight = fused([stored(name, outputs, matrix.inputs) for name, outputs in matrix.parts])
        biases = [weights.get(f"{name}.bias", outputs) for name, outputs in matrix.parts] if matrix.bias else []
        return linear_of(weight, torch.cat(biases) if biases else None, drafting)

    def norm(one: Norm) -> RMSNorm:
        return RMSNorm(weights.get(f"{one.name}.weight", one.size), c.norm_eps)

    return block(c, index).made(product, norm)
