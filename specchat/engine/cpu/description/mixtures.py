"""Mixtures of experts described to the compiled pass."""

import numpy as np

from specchat.engine.cpu.description.steps import StepList
from specchat.engine.cpu.primitives.records import MIXTURE, Structure
from specchat.engine.cpu.primitives.rowwise import CODES
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.program.ops import Mix
from specchat.engine.recipe import Activation, Apart, Gated, Matrix


def mix(
    steps: StepList,
    op: Mix,
    *,
    activation: Activation,
    ungated: bool,
    sigmoid: bool,
    correction: str,
    groups: tuple[int, int],
    factor: float,
    factors: str,
    shared: Gated | None,
    shared_gate: Matrix | None,
    apart: Apart | None,
) -> None:
    """The mixture waits for its addition, which is its last part. It applies norms apart itself."""
    of, arrays = op.of, steps.arrays
    if apart:
        steps.norms = {op.source.name: (None, steps.half)}
    steps.read(op.source)
    shares = arrays.vectors[factors] if factors else None
    if factor != 1:
        shares = (np.ones(of.count, np.float32) if shares is None else shares) * np.float32(factor)
    buffers = dict(arrays.mixtures)
    wide = buffers.pop("wide")
    # Without norms of its own the shared MLP adds to the same sums.
    rows = wide if apart else [wide[0]] * 2
    record = Structure(
        MIXTURE,
        products=arrays.products[of.router],
        activation=CODES[activation, ungated],
        count=of.count,
        top=of.top,
        renormalised=of.renormalised,
        sigmoid=sigmoid,
        groups=groups[0],
        kept_groups=groups[1],
        shared_row=2 * LANES * panels_for(shared.width) if shared else 0,
        shared_gate=shared_gate is not None,
        order_row=buffers["order"].shape[1],
        correction=arrays.vectors[correction] if correction else None,
        factors=shares,
        **buffers,
        **dict(zip(("sums", "shared_sums", "inputs", "shared_inputs"), rows, strict=False)),
    )
    if apart:
        names = ("router_norm", "pre_experts", "post_experts", "pre_shared", "post_shared")
        record.set(**{name: arrays.norms[norm] for name, norm in zip(names, apart.all, strict=True)})
        record.set(**steps.norm(apart.router, "router_norm"))
    steps.mixture = record
