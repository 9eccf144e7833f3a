"""Matrices as kernels read them, without values."""

from torch import Tensor, empty, float32, int8, int32, uint8

from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.gpu_blocks import InWords
from specchat.engine.formats.layout import FourBit, Nested, mapped
from specchat.engine.formats.words import in_words

SAMPLE = 64
"""Outputs of the matrix by which the storage of a type is found."""


def blocks(kind: str, outputs: int = 4096, inputs: int = 4096) -> InWords:
    """A matrix of a type of GGUF, as kernels read it."""
    known = TYPES[kind]
    raw = empty(SAMPLE, inputs // known.size * known.octets, dtype=uint8).fill_(1)

    def of_outputs(tensor: Tensor) -> Tensor:
        """The tensor of a matrix of so many outputs; a code stays."""
        return empty(outputs, *tensor.shape[1:], dtype=tensor.dtype) if len(tensor) == SAMPLE else tensor

    return mapped(in_words(known.read(raw, inputs)), of_outputs)


def four_bit(
    outputs: int,
    inputs: int,
    nested: bool = False,
    block: int = 64,
    zeros: bool = False,
    order: bool = False,
    tabled: bool = False,
) -> FourBit:
    blocks = outputs, inputs // block
    inner = Nested(empty(256), empty(outputs * blocks[1] // 256), empty(outputs)) if nested else None
    return FourBit(
        empty(outputs, inputs // 2, dtype=uint8),
        empty(blocks, dtype=uint8 if nested or tabled else float32),
        empty(16),
        block,
        Nested(empty(256)) if tabled else inner,
        empty(blocks, dtype=int8) if zeros else None,
        empty(inputs, dtype=int32) if order else None,
    )
