"""Weights as the kernels of products take them: one NamedTuple of tensors for all storage forms.

A new form is a name of a `Form`, a case in `stored`, and a function in `unpack.py`.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.gpu_blocks import GridWords, WordBlocks
from specchat.engine.formats.layout import Blocks, EightBit, FourBit, Joined, Plain, Weight, values_of


class Form(NamedTuple):
    """Storage form of a weight, by which kernels unpack it.

    Attributes:
        block: inputs that share a scale; 0 without blocks.
        low, high, minimums: bits of the planes of "blocks", and where minimums are, as in `gpu_blocks.WordBlocks`.
        coded: true of blocks whose numbers stand for those of a code.
        values: of a row of the codebook of "grids".
        spare: use of the bits of eighth signs: "signs", "scales", or ninth bits of numbers of "rows".
    """

    name: Literal["four_bit", "blocks", "grids", "eight_bit", "dense"]
    block: int = 0
    low: int = 0
    high: int = 0
    minimums: str = "none"
    coded: bool = False
    values: int = 0
    spare: str = "signs"


class NestedScales(NamedTuple):
    """Second quantisation of block scales: the tensors of `layout.Nested`."""

    code: Tensor
    absmax: Tensor | None
    offset: Tensor | None


class Planes(NamedTuple):
    """Numbers of a matrix: values, or bytes or words with several each, and their `high` bits and `signs` if apart."""

    low: Tensor
    high: Tensor | None = None
    signs: Tensor | None = None


class Factors(NamedTuple):
    """Factors of rows or blocks, and what is subtracted, as in the layout of the form; None: it has none."""

    scales: Tensor | None = None
    minimums: Tensor | None = None
    supers: Tensor | None = None
    nested: NestedScales | None = None
    zeros: Tensor | None = None


NO_FACTORS = Factors()


class MatrixSteps(NamedTuple):
    """Elements from one matrix to the next in the tensors of these names; 0 of a single matrix."""

    low: int
    high: int
    signs: int
    scales: int
    supers: int
    bias: int


class WeightTensors(NamedTuple):
    """A matrix [outputs, inputs], or the matrices of experts, one after the other.

    Attributes:
        outputs, inputs: shape of one matrix.
        order, code, codebook: as in the layout of the form; None: it has none.
        bias: float [outputs] of each matrix.
    """

    planes: Planes
    factors: Factors
    outputs: int
    inputs: int
    steps: MatrixSteps
    order: Tensor | None = None
    code: Tensor | None = None
    codebook: Tensor | None = None
    bias: Tensor | None = None


SPARE = {"apart": "signs", "in scales": "scales", "paired": "rows"}
"""Use of the bits of eighth signs, by `GridType.signs`."""


class StoredWeight(NamedTuple):
    """Tensors of a weight, and its form."""

    tensors: WeightTensors
    form: Form


def stored(weight: Plain, bias: Tensor | None, experts: int = 0) -> StoredWeight:
    """Return the tensors of `weight`, of so many `experts`, as kernels take them; 0: one matrix.

    Raises:
        ModelError: the inputs are not a multiple of the weight's block.
    """
    outputs, inputs = weight.shape[0] // (experts or 1), weight.shape[1]

    def step(tensor: Tensor | None) -> int:
        return tensor.numel() // experts if experts and tensor is not None else 0

    def tensors(planes: Planes, factors: Factors = NO_FACTORS, **others: Any) -> WeightTensors:
        steps = MatrixSteps(*map(step, (*planes, factors.scales, factors.supers, bias)))
        return WeightTensors(planes, factors, outputs, inputs, steps, bias=bias, **others)

    match weight:
        case FourBit(packed, scales, code, block, nested, zeros, order):
            if inputs % block:
                raise ModelError(
                    f"{inputs} inputs are not a multiple of the 4-bit block of {block}: load the model unquantised or "
                    "with int8"
                )
            second = None if nested is None else NestedScales(nested.code, nested.absmax, nested.offset)
            found = tensors(Planes(packed), Factors(scales, nested=second, zeros=zeros), order=order, code=code)
            return StoredWeight(found, Form("four_bit", block))
        case WordBlocks(low, high, scales, minimums, supers, code):
            bits, is_coded = (weight.low_bits, weight.bits - weight.low_bits), code.dtype == torch.float32
            form = Form("blocks", weight.block, *bits, weight.minimums_in, is_coded)
            factors = Factors(scales, minimums, supers)
            return StoredWeight(tensors(Planes(low, high), factors, order=weight.order, code=code), form)
        case GridWords(low, high, signs, scales, supers, code, codebook, grid):
            form = Form("grids", weight.block, high=grid.high_bits, values=grid.values, spare=SPARE[grid.signs])
            planes, factors = Planes(low, high, signs), Factors(scales, supers=supers)
            found = tensors(planes, factors, order=weight.order, code=code, codebook=codebook)
            return StoredWeight(found, form)
        case EightBit(values, scales):
            return StoredWeight(tensors(Planes(values), Factors(scales)), Form("eight_bit"))
        case Tensor():
            return StoredWeight(tensors(Planes(weight)), Form("dense"))
        case _:
            raise TypeError(f"{type(weight).__name__} has no kernel")


def parts_of(weight: Weight) -> tuple[Plain, ...]:
    """Matrices, or those of experts, of one storage each, one after another along the outputs."""
    return weight.parts if isinstance(weight, Joined) else (weight,)


def bits_of(weight: Weight) -> tuple[int, ...]:
    """Bits a value of each of the parts."""
    return tuple(map(_bits, parts_of(weight)))


def _bits(weight: Plain) -> int:
    match weight:
        case FourBit():
            return 4
        case EightBit():
            return 8
        case Blocks(bits=bits) | WordBlocks(bits=bits) | GridWords(bits=bits):
            return bits
        case _:
            return 8 * values_of(weight).element_size()
