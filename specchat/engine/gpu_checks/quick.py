"""Quick checks before the first load on a GPU: at most seconds, once kernels are compiled."""

import torch

from specchat.engine.device.graphs import Graphs
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.kernels import attend, product
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.rows import chains, nodes, products
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.pair import QUANTS

COMPANY = (2, 17, 64)


def quick(notes: Notes) -> None:
    """One product a format, attention of a chain and a tree, one row against several, captured against eager."""
    kernels(notes)
    captured(notes)


def kernels(notes: Notes) -> None:
    """Quick checks without captured graphs."""
    for quant in (None, *QUANTS):
        product(notes, quant)
        products(notes, quant, COMPANY)
    attend(notes)
    chains(notes, COMPANY)
    nodes(notes, (250,))


def captured(notes: Notes) -> None:
    """Check that a captured product uses its present input at each replay, bit for bit like an eager one."""
    device = place.device()
    weight = place.weight_of(None, 64, 256)
    x = place.random(8, 256, seed=31, dtype=place.dtype())
    eager, out = (torch.zeros(splits(weight), 8, 64, device=device) for _ in range(2))
    graphs = Graphs(device, [])
    for seed in (32, 33):
        x.copy_(place.random(8, 256, seed=seed, dtype=x.dtype))
        multiply(x, weight, None, eager, 8)
        graphs.run("product", lambda: multiply(x, weight, None, out, 8))
        right = torch.equal(eager, out)
        notes.row(what="captured product", captured=graphs.captured, right=right)
        notes.expect(right, "captured product: it is not the eager one")
