"""A whole pass over the layers in one function, run by one thread or by several at once.

The pass computes the same as `reference/`, with other orders of sums.
"""

from typing import Any

from specchat.engine.cpu.primitives.atomics import code_address, word
from specchat.engine.cpu.primitives.records import (
    OPERATION,
    PRODUCT_BYTES,
    head_at,
    inputs_at,
    layer_at,
    mixture_at,
    product_at,
    run_operation,
)
from specchat.engine.cpu.primitives.rowwise import copy_vector, multiply_by, norm
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.products import RowSpan
from specchat.engine.cpu.products.shared import NO_CAP, add_product, barrier, gated_product, in_order, multiply_shared

OUT, GATE_UP, DOWN = range(1, 4)
"""Products of a layer after that of its mixer; a layer with experts has its router at GATE_UP."""


@inner
def keep_states(run: Any, index: int) -> None:
    """Keep the hidden states after `index` layers, if wanted: other threads only read x until the next barrier."""
    if run.thread or not run.kept or word(run.kept, index) < 0:
        return
    slot, size = word(run.kept, index), run.hidden
    state = run.states + 4 * size * (slot * run.states_rows + run.start)
    tree_state = run.tree_states + 4 * size * (slot * run.tree_rows + run.scratch_row)
    for r in range(run.rows):
        copy_vector(run.x + 4 * r * size, (state if run.scratch_row < 0 else tree_state) + 4 * r * size, size)
    if run.scratch_row == 0 and word(run.spans, 0) == 0:
        copy_vector(run.x, state, size)


@inner
def normed(run: Any, weight: int, eps: Any) -> Any:
    """Rows of x through a norm, if any."""
    if not weight:
        return RowSpan(run.x, run.hidden)
    for r in range(run.rows):
        norm(run.x + 4 * r * run.hidden, weight, run.normed + 4 * r * run.own_row, run.hidden, eps)
    return RowSpan(run.normed, run.own_row)


@inner
def add_last(run: Any, y: Any, matrix: int, layer: Any, post: int) -> None:
    """Add a sub-layer's last product to x."""
    y = in_order(run.rows, y, matrix, RowSpan(run.normed, run.own_row))
    add_product(run, y, matrix, layer.residual, post, layer.post_eps)


@inner
def mix(run: Any, layer: Any) -> None:
    """Run a layer's mixer between its first two products, and add the result."""
    own = RowSpan(run.scratch, run.own_row)
    x = RowSpan(run.given, product_at(layer.products).inputs) if run.given else normed(run, layer.pre_mixer, layer.eps)
    x = in_order(run.rows, x, layer.products, own)
    multiply_shared(run, x, layer.products, RowSpan(run.wide, run.wide_row), NO_CAP)
    run.input, run.input_row = x.at, x.row
    run_operation(layer.mixer_code, run, layer.mixer)
    add_last(
        run,
        RowSpan(run.wide + 4 * layer.result, run.wide_row),
        layer.products + PRODUCT_BYTES * OUT,
        layer,
        layer.post_mixer,
    )


@inner
def feed(run: Any, layer: Any) -> None:
    """Run a layer's MLP or experts, and add the result."""
    x = normed(run, layer.pre_feed, layer.eps)
    if layer.mixture:
        run.input, run.input_row = x.at, x.row
        run_operation(mixture_at(layer.mixture).code, run, layer.mixture)
        return
    gate_up, y = layer.products + PRODUCT_BYTES * GATE_UP, RowSpan(run.wide, run.wide_row)
    x = in_order(run.rows, x, gate_up, RowSpan(run.scratch, run.own_row))
    gated_product(run, x, gate_up, layer.activation, y)
    barrier(run)
    add_last(run, y, layer.products + PRODUCT_BYTES * DOWN, layer, layer.post_feed)


@by_address(OPERATION)
def layers(run: Any, table: int) -> None:
    """Run all layers over the rows of a pass, in place; `table` has the address of each layer's record."""
    if run.inputs:
        run_operation(inputs_at(run.inputs).make, run, run.inputs)
    for index in range(run.layer_count):
        keep_states(run, index)
        layer, mixes, feeds = layer_at(word(table, index)), word(run.parts, 2 * index), word(run.parts, 2 * index + 1)
        if mixes:
            mix(run, layer)
        if feeds:
            feed(run, layer)
        if not (mixes or feeds):
            continue
        if layer.input:
            run_operation(inputs_at(run.inputs).add, run, layer.input)
        if layer.scalar != 1.0:
            for r in range(run.thread, run.rows, run.threads):
                multiply_by(run.x + 4 * r * run.hidden, run.hidden, layer.scalar)
            barrier(run)
    keep_states(run, run.layer_count)


@by_address(OPERATION)
def head(run: Any, own: int) -> None:
    """Write logits of the rows of a pass by the record `own` of the head."""
    last = head_at(own)
    x = normed(run, last.norm, last.eps)
    multiply_shared(run, x, last.matrix, RowSpan(last.logits, last.logits_row), last.cap)


CODES = {"layers_code": code_address(layers), "head_code": code_address(head)}
"""Fields of the record of a pass: addresses of the compiled functions."""
