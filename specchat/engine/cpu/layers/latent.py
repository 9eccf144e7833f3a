"""Latent attention in the compiled pass: latents are normed in place, and rows of heads made of their products."""

from typing import Any

import numpy as np

from specchat.engine.cpu.layers.routing import put_number
from specchat.engine.cpu.primitives.atomics import code_address
from specchat.engine.cpu.primitives.records import OPERATION, latent_at
from specchat.engine.cpu.primitives.rowwise import copy_vector, entry, fill, norm
from specchat.engine.cpu.primitives.simd import by_address, inner
from specchat.engine.cpu.products.shared import barrier


@by_address(OPERATION)
def norm_latents(run: Any, own: int) -> None:
    """Norm the latents of queries, if any, and of keys and values by a LATENT; threads meet at a barrier."""
    of = latent_at(own)
    for r in range(run.thread, run.rows, run.threads):
        row = run.wide + 4 * r * run.wide_row
        if of.query_norm:
            query = row + 4 * of.query_latent
            norm(query, of.query_norm, query, of.query_rank, of.query_eps)
        latent = row + 4 * of.latent
        norm(latent, of.norm, latent, of.rank, of.eps)
    barrier(run)


@inner
def _turnable(x: int, interleaved: int, size: int, out: int) -> None:
    """out = x, values to rotate, of neighbours' pairs the first of all, then the second; float32 [size]."""
    if not interleaved:
        copy_vector(x, out, size)
        return
    half = size // 2
    for i in range(half):
        put_number(out, i, entry(x, 2 * i))
        put_number(out, half + i, entry(x, 2 * i + 1))


@by_address(OPERATION)
def expand(run: Any, own: int) -> None:
    """Begin rows of `wide` with queries, keys and values of all heads by a LATENT; threads meet at a barrier."""
    of = latent_at(own)
    heads, plain, turned, value_dim = of.heads, of.plain, of.turned, of.value_dim
    size = plain + turned
    for r in range(run.thread, run.rows, run.threads):
        row = run.wide + 4 * r * run.wide_row
        shared = row + 4 * (of.latent + of.rank)
        for head in range(heads):
            query, out = row + 4 * (of.queries + head * size), row + 4 * head * size
            _turnable(query + 4 * plain, of.interleaved, turned, out)
            copy_vector(query, out + 4 * turned, plain)
            out += 4 * heads * size
            _turnable(shared, of.interleaved, turned, out)
            copy_vector(row + 4 * (of.keys + head * plain), out + 4 * turned, plain)
            out += 4 * heads * size
            copy_vector(row + 4 * (of.values + head * value_dim), out, value_dim)
            fill(out, value_dim, size, np.float32(0.0))
    barrier(run)


NORM, EXPAND = code_address(norm_latents), code_address(expand)
"""Addresses of the functions."""
