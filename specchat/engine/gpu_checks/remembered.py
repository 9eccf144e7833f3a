"""The quick checks, once for each GPU, driver and version, with a record of the result."""

import logging
from collections.abc import Callable

import torch

from specchat.engine.device.compile import compile_all, rehearsed
from specchat.engine.device.graphs import Graphs, current
from specchat.engine.gpu_checks import card, place
from specchat.engine.gpu_checks.attention import attend
from specchat.engine.gpu_checks.kernels import product
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_checks.rows import chains, nodes, products
from specchat.engine.hardware.gpu_failure import first_line, is_gpu_failure
from specchat.engine.hardware.out_of_memory import ran_out
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.protocol.pair import QUANTS

COMPANY = (2, 17, 64)
"""Numbers of rows whose products a row alone is compared with."""


def wrong(pair: str, device: torch.device, notify: Callable[[str], None]) -> str:
    """Fault of the kernels on a GPU, or with `pair` there, as a clause; "" where there is none.

    Raises:
        Exception: an error after which this process cannot use the GPU any more.
    """
    record = card.record(device)
    known = record.wrong("kernels", pair)
    if known is not None:
        # Perhaps in a reply, not in a check.
        return known and f"the GPU failed before ({known})"
    notify("checking the kernels")
    notes = Notes()
    try:
        with current(device), torch.no_grad():
            _compile_ahead(notify)
            record.begin("kernels")
            quick(notes)
            torch.cuda.synchronize()
    except Exception as error:
        if is_gpu_failure(error):
            raise
        record.drop("kernels")
        logging.getLogger(__name__).warning("the GPU could not be checked", exc_info=True)
        # Lack of memory is no fault of kernels; the load that follows reports it.
        return "" if ran_out(error) else _failed(first_line(error))
    words = notes.wrong[0] if notes.wrong else ""
    record.keep("kernels", words)
    return words and _failed(words)


def _failed(words: str) -> str:
    return f"the GPU failed its checks ({words})"


def _compile_ahead(notify: Callable[[str], None]) -> None:
    """Compile the kernels of the quick checks in parallel, before their first launches."""
    try:
        compile_all(rehearsed(lambda: kernels(Notes())), notify)
    except Exception:
        logging.getLogger(__name__).warning("kernels will be compiled one after the other", exc_info=True)


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
