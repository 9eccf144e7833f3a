"""Mixers described to the compiled pass: attention, short convolutions and recurrent states."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.engine.cpu.description.steps import Floats, StepList
from specchat.engine.cpu.layers import attention
from specchat.engine.cpu.padding import padded_eps
from specchat.engine.cpu.primitives.records import ATTENTION, DELTA, LATENT, SHORT_CONV, Structure
from specchat.engine.memory.state_need import SLOTS, gates_width, pieces, width
from specchat.engine.memory.vectors import LANES, head_size, latent_places, panels_for
from specchat.engine.model.rope import tempers
from specchat.engine.program.ops import Advance, Attend, Convolve, Expand
from specchat.engine.recipe import LENGTH_EPS, Delta
from specchat.engine.strategy import resolved


def attend(steps: StepList, op: Attend) -> None:
    """Results replace the queries."""
    of, arrays = op.of, steps.arrays
    steps.places[op.out.name] = steps.read(op.source)
    keys, values = arrays.cache[steps.layer]
    cos, sin = arrays.rotations[steps.layer]
    (kv_heads, capacity, row), factors = keys.shape, tempers(of, len(cos)) if of.temper[0] else None
    size = head_size(of) if of.int8_cache else row
    whole = any(one and one.size > of.head_dim for one in (of.query_norm, of.key_norm))
    kind = "late_" if of.late_norms else "whole_" if whole else ""
    norms = {f"{kind}query_norm": of.query_norm, f"{kind}key_norm": of.key_norm, "value_norm": of.value_norm}
    eps = next((one.eps for one in norms.values() if one), 0.0)
    record = Structure(
        ATTENTION,
        heads=of.heads,
        kv_heads=kv_heads,
        size=size,
        capacity=capacity,
        entry=keys.strides[1],
        block=replace(of, head_dim=size).block,
        keys=keys,
        values=values,
        cos=cos,
        sin=sin,
        turned=cos.shape[1],
        window=of.window,
        mutual=of.mutual,
        gated=of.gated,
        shared=of.share is not None,
        value_dim=of.value_dim or 0,
        temper=None if factors is None else factors.numpy(),
        sinks=arrays.vectors[of.sinks] if of.sinks else None,
        eps=padded_eps(eps, of.head_dim, size),
        scale=of.scale,
        score_cap=of.score_cap,
        **{name: arrays.norms[one] for name, one in norms.items() if one},
    )
    steps.mixers.append(record)
    steps.step(attention.ADDRESS, record)


def expand(steps: StepList, op: Expand) -> None:
    """Heads begin a row; the first product and those of latents follow them."""
    of, attention = op.of, op.attention
    first, queries, keys, values, _ = latent_places(attention)
    steps.flush(first)
    size, turned = attention.head_dim, attention.rotary_dim
    query_rank = of.query.inputs if of.query else 0
    latent = first + (query_rank or attention.heads * size)
    norms = steps.norm(of.key_value_norm, "norm") | steps.norm(of.query_norm, "query_norm", "query_eps")
    record = Structure(
        LATENT,
        heads=attention.heads,
        plain=size - turned,
        turned=turned,
        value_dim=attention.value_dim or size,
        rank=of.key_value.inputs,
        query_rank=query_rank,
        query_latent=first,
        latent=latent,
        queries=queries if of.query else first,
        keys=keys,
        values=values,
        interleaved=of.interleaved,
        **norms,
    )
    steps.step(resolved("specchat.engine.cpu.layers.latent:NORM"), record)
    if of.query:
        steps.multiply(of.query, first, queries, meets=False)
    steps.multiply(of.key_value, latent, keys)
    steps.step(resolved("specchat.engine.cpu.layers.latent:EXPAND"), record)
    steps.places[op.out.name] = 0


def convolve(steps: StepList, op: Convolve) -> None:
    """Results replace C."""
    of, arrays = op.of, steps.arrays
    steps.places[op.out.name] = steps.read(op.source) + 2 * of.head_dim
    keys, values = arrays.cache[steps.layer]
    weights = _floats(arrays.vectors[of.convolution][:, 0].T)
    record = Structure(SHORT_CONV, taps=of.taps, half=of.head_dim, weights=weights, keys=keys, values=values)
    steps.mixers.append(record)
    steps.step(resolved("specchat.engine.cpu.layers.short_conv:ADDRESS"), record)


def advance(steps: StepList, op: Advance) -> None:
    """Results replace z. Threads multiply the gates as they begin, if there are some, and meet after that."""
    of, arrays, log = op.of, steps.arrays, steps.arrays.logs[steps.layer]
    selective = of.selective
    assert log is not None
    if of.gates:
        steps.product = None
    first, of_z = of.begins
    at = steps.read(op.source) if selective else steps.places[op.source.name]
    steps.places[op.out.name] = at + of_z
    count, vectors, after = pieces(of), arrays.vectors, LANES * panels_for(sum(of.mix.outputs))
    query, key, value = (at + first + span for span, _ in of.spans)
    rates, shifts = (
        _floats(np.pad(values, (0, -of.value_heads % LANES)))
        for values in (np.exp(vectors[of.decay]), vectors[of.shift])
    )
    if selective:
        bias = _by_piece(of, vectors[selective.conv_bias][None]) if selective.conv_bias else None
        kind = {"writes": at + first + of.channels, "decays": after, "bias": bias}
        kind |= {"skip": vectors[selective.skip], "norm": vectors[selective.weight]}
    else:
        of_keys = np.full(of.key_dim, of.key_dim**-0.5, np.float32)
        kind = {"writes": after, "decays": after + gates_width(of) // 2, "norm": arrays.norms[of.norm]}
        kind |= {"query_length": _floats(of_keys * of.key_dim**-0.5), "key_length": of_keys}
    record = Structure(
        DELTA,
        pieces=count,
        parts=count // of.key_heads,
        sharing=of.value_heads // count,
        key_dim=of.key_dim,
        value_dim=of.value_dim,
        taps=of.taps,
        query=query,
        key=key,
        value=value,
        z=at + of_z,
        convolved=after + gates_width(of),
        gates=arrays.products[of.gates] if of.gates else None,
        states=log.states.numpy(),
        entries=log.entries.numpy(),
        entry=width(of),
        held=SLOTS,
        positions=log.positions,
        weights=_by_piece(of, vectors[of.convolution][:, 0].T),
        rates=rates,
        shifts=shifts,
        length_eps=LENGTH_EPS / of.key_dim,
        eps=of.norm.eps,
        **kind,
    )
    steps.mixers.append(record)
    steps.step(resolved("specchat.engine.cpu.layers.delta:ADDRESS"), record)


def _by_piece(of: Delta, channels: NDArray[Any]) -> Floats:
    """Numbers [any, channels] by the pieces that read them, [pieces, any, inputs of a piece]."""
    count = pieces(of)
    query, key, value = (channels[:, first : first + size] for first, size in of.spans)
    query, key = (
        np.repeat(kind.reshape(len(kind), of.key_heads, -1), count // of.key_heads, 1) for kind in (query, key)
    )
    return _floats(np.concatenate([query, key, value.reshape(len(value), count, -1)], 2).transpose(1, 0, 2))


def _floats(values: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(values, np.float32)
