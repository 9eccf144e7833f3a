"""The operations of a pass as launches of kernels."""

from torch import Tensor

from specchat.engine.device.attention import turn
from specchat.engine.device.launches import Launches
from specchat.engine.device.mixture import gated_mlp, mix
from specchat.engine.kernels import ahead
from specchat.engine.kernels.attention import attend as attend_rows
from specchat.engine.kernels.embed import embed as embed_rows
from specchat.engine.kernels.layer_inputs import gate_input as gate_rows
from specchat.engine.kernels.layer_inputs import make_inputs
from specchat.engine.kernels.products import multiply
from specchat.engine.kernels.rope import NormOf, rope_and_write
from specchat.engine.kernels.short_conv import short_conv
from specchat.engine.program.ops import (
    Add,
    Advance,
    Attend,
    Convolve,
    Embed,
    GatedProduct,
    GateInput,
    Head,
    MakeInputs,
    Mix,
    Multiply,
    Normalise,
    Scale,
)
from specchat.engine.program.table import OpTable
from specchat.engine.recipe import Activation, Norm

LAUNCHES = 3
"""From a layer's first product to its last one: rotation, attention, and its combination."""


def embed(run: Launches, tokens: Tensor, _: Embed, *, scale: float, eps: float | None) -> None:
    model = run.model
    embed_rows(tokens, model.weights.embed, model.buffers.residual, run.at.rows, scale, eps)


def token_inputs(run: Launches, tokens: Tensor, op: MakeInputs) -> None:
    model, of, rows = run.model, op.of, run.at.rows
    sums, inputs = (model.buffers.before[name] for name in ("projected inputs", "token inputs"))
    assert model.weights.rows is not None
    run.normalise(None, model.buffers.x)
    run.flush()
    multiply(model.buffers.x, *model.weights.products[of.project], sums, rows)
    make_inputs(tokens, model.weights.rows, sums, model.weights.norms[of.norm], of.norm.eps, of.scale, inputs, rows)


def normalise(run: Launches, op: Normalise) -> None:
    run.normalise(op.norm, run.views[op.out.name])


def product(run: Launches, op: Multiply) -> None:
    weight, bias = run.model.weights.products[op.matrix]
    run.flush(weight)
    multiply(run.views[op.source.name], weight, bias, run.views[op.out.name], run.at.rows, run.skip)


def gated_product(run: Launches, op: GatedProduct, *, activation: Activation) -> None:
    run.flush(run.model.weights.products[op.of.gate_up].weight)
    gated_mlp(run, op.of.gate_up, run.views[op.source.name], run.views[op.out.name], activation)


def attend(
    run: Launches,
    op: Attend,
    *,
    query_norm: Norm | None,
    key_norm: Norm | None,
    value_norm: Norm | None,
    temper: tuple[float, float],
    sinks: str,
    gated: bool,
    score_cap: float,
    window: int,
    share: int | None,
) -> None:
    model, at, of, views, caches = run.model, run.at, op.of, run.views, run.model.caches
    keys, values = caches.entries[run.layer if share is None else share]
    projected, query = views[op.source.name], views["queries"]

    def norm(one: Norm | None) -> NormOf | None:
        return None if one is None else (model.weights.norms[one], one.eps)

    cos, sin = caches.turns[turn(of)]
    rope_and_write(
        projected, norm(query_norm), norm(key_norm), cos, sin, at.start, at.offsets, query, keys, values, at.rows,
        run.skip, norm(value_norm), caches.tempers.get(temper), gated,
        ahead.of_weight(model.weights.products[of.out].weight, LAUNCHES),
    )  # fmt: skip
    attend_rows(
        query, keys, values, at.length, at.path, model.buffers.attention, views[op.out.name], at.rows, run.skip,
        of.scale, window if window < caches.context else 0, sinks=model.weights.vectors[sinks] if sinks else None,
        gates=projected if gated else None, positions=caches.capacity, cap=score_cap,
    )  # fmt: skip


def convolve(run: Launches, op: Convolve) -> None:
    model, at, views = run.model, run.at, run.views
    short_conv(
        views[op.source.name], model.weights.vectors[op.of.convolution], at.start, at.length, at.path,
        *model.caches.entries[run.layer], views[op.out.name], at.rows, run.skip, model.caches.capacity,
    )  # fmt: skip


def advance(run: Launches, op: Advance) -> None:
    assert run.model.recurrent is not None
    products, gates, out = (run.views[one.name] for one in (op.source, op.gates, op.out))
    run.model.recurrent.advance(run.layer, op.of, products, gates, out, run.at, run.skip)


def gate_input(run: Launches, op: GateInput) -> None:
    model, rows = run.model, run.at.rows
    run.normalise(None, model.buffers.x)
    run.flush()
    sums = run.views["input gates"]
    multiply(model.buffers.x, *model.weights.products[op.of.gate], sums, rows, run.skip)
    inputs = model.buffers.before["token inputs"][:, run.layer]
    gate_rows(sums, inputs, run.views[op.out.name], rows, run.skip, op.activation)


def add(run: Launches, op: Add, *, post: Norm | None, factor: float) -> None:
    name = op.source.name
    run.add(run.values[name] if name in run.values else run.views[name], post, factor)


def scale(run: Launches, op: Scale) -> None:
    run.scale(run.model.weights.vectors[op.vector])


def head(_: Head, *, scale: float, cap: float) -> tuple[float, float]:
    """Return the factor on the last norm, which only the head reads, and the cap on logits."""
    return scale, cap


GPU = OpTable(
    "the GPU kernels",
    {
        Embed: embed,
        MakeInputs: token_inputs,
        Normalise: normalise,
        Multiply: product,
        GatedProduct: gated_product,
        Attend: attend,
        Convolve: convolve,
        Advance: advance,
        Mix: mix,
        GateInput: gate_input,
        Add: add,
        Scale: scale,
        Head: head,
    },
)
