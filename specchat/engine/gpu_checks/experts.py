"""A mixture of experts against float64, and the bits of its rows alone against those in larger passes."""

from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.page_locked import values_in_main
from specchat.engine.formats import Weight
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.kernels import ROUNDING, weight_of
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.rows import COMPANY, compare
from specchat.engine.gpu_shapes import PASS_ROWS
from specchat.engine.kernels import expert_products
from specchat.engine.kernels.activation import gate_mul, reference_gate_mul
from specchat.engine.kernels.mix import MixtureOutput, add_mixture
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.kernels.route import Rule, allocated, reference_route, route
from specchat.engine.model.quantise import dequantised
from specchat.engine.pair import QUANTS, Quant

COUNT, TOP, HIDDEN, WIDTH = 6, 2, 256, 128
RULE = Rule(renormalised=True, sigmoid=False, groups=(1, 1), factor=1.0)


class Mixture(NamedTuple):
    """Weights of a router, of gates and values, and of what follows them."""

    router: Tensor
    gate_up: Weight
    down: Weight


def experts(notes: Notes) -> None:
    """Mixtures in every format, with their values on the device and in main memory."""
    # The interpreter takes seconds a pass.
    company = COMPANY if place.on_gpu() else COMPANY[::3]
    for quant in (None, *QUANTS):
        values(notes, quant)
        alone(notes, quant, company)
        in_main(notes, quant)


def values(notes: Notes, quant: Quant | None, rows: int = 17) -> None:
    """A mixture in one format against float64."""
    weights, x = _weights(quant), place.random(rows, HIDDEN, seed=41, dtype=place.dtype())
    made = run(weights, x)
    scores = x.double() @ weights.router.double().T
    shares, chosen = reference_route(scores, RULE, TOP)
    of_gates = dequantised(weights.gate_up, torch.float32).double().view(COUNT, 2 * WIDTH, HIDDEN)
    of_down = dequantised(weights.down, torch.float32).double().view(COUNT, HIDDEN, WIDTH)
    act = reference_gate_mul(torch.einsum("ri,rkoi->rko", x.double(), of_gates[chosen])[None], "silu")
    truth = torch.einsum("rk,rko->ro", shares, torch.einsum("rki,rkoi->rko", act, of_down[chosen]))
    error = place.largest((made.double() - truth) / (1 + truth.abs()))
    notes.within(f"experts {quant or 'dense'}", error, ROUNDING[place.dtype()], rows=rows)


def alone(notes: Notes, quant: Quant | None, company: tuple[int, ...] = COMPANY) -> None:
    """Rows of a mixture in one format."""
    weights, x = _weights(quant), place.random(max(company), HIDDEN, seed=42, dtype=place.dtype())
    compare(notes, f"experts {quant or 'dense'}", lambda first, rows: run(weights, x[first : first + rows]), company)


def in_main(notes: Notes, quant: Quant | None, rows: int = 17) -> None:
    """Bits of a mixture in one format whose values lie in main memory."""
    weights, x = _weights(quant), place.random(rows, HIDDEN, seed=44, dtype=place.dtype())
    moved = (values_in_main(one, x.device) for one in (weights.gate_up, weights.down))
    same = torch.equal(run(Mixture(weights.router, *moved), x), run(weights, x))
    what = f"experts {quant or 'dense'} in main memory"
    notes.row(what=what, rows=rows, same=same)
    notes.expect(same, f"{what}: other bits than on the GPU")


def _weights(quant: Quant | None) -> Mixture:
    router = place.random(COUNT, HIDDEN, seed=43).div(HIDDEN**0.5).to(place.dtype())
    return Mixture(router, weight_of(quant, COUNT * 2 * WIDTH, HIDDEN), weight_of(quant, COUNT * HIDDEN, WIDTH))


def run(weights: Mixture, x: Tensor) -> Tensor:
    """The mixture's output for each row of x by the kernels: float32 [rows, HIDDEN]."""
    rows, many, device = len(x), PASS_ROWS * TOP, x.device
    x, pairs = x.contiguous(), allocated(COUNT, TOP, device)
    scores = torch.empty(splits(weights.router), rows, COUNT, device=device)
    multiply(x, weights.router, None, scores, rows)
    route(scores, RULE, pairs, rows, None)
    act = torch.empty(many, WIDTH, device=device, dtype=x.dtype)
    among = COUNT, TOP, device
    if expert_products.activates(weights.gate_up, *among):
        expert_products.multiply(x, weights.gate_up, None, act, pairs, rows, True, activation="silu")
    else:
        parts = expert_products.splits(weights.gate_up, *among)
        sums = torch.empty(parts, many, 2 * WIDTH, device=device)
        expert_products.multiply(x, weights.gate_up, None, sums, pairs, rows, True)
        gate_mul(sums, act, rows * TOP, None)
    made = torch.empty(expert_products.splits(weights.down, *among), many, HIDDEN, device=device)
    expert_products.multiply(act, weights.down, None, made, pairs, rows, False)
    out = torch.zeros(rows, HIDDEN, device=device)
    add_mixture(out, MixtureOutput(made, pairs), None, 0.0, torch.empty_like(out), rows, None)
    return out
