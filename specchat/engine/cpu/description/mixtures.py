"""Mixtures of experts described to the compiled pass."""

import numpy as np

from specchat.engine.cpu.description.steps import StepList
from specchat.engine.cpu.primitives.activations import CODES
from specchat.engine.cpu.primitives.records import MIXTURE, Structure
from specchat.engine.memory.vectors import LANES, panels_for
from specchat.engine.program.ops import Mix


def mix(steps: StepList, op: Mix) -> None:
    """The mixture waits for its addition, which is its last part. It applies norms apart itself."""
    of, arrays, apart = op.of, steps.arrays, op.of.apart
    if apart:
        steps.norms = {op.source.name: (None, steps.half)}
    steps.read(op.source)
    shares = arrays.vectors[of.factors] if of.factors else None
    if of.factor != 1:
        shares = (np.ones(of.count, np.float32) if shares is None else shares) * np.float32(of.factor)
    buffers = dict(arrays.mixtures)
    wide = buffers.pop("wide")
    # Without norms of its own the shared MLP adds to the same sums.
    rows = wide if apart else [wide[0]] * 2
    record = Structure(
        MIXTURE,
        products=arrays.products[of.router],
        activation=CODES[of.each.activation, of.each.ungated],
        count=of.count,
        top=of.top,
        renormalised=of.renormalised,
        sigmoid=of.sigmoid,
        groups=of.groups[0],
        kept_groups=of.groups[1],
        by_best=of.by_best,
        shared_row=2 * LANES * panels_for(of.shared.width) if of.shared else 0,
        shared_gate=of.shared_gate is not None,
        order_row=buffers["order"].shape[1],
        correction=arrays.vectors[of.correction] if of.correction else None,
        factors=shares,
        **buffers,
        **dict(zip(("sums", "shared_sums", "inputs", "shared_inputs"), rows, strict=False)),
    )
    if apart:
        names = ("router_norm", "pre_experts", "post_experts", "pre_shared", "post_shared")
        record.set(**{name: arrays.norms[norm] for name, norm in zip(names, apart.all, strict=True)})
        record.set(**steps.norm(apart.router, "router_norm"))
    steps.mixture = record
