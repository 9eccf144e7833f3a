"""Short convolutions in the compiled pass: some channels are a piece, and threads take pieces in turn.

Channels do not depend on each other. What a token leaves for later ones is held as its KV entry.
"""

from numba import types

from specchat.engine.cpu.atomics import code_address, word
from specchat.engine.cpu.recurrent import add_products
from specchat.engine.cpu.rowwise import copy_vector, multiply_vector
from specchat.engine.cpu.short_convs import HALF, TAPS, WEIGHTS
from specchat.engine.cpu.signatures import SHORT_CONV
from specchat.engine.cpu.simd import python_callable
from specchat.engine.cpu.together import next_piece
from specchat.engine.memory.vectors import LANES

PIECE = 8 * LANES
"""Channels of a piece, but for the last of a half."""


@python_callable(types.void(*SHORT_CONV))
def convolve(
    rows: int,
    start: int,
    spans: int,
    count: int,
    ancestors: int,
    tree_scratch: int,
    values_offset: int,
    scratch_row: int,
    conv: int,
    keys: int,
    values: int,
    y: int,
    y_row: int,
    room: int,
    counters: int,
    which: int,
    threads: int,
) -> None:
    """Convolve rows of y, which hold B, C and z of `recipe.ShortConv`; results replace C.

    It is called by its address, so only a model with such layers has it compiled.

    Args:
        spans, ancestors: as in `passes.layers`; `count` spans.
        tree_scratch, values_offset: as in `attending.attention`.
        conv: address of a description of `short_convs.ShortConvs`.
        keys, values: addresses of both halves of the entry at position 0, float32 [positions, half].
        room: the thread's own, float32 [PIECE].
    """
    taps, half, weights = word(conv, TAPS), word(conv, HALF), word(conv, WEIGHTS)
    of_half = -(-half // PIECE)
    piece = next_piece(counters, which, threads, 0)
    while piece < 2 * of_half:
        part, first = piece // of_half, piece % of_half * PIECE
        size = min(PIECE, half - first)
        cache, tree = keys + 4 * first, tree_scratch + 4 * first
        if part:
            cache, tree = values + 4 * first, tree_scratch + 4 * (values_offset + first)
        channel = part * half + first
        row = 0
        for span in range(count):
            position, length = start + word(spans, 4 * span), word(spans, 4 * span + 1)
            begin, end = word(spans, 4 * span + 2), word(spans, 4 * span + 3)
            for i in range(begin, end):
                copy_vector(tree + 4 * half * word(ancestors, i), cache + 4 * half * (position - end + i), size)
            for i in range(length):
                before = y + 4 * ((row + i) * y_row + channel)
                entry = cache + 4 * half * (position + i)
                copy_vector(before, entry, size)
                multiply_vector(before + 16 * half, entry, size)
                if scratch_row >= 0:
                    copy_vector(entry, tree + 4 * half * (scratch_row + row + i), size)
                copy_vector(entry, room, size)
                multiply_vector(weights + 4 * (2 * half * (taps - 1) + channel), room, size)
                for back in range(1, min(taps, position + i + 1)):
                    weight = weights + 4 * (2 * half * (taps - 1 - back) + channel)
                    add_products(entry - 4 * half * back, weight, room, size)
                multiply_vector(room, before + 8 * half, size)
            row += length
        piece = next_piece(counters, which, threads, piece + 1)


ADDRESS = code_address(convolve)
"""Address of `convolve`."""
