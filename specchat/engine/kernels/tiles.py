"""How a matrix product is cut up: by its shape alone, never by the number of rows. Needs no Triton: plans ask too.

A program takes BN outputs and one split of the inputs, and goes through it BK inputs at a time. Partial sums of the
splits stay apart: the kernel that reads them next adds them in index order.
"""

from dataclasses import dataclass

SPLIT = 256
"""Cache entries of one partial sum of attention, the same in every step."""

ROWS = 16
"""Rows of one tensor-core tile; wider passes multiply several such tiles by the same unpacked weights."""
MOST_ROWS = 64

PROGRAMS = 256
"""Programs wanted: about two for each multiprocessor of a card with 80 to 130, so that all of them stream weights."""
MOST_SPLITS = 8
LEAST_BLOCKS = 4
"""A split shorter than this many BK blocks spends more on starting than on streaming."""


@dataclass(frozen=True)
class Tiling:
    """Outputs and inputs of a block, splits of the inputs, warps and pipeline stages of a program."""

    outputs: int
    inputs: int
    splits: int
    warps: int
    stages: int


def tiling(outputs: int, inputs: int, bits: int) -> Tiling:
    """The cut for a weight of this shape with `bits` a value."""
    bn = 64 if outputs >= 64 else 32
    bk = min({4: 128, 8: 128, 16: 64, 32: 32}[bits], max(32, 1 << (inputs - 1).bit_length()))
    tiles, blocks = -(-outputs // bn), -(-inputs // bk)
    splits = 1
    while splits < MOST_SPLITS and tiles * splits * 2 <= PROGRAMS and blocks >= 2 * splits * LEAST_BLOCKS:
        splits *= 2
    return Tiling(bn, bk, splits, warps=4, stages=3)
