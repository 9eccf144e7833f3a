"""Weights as the kernels of products take them: one NamedTuple of tensors for all storage forms.

A new form is a name in `Form`, a case in `stored`, and a function in `unpack.py`.
"""

from typing import Literal, NamedTuple

from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.layout import EightBit, FourBit, Weight

Form = Literal["four_bit", "eight_bit", "dense"]
"""Storage form of a weight, by which kernels unpack it."""


class NestedScales(NamedTuple):
    """Second quantisation of block scales: the tensors of `layout.Nested`."""

    code: Tensor
    absmax: Tensor
    offset: Tensor


class WeightTensors(NamedTuple):
    """A matrix [outputs, inputs], or the matrices of experts, one after the other.

    Attributes:
        packed: values, or bytes with several each.
        scales, nested, zeros, order, code: as in the layout of the form; None where it has none.
        bias: float [outputs] of each matrix.
        outputs, inputs: shape of one matrix.
        packed_step, scales_step: elements from one matrix to the next; 0 of a single matrix.
    """

    packed: Tensor
    scales: Tensor | None
    nested: NestedScales | None
    zeros: Tensor | None
    order: Tensor | None
    code: Tensor | None
    bias: Tensor | None
    outputs: int
    inputs: int
    packed_step: int
    scales_step: int


class StoredWeight(NamedTuple):
    """Tensors of a weight, its form, and how many inputs share a scale: 0 without blocks."""

    tensors: WeightTensors
    form: Form
    block: int


def stored(weight: Weight, bias: Tensor | None, experts: int = 0) -> StoredWeight:
    """Return the tensors of `weight`, of so many `experts`, as kernels take them; 0: one matrix.

    Raises:
        ModelError: the inputs are not a multiple of the weight's block.
    """
    outputs, inputs = weight.shape[0] // (experts or 1), weight.shape[1]

    def step(tensor: Tensor) -> int:
        return tensor.numel() // experts if experts else 0

    match weight:
        case FourBit(packed, scales, code, block, nested, zeros, order):
            if inputs % block:
                raise ModelError(
                    f"{inputs} inputs are not a multiple of the 4-bit block of {block}: load the model unquantised or "
                    "with int8"
                )
            second = None if nested is None else NestedScales(nested.code, nested.absmax, nested.offset)
            sizes = outputs, inputs, step(packed), step(scales)
            tensors = WeightTensors(packed, scales, second, zeros, order, code, bias, *sizes)
            return StoredWeight(tensors, "four_bit", block)
        case EightBit(values, scales):
            sizes = outputs, inputs, step(values), step(scales)
            return StoredWeight(WeightTensors(values, scales, None, None, None, None, bias, *sizes), "eight_bit", 0)
        case _:
            sizes = outputs, inputs, step(weight), 0
            return StoredWeight(WeightTensors(weight, None, None, None, None, None, bias, *sizes), "dense", 0)


def bits_of(weight: Weight) -> int:
    """Bits a value."""
    return 4 if isinstance(weight, FourBit) else 8 if isinstance(weight, EightBit) else 8 * weight.element_size()
