"""Bits of a row alone against the same row in larger passes, and of a tree's node against the end of a chain."""

from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
from torch import Tensor

from specchat.engine.formats.layout import Joined, Weight
from specchat.engine.gpu_checks import layers, place
from specchat.engine.gpu_checks.attention import WINDOW, attended, run_attention, sinks_and_gates
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.kernels.activation import Activation, Curve, gate_mul
from specchat.engine.kernels.attention import Scoring
from specchat.engine.kernels.norm import OtherNorm, ResidualUpdate, add_rms_norm
from specchat.engine.kernels.processors import as_with, processors
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.protocol.pair import QUANTS, Quant

COMPANY = (2, 8, 16, 17, 33, 64)
"""Numbers of rows in a pass, on both sides of the tile boundaries."""
IN_GROUPS = (*COMPANY, 150)
"""The same, and a prompt's pass, whose rows make three groups in a product."""
PLACES = (0, 1, 7, 15, 16, 32, 63, 64, 149)
"""Rows computed alone."""
STARTS = (0, 200, 250, 300)
"""KV entries before a tree: its nodes lie before, across and after a boundary of attention's splits."""


Run = Callable[[int, int], Tensor]
"""(first row, rows) -> result of a pass over these rows, row by row."""


def alone(notes: Notes) -> None:
    """A row's bits alone against those in passes of COMPANY, in every kernel that sums along a row."""
    for quant in (None, *QUANTS, "int4"):
        products(notes, quant)
    chains(notes)
    chains(notes, window=WINDOW)
    gated(notes)
    norms(notes)
    for what in layers.LAYERS:
        layers.company(notes, what)


def products(notes: Notes, quant: Quant | str | None, company: tuple[int, ...] = IN_GROUPS) -> None:
    """Rows of x @ weight^T in one format or type of GGUF, by two programs a multiprocessor, or a wide one of few rows.

    The interpreter computes as one multiprocessor.
    """
    with as_with(1):
        weight = place.weight_of(quant, 128 * processors(place.device()), 256)
        multiplied(notes, f"product {quant or 'dense'}", weight, company)


def multiplied(notes: Notes, what: str, weight: Weight, company: tuple[int, ...] = COMPANY) -> None:
    """Rows of x @ weight^T, and of gates where that is one launch."""
    outputs, inputs = weight.shape
    x = place.random(max(company), inputs, seed=21, dtype=place.dtype())

    def run(first: int, rows: int) -> Tensor:
        out = torch.empty(splits(weight), rows, outputs, device=x.device)
        multiply(x[first : first + rows].contiguous(), weight, None, out, rows)
        return out.transpose(0, 1)

    def run_gated(first: int, rows: int) -> Tensor:
        out = torch.empty(rows, outputs // 2, device=x.device, dtype=x.dtype)
        multiply(x[first : first + rows].contiguous(), weight, None, out, rows, activation="silu")
        return out

    compare(notes, what, run, company)
    if not isinstance(weight, Joined):
        compare(notes, f"{what} with silu", run_gated, company)


def chains(notes: Notes, company: tuple[int, ...] = IN_GROUPS, window: int = 0) -> None:
    """Rows of attention, each over the same KV entries."""
    query, keys, values = attended(max(company), 250, 4, 2, 64, window)

    def run(first: int, rows: int) -> Tensor:
        return run_attention(query[first : first + rows], keys, values, 250 + first, None, Scoring(window=window))

    compare(notes, "attention in a window" if window else "attention", run, company)


def gated(notes: Notes, company: tuple[int, ...] = COMPANY) -> None:
    """Rows of attention with sinks and gates."""
    query, keys, values = attended(max(company), 250, 4, 2, 64)
    of = sinks_and_gates(max(company), 4, 64)
    gates = of.gates
    assert gates is not None

    def run(first: int, rows: int) -> Tensor:
        own = of._replace(gates=gates[:, first : first + rows].contiguous())
        return run_attention(query[first : first + rows], keys, values, 250 + first, None, own)

    compare(notes, "attention with sinks and gates", run, company)


def norms(notes: Notes) -> None:
    """Rows of norm and activation."""
    hidden, dtype = 1100, place.dtype()
    residual, partials = place.random(64, hidden, seed=22), place.random(3, 64, hidden, seed=23)
    weight = place.random(hidden, seed=24)

    def norm(first: int, rows: int) -> Tensor:
        state, out = residual[first:].clone(), torch.empty(rows, hidden, device=residual.device, dtype=dtype)
        add_rms_norm(ResidualUpdate(state), partials[:, first:].contiguous(), OtherNorm(weight, 1e-5, out), rows)
        return out

    def gated(activation: Activation, first: int, rows: int) -> Tensor:
        out = torch.empty(rows, hidden // 2, device=residual.device, dtype=dtype)
        curve = Curve(*weight[:4]) if activation == "xielu" else None
        gate_mul(partials[:, first:].contiguous(), out, rows, None, activation, curve)
        return out

    compare(notes, "norm", norm)
    for activation in get_args(Activation):
        compare(notes, f"activation {activation}", partial(gated, activation))


def compare(notes: Notes, what: str, run: Run, company: tuple[int, ...] = COMPANY) -> None:
    """Expect rows of larger passes to equal, bit for bit, those rows alone."""
    single = {row: run(row, 1)[0] for row in PLACES if row < max(company)}
    for rows in company:
        made = run(0, rows)
        unlike = [row for row, bits in single.items() if row < rows and not torch.equal(made[row], bits)]
        notes.row(what=what, rows=rows, unlike=unlike)
        notes.expect(not unlike, f"{what}: rows {unlike} of {rows} differ from those rows alone")


def trees(notes: Notes) -> None:
    """A tree's nodes in attention, over the whole text and in a window, in recurrent layers and short convolutions."""
    for window in (0, WINDOW):
        nodes(notes, STARTS, window)
    for what in layers.LAYERS:
        layers.nodes(notes, what)


def nodes(notes: Notes, starts: tuple[int, ...], window: int = 0) -> None:
    """Attention of a tree's nodes against the ends of chains of the same KV entries."""
    paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4], [0, 1, 3, 5]]
    masks = [sum(1 << node for node in path) for path in paths]
    for start in starts:
        query, keys, values = attended(len(paths), start, 4, 2, 64, window)
        made = run_attention(query, keys, values, start, masks, Scoring(window=window))
        unlike = []
        for node, path in enumerate(paths):
            slots, chain = [start + other for other in path], [start + depth for depth in range(len(path))]
            k, v = keys.clone(), values.clone()
            k[:, chain], v[:, chain] = keys[:, slots], values[:, slots]
            one = run_attention(query[node : node + 1], k, v, start + len(path) - 1, None, Scoring(window=window))
            if not torch.equal(one[0], made[node]):
                unlike.append(node)
        notes.row(what="tree", start=start, window=window, unlike=unlike)
        notes.expect(not unlike, f"tree after {start} entries: nodes {unlike} differ from the ends of their chains")
