"""The list of steps that a program becomes, and what their records point to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.description.inputs import LayerInputs
from specchat.engine.cpu.layers import passes
from specchat.engine.cpu.padding import padded_eps
from specchat.engine.cpu.primitives.records import MULTIPLY, NORMALISE, PRODUCT_BYTES, Structure
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.model.state_log import StateLog
from specchat.engine.program.ops import Buffer, Half, Multiply
from specchat.engine.recipe import Layer, Matrix, Norm

Floats = NDArray[np.float32]
MIXER, FEED, EITHER = range(3)
"""Columns of the parts of a pass."""
PARTS: dict[Half, int] = {"start": EITHER, "mixer": MIXER, "feed": FEED, "end": EITHER}
INPUTS = -1
"""Place of the rows' inputs of products, which are not in `wide`."""


@dataclass(frozen=True)
class Arrays:
    """Weights, caches and buffers of layers.

    Attributes:
        products: address of the PRODUCT of each matrix.
        norms: the weight of each norm and its bias, if any, float32 [size in whole vectors] each.
        cache: for each layer keys and values, [kv_heads, capacity, row] as in `model.cache.KVCache`.
        rotations: for each layer the cosines and sines of `rope.tables`, float32 [capacity, rotated values].
        row: values of a row of `wide`.
        vectors: other tensors of the layers by name, float32 [size].
        logs: for each layer the log of its recurrent states, if it has some.
        mixtures: buffers of experts, of `buffers.mixture_buffers`.
        inputs: of layers that have some.
    """

    products: Mapping[Matrix, int]
    norms: Mapping[Norm, Floats]
    cache: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    rotations: Sequence[tuple[Floats, Floats]]
    row: int
    vectors: Mapping[str, Floats] = field(default_factory=dict)
    logs: Sequence[StateLog | None] = ()
    mixtures: Mapping[str, Any] = field(default_factory=dict)
    inputs: LayerInputs | None = None


def product_addresses(layers: Sequence[Layer], table: NDArray[Any]) -> dict[Matrix, int]:
    """Address of the PRODUCT of each matrix of `layers`, whose products a `table` that stays begins with."""
    matrices = (matrix for layer in layers for matrix in layer.products)
    return {matrix: table.ctypes.data + PRODUCT_BYTES * index for index, matrix in enumerate(matrices)}


class StepList:
    """The steps of a program, as its operations are described one after another.

    A norm waits for the first operation that reads it, and a product for the next operation: the two may be one step.

    Attributes:
        arrays: what records point to.
        layer, half: of the operation that is described.
        made: (part, address of the code, record or number) of each step.
        mixers: the record of each layer's mixer.
        places: element of a row of `wide` at which a buffer begins.
        norms: norms that wait, with the halves of their operations.
        product: the product that waits, with its half.
        mixture: the mixture that waits for its addition.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.layer = 0
        self.half: Half = "start"
        self.made: list[tuple[int, int, Structure | int]] = []
        self.mixers: list[Structure] = []
        self.places: dict[str, int] = {}
        self.norms: dict[str, tuple[Norm | None, Half]] = {}
        self.product: tuple[Multiply, Half] | None = None
        self.mixture: Structure | None = None

    def step(self, code: int, own: Structure | int, half: Half | None = None) -> None:
        """Add a step of the operation's half, or of another one."""
        self.made.append((3 * self.layer + PARTS[half or self.half], code, own))

    def flush(self, first: int = 0, meets: bool = True) -> None:
        """Add the product that waits; with `meets` threads meet after it.

        A product of the rows' inputs goes to element `first` of a row of `wide`, another one ends the row.
        """
        if self.product is None:
            return
        (op, half), self.product = self.product, None
        source = self.places.get(op.source.name, INPUTS)
        out = first if source == INPUTS else self.arrays.row - LANES * panels_for(sum(op.matrix.outputs))
        self.places[op.out.name] = out
        self.multiply(op.matrix, source, out, meets, half)

    def multiply(self, matrix: Matrix, source: int, out: int, meets: bool = True, half: Half | None = None) -> None:
        """Add a product; arguments are as in MULTIPLY."""
        product = self.arrays.products[matrix]
        self.step(passes.MULTIPLY, Structure(MULTIPLY, matrix=product, source=source, out=out, meets=meets), half)

    def read(self, source: Buffer) -> int:
        """Add the steps that a buffer waits for, and return its place."""
        self.flush()
        if source.name in self.norms:
            norm, half = self.norms.pop(source.name)
            record = Structure(NORMALISE, **self.norm(norm, "weight"))
            if norm:
                record.set(**centre_fields(norm, self.arrays.norms[norm]))
            self.step(passes.NORMALISE, record, half)
        return self.places.get(source.name, INPUTS)

    def norm(self, norm: Norm | None, name: str, eps: str = "eps") -> dict[str, Any]:
        """Fields of a norm of rows: its weight by `name`, and its `eps`."""
        return {} if norm is None else norm_fields(norm, self.arrays.norms[norm], name, eps)


def norm_fields(norm: Norm, weight: Floats, name: str, eps: str = "eps") -> dict[str, Any]:
    """Fields of a norm with a `weight` and a bias, if any, in whole vectors."""
    return {name: weight, eps: padded_eps(norm.eps, norm.size, len(weight) // (1 + norm.bias))}


def centre_fields(norm: Norm, weight: Floats) -> dict[str, Any]:
    """Fields of a LayerNorm in NORMALISE and HEAD."""
    return {"count": norm.size * norm.centred, "bias": weight[len(weight) // 2 :] if norm.bias else None}
