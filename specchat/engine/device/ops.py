"""The operations of a pass as launches of kernels."""

from torch import Tensor

from specchat.engine.device.attention import turn
from specchat.engine.device.launches import Launches
from specchat.engine.device.mixture import gated_mlp, mix
from specchat.engine.kernels import ahead
from specchat.engine.kernels.activation import Curve
from specchat.engine.kernels.attention import Scoring
from specchat.engine.kernels.attention import attend as attend_rows
from specchat.engine.kernels.embed import embed as embed_rows
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.latent import expand as expand_heads
from specchat.engine.kernels.latent import norm_latent
from specchat.engine.kernels.layer_inputs import gate_input as gate_rows
from specchat.engine.kernels.layer_inputs import make_inputs
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.rope import NormOf, RopeNorms, RopeRows, rope_and_write
from specchat.engine.kernels.short_conv import short_conv
from specchat.engine.program.ops import (
    Add,
    Advance,
    Attend,
    Convolve,
    Embed,
    Expand,
    GatedProduct,
    GateInput,
    Head,
    MakeInputs,
    Multiply,
    Normalise,
    Scale,
)
from specchat.engine.program.table import OpTable
from specchat.engine.recipe import Norm

LAUNCHES = 3
"""From a layer's first product to its last one: rotation, attention, and its combination."""


def embed(run: Launches, tokens: Tensor, op: Embed) -> None:
    table, buffers = run.model.weights.embed, run.model.buffers
    pictures = None if buffers.pictures is None else buffers.pictures[0]
    embed_rows(tokens, table, buffers.residual, run.at.rows, op.scale, op.eps, buffers.x.dtype, pictures)


def token_inputs(run: Launches, tokens: Tensor, op: MakeInputs) -> None:
    model, of, rows = run.model, op.of, run.at.rows
    sums, inputs = (model.buffers.before[name] for name in ("projected inputs", "token inputs"))
    assert model.weights.rows is not None
    run.normalise(None, model.buffers.x)
    run.flush()
    run.multiply(of.project, model.buffers.x, sums)
    make_inputs(tokens, model.weights.rows, sums, model.weights.norms[of.norm], of.norm.eps, of.scale, inputs, rows)


def normalise(run: Launches, op: Normalise) -> None:
    run.normalise(op.norm, run.views[op.out.name])


def product(run: Launches, op: Multiply) -> None:
    run.flush(run.model.weights.products[op.matrix].weight)
    run.multiply(op.matrix, run.views[op.source.name], run.views[op.out.name])


def gated_product(run: Launches, op: GatedProduct) -> None:
    of, weights = op.of, run.model.weights
    run.flush(weights.products[of.gate_up].weight)
    curve = Curve(*(weights.vectors[name] for name in of.curve)) if of.curve else None
    gated_mlp(run, of.gate_up, run.views[op.source.name], run.views[op.out.name], of.activation, curve)


def expand(run: Launches, op: Expand) -> None:
    of, rows, views = op.of, run.at.rows, run.views
    first = views[op.source.name]
    rank, rotated = of.key_value.inputs, op.attention.rotary_dim
    queries, latent, shared = first.split([first.shape[2] - rank - rotated, rank, rotated], -1)
    if of.query and of.query_norm:
        norm_latent(queries, _norm_of(run, of.query_norm), views["latent of queries"], rows, run.skip)
        queries = views["queries of latents"]
        run.multiply(of.query, views["latent of queries"], queries)
    norm_latent(latent, _norm_of(run, of.key_value_norm), views["latent of keys"], rows, run.skip)
    run.multiply(of.key_value, views["latent of keys"], views["parts of heads"])
    heads, out = op.attention.heads, views[op.out.name]
    expand_heads(queries, shared, views["parts of heads"], out, heads, rows, of.interleaved, run.skip)


def _norm_of(run: Launches, norm: Norm) -> NormOf:
    return run.model.weights.norms[norm], norm.eps


def attend(run: Launches, op: Attend) -> None:
    model, of = run.model, op.of
    query_norm, key_norm, value_norm = (
        None if one is None else _norm_of(run, one) for one in (of.query_norm, of.key_norm, of.value_norm)
    )
    norms = RopeNorms(query_norm, key_norm, value_norm, of.late_norms)
    prefetch = ahead.of_weight(model.weights.products[of.out].weight, LAUNCHES)
    for first, at, (caches, *_) in run.texts:
        scales = caches.scales[run.layer] if of.int8_cache else None
        entries = KvEntries(*caches.entries[run.layer if of.share is None else of.share], scales)
        projected = run.views[op.source.name][:, first:]
        query, out = (run.views[name][first:] for name in ("queries", op.out.name))
        turning = RopeRows(at.rows, at.start, at.offsets, run.skip, run.ends, caches.tempers.get(of.temper))
        rope_and_write(projected, norms, caches.turns[turn(of)], turning, query, entries, of.gated, prefetch)
        scoring = Scoring(
            of.scale,
            of.window if of.window < caches.context else 0,
            of.score_cap,
            model.weights.vectors[of.sinks] if of.sinks else None,
            projected if of.gated else None,
            caches.capacity,
        )
        places = RowPlaces(at.length, at.path, run.skip, run.ends, at.until if of.mutual else None)
        attend_rows(query, entries, places, model.buffers.attention, out, at.rows, scoring)


def convolve(run: Launches, op: Convolve) -> None:
    weights = run.model.weights.vectors[op.of.convolution]
    for first, at, (caches, *_) in run.texts:
        places, entries = RowPlaces(at.length, at.path, run.skip, run.ends), KvEntries(*caches.entries[run.layer])
        sums, out = run.views[op.source.name][:, first:], run.views[op.out.name][first:]
        short_conv(sums, weights, at.start, places, entries, out, at.rows, caches.capacity)


def advance(run: Launches, op: Advance) -> None:
    for first, at, (_, recurrent, _) in run.texts:
        assert recurrent is not None
        gates = run.views[op.gates.name][:, first:] if op.gates else None
        products, out = run.views[op.source.name][:, first:], run.views[op.out.name][first:]
        recurrent.advance(run.layer, op.of, products, gates, out, at, run.skip)


def gate_input(run: Launches, op: GateInput) -> None:
    model, rows = run.model, run.at.rows
    run.normalise(None, model.buffers.x)
    run.flush()
    sums = run.views["input gates"]
    run.multiply(op.of.gate, model.buffers.x, sums)
    inputs = model.buffers.before["token inputs"][:, run.layer]
    gate_rows(sums, inputs, run.views[op.out.name], rows, run.skip, op.activation)


def add(run: Launches, op: Add) -> None:
    name = op.source.name
    run.add(run.values[name] if name in run.values else run.views[name], op.post, op.factor)


def scale(run: Launches, op: Scale) -> None:
    run.scale(run.model.weights.vectors[op.vector])


def head(op: Head) -> tuple[float, float]:
    """Return the factor on the last norm, which only the head reads, and the cap on logits."""
    return op.scale, op.cap


GPU = OpTable(
    "the GPU kernels",
    *(embed, token_inputs, normalise, product, gated_product, expand, attend),
    *(convolve, advance, mix, gate_input, add, scale, head),
    elsewhere=("latent", "selective", "value_dim", "ungated"),
)
"""`Recurrent` reads the kind of states. Latents have an operation of their own. Widths of the output say how many
numbers a value has, and whether gates come before values."""
