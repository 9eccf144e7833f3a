"""A mixture of experts against float64, and the bits of its rows alone against those in larger passes."""

from typing import NamedTuple

import torch
from torch import Tensor

from specchat.engine.device.head_experts import mixed
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Joined, Weight
from specchat.engine.formats.quantise import dequantised
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.references import reference_gate_mul, reference_route
from specchat.engine.gpu_checks.rows import COMPANY, compare
from specchat.engine.hardware.page_locked import values_in_main
from specchat.engine.kernels.pairs import allocated
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.kernels.route import Rule, route
from specchat.engine.kernels.stored import parts_of
from specchat.engine.protocol.pair import QUANTS, Quant

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


def values(notes: Notes, quant: Quant | str | None, rows: int = 17) -> None:
    """A mixture in one format or type of GGUF against float64."""
    weights, x = weights_of(quant), place.random(rows, HIDDEN, seed=41, dtype=place.dtype())
    made, width = run(weights, x), weights.down.shape[1]
    scores = x.double() @ weights.router.double().T
    shares, chosen = reference_route(scores, RULE, TOP)
    # Parts of unlike storage have the rows of all experts each.
    parts = [dequantised(part, torch.float32).double() for part in parts_of(weights.gate_up)]
    of_gates = torch.cat([part.view(COUNT, -1, HIDDEN) for part in parts], 1)
    of_down = dequantised(weights.down, torch.float32).double().view(COUNT, HIDDEN, width)
    act = reference_gate_mul(torch.einsum("ri,rkoi->rko", x.double(), of_gates[chosen])[None], "silu")
    truth = torch.einsum("rk,rko->ro", shares, torch.einsum("rki,rkoi->rko", act, of_down[chosen]))
    error = place.largest((made.double() - truth) / (1 + truth.abs()))
    notes.within(f"experts {quant or 'dense'}", error, place.ROUNDING[place.dtype()], rows=rows)


def alone(notes: Notes, quant: Quant | str | None, company: tuple[int, ...] = COMPANY) -> None:
    """Rows of a mixture in one format or type of GGUF."""
    weights, x = weights_of(quant), place.random(max(company), HIDDEN, seed=42, dtype=place.dtype())
    compare(notes, f"experts {quant or 'dense'}", lambda first, rows: run(weights, x[first : first + rows]), company)


def in_main(notes: Notes, quant: Quant | str | None, rows: int = 17) -> None:
    """Bits of a mixture in one format or type of GGUF whose values lie in main memory."""
    weights, x = weights_of(quant), place.random(rows, HIDDEN, seed=44, dtype=place.dtype())
    moved = (values_in_main(one, x.device) for one in (weights.gate_up, weights.down))
    same = torch.equal(run(Mixture(weights.router, *moved), x), run(weights, x))
    what = f"experts {quant or 'dense'} in main memory"
    notes.row(what=what, rows=rows, same=same)
    notes.expect(same, f"{what}: other bits than on the GPU")


def weights_of(quant: Quant | str | None) -> Mixture:
    """A random mixture in a format, or of a type of GGUF or two, "GATES and UPS"."""
    router = place.random(COUNT, HIDDEN, seed=43).div(HIDDEN**0.5).to(place.dtype())
    kinds = (quant or "").split(" and ")
    width = HIDDEN if kinds[0] in TYPES else WIDTH
    if len(kinds) == 1:
        gates = place.weight_of(quant, COUNT * 2 * width, HIDDEN)
        return Mixture(router, gates, place.weight_of(quant, COUNT * HIDDEN, width))
    parts = tuple(in_words(place.blocks_of(kind, COUNT * width, HIDDEN)) for kind in kinds)
    return Mixture(router, Joined(parts), place.weight_of(kinds[0], COUNT * HIDDEN, width))


def run(weights: Mixture, x: Tensor) -> Tensor:
    """The mixture's output for each row of x by the kernels: float32 [rows, HIDDEN]."""
    x, pairs = x.contiguous(), allocated(COUNT, TOP, x.device)
    scores = torch.empty(splits(weights.router), len(x), COUNT, device=x.device)
    multiply(x, weights.router, None, scores, len(x))
    route(scores, RULE, pairs, len(x), None)
    return mixed(x, pairs, weights.gate_up, weights.down, "silu")
