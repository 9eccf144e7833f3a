"""Short convolutions in the compiled pass: some channels are a piece, and threads take pieces in turn.

Channels do not depend on each other. What a token leaves for later ones is held as its KV entry.
"""

from typing import Any

from specchat.engine.cpu.layers.recurrent import add_products
from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import OPERATION, short_conv_at
from specchat.engine.cpu.primitives.rowwise import copy_vector, multiply_vector
from specchat.engine.cpu.primitives.simd import by_address
from specchat.engine.cpu.products.shared import barrier, next_piece, next_turn
from specchat.engine.memory.vectors import LANES

PIECE = 8 * LANES
"""Channels of a piece, but for the last of a half."""


@by_address(OPERATION)
def convolve(run: Any, own: int) -> None:
    """Convolve rows of `wide`, which hold B, C and z of `recipe.ShortConv`, by a SHORT_CONV; results replace C.

    Threads meet at a barrier. `room` has PIECE elements. It is called by its address, so only a model with such layers
    has it compiled.
    """
    conv = short_conv_at(own)
    taps, half, weights, y, y_row, room = conv.taps, conv.half, conv.weights, run.wide, run.wide_row, run.room
    turn = next_turn(run)
    of_half = -(-half // PIECE)
    piece = next_piece(run, turn, 0)
    while piece < 2 * of_half:
        part, first = piece // of_half, piece % of_half * PIECE
        size = min(PIECE, half - first)
        cache, tree = conv.keys + 4 * first, conv.tree_scratch + 4 * first
        if part:
            cache, tree = conv.values + 4 * first, conv.tree_scratch + 4 * (conv.values_offset + first)
        channel = part * half + first
        row = 0
        for span in range(run.span_count):
            held = cache + (word(run.copies, span) if run.copies else 0)
            position, length = run.start + word(run.spans, 4 * span), word(run.spans, 4 * span + 1)
            begin, end = word(run.spans, 4 * span + 2), word(run.spans, 4 * span + 3)
            for i in range(begin, end):
                copy_vector(tree + 4 * half * word(run.ancestors, i), held + 4 * half * (position - end + i), size)
            for i in range(length):
                before = y + 4 * ((row + i) * y_row + channel)
                entry = held + 4 * half * (position + i)
                copy_vector(before, entry, size)
                multiply_vector(before + 16 * half, entry, size)
                if run.scratch_row >= 0:
                    copy_vector(entry, tree + 4 * half * (run.scratch_row + row + i), size)
                copy_vector(entry, room, size)
                multiply_vector(weights + 4 * (2 * half * (taps - 1) + channel), room, size)
                for back in range(1, min(taps, position + i + 1)):
                    weight = weights + 4 * (2 * half * (taps - 1 - back) + channel)
                    add_products(entry - 4 * half * back, weight, room, size)
                multiply_vector(room, before + 8 * half, size)
            row += length
        piece = next_piece(run, turn, piece + 1)
    barrier(run)


ADDRESS = code_address(convolve)
"""Address of `convolve`."""
