"""A whole pass over the layers in one function, run by one thread or by several at once.

Threads meet at five barriers a layer, at six with experts or a gate on attention. The pass computes the same as
`reference/`, with other orders of sums.
"""

from typing import Any

import numpy as np
from numba import types

from specchat.engine.cpu.atomics import address, caller_of, code_address, word
from specchat.engine.cpu.deltas import CHANNELS
from specchat.engine.cpu.deltas import CODE as DELTA_CODE
from specchat.engine.cpu.descriptors import (
    ACTIVATION,
    DELTA,
    EPS,
    HEAD_EPS,
    INPUT_NORM,
    INPUT_PRODUCTS,
    INPUTS,
    KEYS,
    MIXTURE,
    POST_EPS,
    POST_FEED,
    POST_MIXER,
    PRE_FEED,
    PRE_MIXER,
    PRODUCTS,
    RESIDUAL,
    SCALAR,
    SHORT_CONV,
    TREE_SCRATCH,
    VALUES,
    VALUES_OFFSET,
)  # fmt: skip
from specchat.engine.cpu.layer_attention import attend
from specchat.engine.cpu.layer_inputs import ADD, MAKE
from specchat.engine.cpu.mixtures import CODE, ROUTER_NORM
from specchat.engine.cpu.products import COLUMNS
from specchat.engine.cpu.products import INPUTS as OF_PRODUCT
from specchat.engine.cpu.rowwise import copy_vector, multiply_by, norm
from specchat.engine.cpu.short_convs import CODE as SHORT_CONV_CODE
from specchat.engine.cpu.short_convs import HALF
from specchat.engine.cpu.signatures import ADD_INPUT, EXPERTS, HEAD, LAYERS, MAKE_INPUTS
from specchat.engine.cpu.signatures import DELTA as DELTA_ARGS
from specchat.engine.cpu.signatures import SHORT_CONV as SHORT_CONV_ARGS
from specchat.engine.cpu.simd import python_callable
from specchat.engine.cpu.together import NO_CAP, add_product, barrier, gated_product, in_order, product

QKV, OUT, GATE_UP, DOWN = range(4)
"""Products of a layer, in the order of the table of products."""
ROUTER = GATE_UP
"""Where a layer with experts has its router."""
run_experts = caller_of(EXPERTS)
"""Calls `experts.experts` by its address."""
make_inputs, add_input = caller_of(MAKE_INPUTS), caller_of(ADD_INPUT)
"""Call the functions of `per_layer.py` by their addresses."""
run_delta = caller_of(DELTA_ARGS)
"""Calls `delta.delta_layer` by its address."""
run_short_conv = caller_of(SHORT_CONV_ARGS)
"""Calls `short_conv.convolve` by its address."""


@python_callable(types.void(*LAYERS))
def layers(
    x: Any,
    rows: int,
    start: int,
    spans: Any,
    ancestors: Any,
    scratch_row: int,
    integers: Any,
    floats: Any,
    kernels: Any,
    extras: Any,
    parts: Any,
    wide: Any,
    own: Any,
    scores: Any,
    given: int,
    kept: Any,
    states: Any,
    tree_states: Any,
    counters: Any,
    thread: int,
    threads: int,
) -> None:
    """Run all layers over `rows` rows of x, in place.

    Args:
        x: float32 [>= rows, hidden in whole vectors]; so are hidden states and heads below.
        start: position of the first row.
        spans: int64 [spans, 4]: positions after `start`, rows, first and last index into `ancestors`; see
            `model/tree_layout.py`.
        ancestors: int64, rows of the tree scratch whose KV entries are put right before a span.
        scratch_row: first row of the tree scratch to fill; -1 without trees.
        integers, floats: of `descriptors.Descriptors`.
        kernels, extras: as in `products.multiply`.
        parts: bool [layers, 2]: attentions and MLPs that take part.
        wide: float32 [>= rows, outputs of the widest product], shared; with norms after sub-layers, hidden more.
        own: float32 [threads, 2, >= rows, max(hidden, LANES * FEW, inputs of products in an order)].
        scores: float32 [threads, `vectors.attention_room`].
        given: address of the first attention's inputs, float32 [rows, inputs]; 0 to use the norm of x.
        kept: int64 [layers + 1]: index into `states` and `tree_states` at which x is kept after so many layers; -1 for
            none.
        states, tree_states: float32 [kept layers, positions or rows of the tree scratch, hidden], as in
            `model/decoder.py`.
        counters: int64 [LINE * (1 + 5 layers)], zeros; with inputs of layers LINE * (1 + 2 layers) more.
    """
    hidden, deep, own_row, wide_row = x.shape[1], len(integers), own.shape[3], wide.shape[1]
    xs, ys, plans, more, board = address(x), address(wide), address(kernels), address(extras), address(counters)
    normed = address(own) + 4 * 2 * thread * own.shape[2] * own_row
    scratch = normed + 4 * own.shape[2] * own_row
    passed = 0
    root = scratch_row == 0 and spans[0, 0] == 0
    own_inputs = integers[0, INPUTS]
    if own_inputs:
        make_inputs(word(own_inputs, MAKE), (rows, own_inputs, hidden, plans, more, board, 5 * deep, thread, threads))
        passed += 2
    for layer in range(deep + 1):
        if thread == 0 and kept[layer] >= 0:
            # Other threads only read x until the next barrier.
            state = address(states) + 4 * hidden * (kept[layer] * states.shape[1] + start)
            tree_state = address(tree_states) + 4 * hidden * (kept[layer] * tree_states.shape[1] + scratch_row)
            for r in range(rows):
                copy_vector(xs + 4 * r * hidden, (state if scratch_row < 0 else tree_state) + 4 * r * hidden, hidden)
            if root:
                copy_vector(xs, state, hidden)
        if layer == deep:
            break
        used, matrix, residual = 5 * layer, integers[layer, PRODUCTS], floats[layer, RESIDUAL]
        eps, post_eps = floats[layer, EPS], floats[layer, POST_EPS]
        for part in range(2):
            if not parts[layer, part]:
                continue
            pre, post = (
                integers[layer, PRE_FEED if part else PRE_MIXER],
                integers[layer, POST_FEED if part else POST_MIXER],
            )
            inputs, inputs_row = normed, own_row
            if given and not layer and not part:
                inputs, inputs_row = given, word(matrix, OF_PRODUCT)
            elif pre:
                for r in range(rows):
                    norm(xs + 4 * r * hidden, pre, normed + 4 * r * own_row, hidden, eps)
            else:
                inputs, inputs_row = xs, hidden
            activation, mixture = integers[layer, ACTIVATION], integers[layer, MIXTURE]
            outputs = ys
            if part and mixture:
                router = matrix + 8 * COLUMNS * ROUTER
                run_experts(word(mixture, CODE), (
                    rows, inputs, inputs_row, router, mixture, activation, plans, more, xs, hidden, residual, post, eps,
                    scratch, own_row, board, used + 3, passed, thread, threads,
                ))  # fmt: skip
                passed += 4 if post or word(mixture, ROUTER_NORM) else 3
                continue
            if part:
                gate_up = matrix + 8 * COLUMNS * GATE_UP
                if in_order(rows, inputs, inputs_row, gate_up, scratch, own_row):
                    inputs, inputs_row = scratch, own_row
                gated_product(
                    rows, inputs, inputs_row, gate_up, activation, plans, more, ys, wide_row, board, used + 3, threads
                )
                passed = barrier(board, passed, threads)
            else:
                if in_order(rows, inputs, inputs_row, matrix, scratch, own_row):
                    inputs, inputs_row = scratch, own_row
                product(rows, inputs, inputs_row, matrix, plans, more, ys, wide_row, NO_CAP, board, used, threads)
                delta, short_conv = integers[layer, DELTA], integers[layer, SHORT_CONV]
                if delta:
                    run_delta(word(delta, DELTA_CODE), (
                        rows, start, address(spans), spans.shape[0], address(ancestors), integers[layer, TREE_SCRATCH],
                        scratch_row, inputs, inputs_row, delta, plans, more, ys, wide_row, floats[layer, HEAD_EPS],
                        address(scores) + 4 * thread * scores.shape[1], board, used + 1, passed, thread, threads,
                    ))  # fmt: skip
                    passed, outputs = passed + 2, ys + 4 * word(delta, CHANNELS)
                elif short_conv:
                    passed = barrier(board, passed, threads)
                    run_short_conv(word(short_conv, SHORT_CONV_CODE), (
                        rows, start, address(spans), spans.shape[0], address(ancestors), integers[layer, TREE_SCRATCH],
                        integers[layer, VALUES_OFFSET], scratch_row, short_conv, integers[layer, KEYS],
                        integers[layer, VALUES], ys, wide_row, address(scores) + 4 * thread * scores.shape[1], board,
                        used + 1, threads,
                    ))  # fmt: skip
                    passed, outputs = barrier(board, passed, threads), ys + 8 * word(short_conv, HALF)
                else:
                    passed = barrier(board, passed, threads)
                    passed = attend(
                        rows, start, spans, ancestors, scratch_row, integers, floats, layer, ys, wide_row, scores,
                        board, passed, thread, threads,
                    )  # fmt: skip
            last = matrix + 8 * COLUMNS * (DOWN if part else OUT)
            turns, outputs_row = used + 4 if part else used + 2, wide_row
            if in_order(rows, outputs, wide_row, last, normed, own_row):
                outputs, outputs_row = normed, own_row
            passed = add_product(
                rows, outputs, outputs_row, last, plans, more, xs, hidden, residual, post, post_eps, scratch, own_row,
                board, turns, passed, thread, threads,
            )  # fmt: skip
        if not (parts[layer, 0] or parts[layer, 1]):
            continue
        if integers[layer, INPUT_PRODUCTS]:
            turns = 5 * deep + 1 + 2 * layer
            add_input(word(own_inputs, ADD), (
                rows, own_inputs, layer, integers[layer, INPUT_PRODUCTS], integers[layer, ACTIVATION], plans, more, xs,
                hidden, integers[layer, INPUT_NORM], eps, ys, wide_row, scratch, own_row, board, turns, passed, thread,
                threads,
            ))  # fmt: skip
            passed += 3
        if floats[layer, SCALAR] != 1.0:
            for r in range(thread, rows, threads):
                multiply_by(xs + 4 * r * hidden, hidden, floats[layer, SCALAR])
            passed = barrier(board, passed, threads)


@python_callable(types.void(*HEAD))
def head(
    x: Any,
    rows: int,
    matrix: Any,
    kernels: Any,
    extras: Any,
    weight: Any,
    eps: np.float32,
    cap: np.float32,
    logits: Any,
    own: Any,
    counters: Any,
    thread: int,
    threads: int,
) -> None:
    """Write logits of rows of x: the last norm and the product with `matrix`, a row of the table.

    A `cap` of 0 is none. The rest is as in `layers`.
    """
    hidden, own_row = x.shape[1], own.shape[3]
    normed = address(own) + 4 * 2 * thread * own.shape[2] * own_row
    for r in range(rows):
        norm(address(x) + 4 * r * hidden, address(weight), normed + 4 * r * own_row, hidden, eps)
    product(
        rows,
        normed,
        own_row,
        address(matrix),
        address(kernels),
        address(extras),
        address(logits),
        logits.shape[1],
        cap,
        address(counters),
        0,
        threads,
    )


PASS_ADDRESSES = code_address(layers), code_address(head)
"""Addresses for `scoring.run_layers` and `scoring.run_head`."""
