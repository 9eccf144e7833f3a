"""Inputs of each layer by token: made before the first layer, and gated at the end of each."""

from typing import Any

from specchat.engine.cpu.primitives.activations import gate_by
from specchat.engine.cpu.primitives.atomics import code_address
from specchat.engine.cpu.primitives.records import OPERATION, input_at, inputs_at, product_at
from specchat.engine.cpu.primitives.rowwise import add_vector, norm
from specchat.engine.cpu.primitives.simd import by_address
from specchat.engine.cpu.products.products import RowSpan, min_panels, multiply
from specchat.engine.cpu.products.shared import (
    NO_CAP,
    barrier,
    in_order,
    multiply_shared,
    next_piece,
    next_turn,
    piece_end,
    piece_size,
)
from specchat.engine.memory.vectors import LANES


@by_address(OPERATION)
def make_inputs(run: Any, own: int) -> None:
    """Fill the inputs of all layers for a pass's rows by INPUTS (`recipe.PerLayer`); threads meet at two barriers."""
    inputs = inputs_at(own)
    size, made = inputs.size, RowSpan(inputs.made, inputs.made_row)
    multiply_shared(run, RowSpan(inputs.embedded, run.hidden), inputs.product, made, NO_CAP)
    barrier(run)
    for r in range(run.thread, run.rows, run.threads):
        for begin in range(0, inputs.width, size):
            values = made.at + 4 * (r * made.row + begin)
            norm(values, inputs.norm, values, size, inputs.eps)
            add_vector(inputs.rows + 4 * (r * inputs.width + begin), values, size)
    barrier(run)


@by_address(OPERATION)
def gate_input(run: Any, own: int) -> None:
    """Put the gate of x times a layer's input by INPUT (`recipe.LayerInput`) into rows of `wide`.

    Threads meet at a barrier.
    """
    layer_input, y = input_at(own), RowSpan(run.wide, run.wide_row)
    inputs, gate = inputs_at(layer_input.inputs), layer_input.gate
    x = in_order(run.rows, RowSpan(run.x, run.hidden), gate, RowSpan(run.scratch, run.own_row))
    values, panels, few = inputs.made + 4 * layer_input.first, product_at(gate).panels, min_panels(gate)
    turn = next_turn(run)
    size, index = piece_size(panels, few, run.threads), next_piece(run, turn, 0)
    last = piece_end(index, panels, few, size)
    while last:
        first = index * size
        multiply(run.rows, x, gate, y, first, last)
        begin, stop = first * LANES, min(last * LANES, inputs.size)
        for r in range(run.rows):
            row, up = y.at + 4 * (r * y.row + begin), values + 4 * (r * inputs.made_row + begin)
            gate_by(layer_input.activation, row, up, max(0, stop - begin))
        index = next_piece(run, turn, index + 1)
        last = piece_end(index, panels, few, size)
    barrier(run)


MAKE, GATE = code_address(make_inputs), code_address(gate_input)
"""Addresses of the functions."""
