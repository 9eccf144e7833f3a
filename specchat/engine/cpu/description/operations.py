"""The operations of a pass as steps: each function writes the records of the compiled functions that run one."""

from collections.abc import Callable
from math import exp, log1p
from typing import Any

import numpy as np
from torch import Tensor

from specchat.engine.cpu.description.mixers import advance, attend, convolve, expand
from specchat.engine.cpu.description.mixtures import mix
from specchat.engine.cpu.description.steps import Floats, StepList, centre_fields, norm_fields
from specchat.engine.cpu.layers import passes
from specchat.engine.cpu.padding import pad_norm
from specchat.engine.cpu.primitives import records
from specchat.engine.cpu.primitives.activations import CODES
from specchat.engine.cpu.primitives.records import Structure
from specchat.engine.model.norm import unscaled
from specchat.engine.program.ops import (
    Add,
    Embed,
    GatedProduct,
    GateInput,
    Head,
    MakeInputs,
    Multiply,
    Normalise,
    Scale,
)
from specchat.engine.program.table import OpTable
from specchat.engine.strategy import resolved


def embed(op: Embed) -> Callable[[Tensor], Tensor]:
    """Function from rows of the table to the residual stream, float32 [tokens, hidden]."""
    return lambda rows: unscaled(rows if op.scale == 1 else rows * op.scale, op.eps)


def make_inputs(steps: StepList, _: MakeInputs) -> None:
    inputs = steps.arrays.inputs
    assert inputs is not None
    steps.step(resolved("specchat.engine.cpu.layers.per_layer:MAKE"), inputs.record)


def normalise(steps: StepList, op: Normalise) -> None:
    steps.norms[op.out.name] = op.norm, steps.half


def multiply(steps: StepList, op: Multiply) -> None:
    steps.flush(meets=False)  # what reads two products has threads meet after the second
    steps.read(op.source)
    steps.product = op, steps.half


def gated_product(steps: StepList, op: GatedProduct) -> None:
    of = op.of
    steps.read(op.source)
    steps.places[op.out.name] = 0
    matrix = steps.arrays.products[of.gate_up]
    fields: dict[str, Any] = {"matrix": matrix, "activation": CODES[of.activation, of.ungated]}
    if of.curve:
        p, n, beta, eps = (float(steps.arrays.vectors[name].item()) for name in of.curve)
        fields["curve"] = np.array([log1p(exp(p)), beta + log1p(exp(n)), beta, eps], np.float32)
    steps.step(passes.GATED, Structure(records.GATED, **fields))


def gate_input(steps: StepList, op: GateInput) -> None:
    inputs, gate = steps.arrays.inputs, steps.arrays.products[op.of.gate]
    assert inputs is not None
    fields = {"inputs": inputs.record, "gate": gate, "first": steps.layer * inputs.size}
    record = Structure(records.INPUT, activation=CODES[op.activation, False], **fields)
    steps.places[op.out.name] = 0
    steps.step(resolved("specchat.engine.cpu.layers.per_layer:GATE"), record)


def add(steps: StepList, op: Add) -> None:
    post, factor = op.post, op.factor
    waiting = steps.product and steps.product[0]
    if steps.mixture is not None:
        steps.mixture.set(factor=factor, **steps.norm(post, "post", "post_eps"))
        steps.step(resolved("specchat.engine.cpu.layers.experts:ADDRESS"), steps.mixture)
        steps.mixture = None
    elif waiting and waiting.out == op.source and post is None:
        steps.product = None
        fields = {"matrix": steps.arrays.products[waiting.matrix], "source": steps.places[waiting.source.name]}
        steps.step(passes.ADD_PRODUCT, Structure(records.ADD, factor=factor, **fields))
    else:
        fields = {"source": steps.read(op.source), **steps.norm(post, "post")}
        steps.step(passes.ADD, Structure(records.ADD, factor=factor, **fields))


def scale(steps: StepList, op: Scale) -> None:
    vector = steps.arrays.vectors[op.vector]
    if vector[0] != 1:
        steps.step(passes.SCALE, vector.ctypes.data)


def head(matrix: int, weight: Floats, logits: Floats, op: Head) -> Structure:
    """The record of the head, for `logits` float32 [rows, width of the head]."""
    # A factor on the logits equals a factor on the inputs of the head.
    padded = pad_norm(weight * np.float32(op.scale), op.norm.size)
    fields = {"logits": logits, "logits_row": logits.shape[1], "cap": op.cap, **centre_fields(op.norm, padded)}
    return Structure(records.HEAD, matrix=matrix, **fields, **norm_fields(op.norm, padded, "norm"))


CPU = OpTable(
    "the compiled pass",
    *(embed, make_inputs, normalise, multiply, gated_product, expand, attend),
    *(convolve, advance, mix, gate_input, add, scale, head),
    elsewhere=("latent",),
)
"""Latents are another operation's."""
