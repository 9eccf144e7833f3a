"""The quick part of the checks, once for each card, driver and version: how it ended is remembered."""

import logging
from collections.abc import Callable

import torch

from specchat.engine.device.compile import compile_all, rehearsed
from specchat.engine.device.graphs import current
from specchat.engine.gpu_checks import card, quick
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.gpu_failure import first_line, is_gpu_failure
from specchat.engine.model.gpu import CHOSEN
from specchat.engine.out_of_memory import ran_out


def wrong(notify: Callable[[str], None]) -> str:
    """What is wrong with the kernels on this GPU, as a clause; "" where nothing is.

    Raises:
        Exception: an error after which this process can use the GPU no more.
    """
    record = card.record()
    known = record.wrong("kernels")
    if known is not None:
        # In a reply, perhaps: no check need have failed.
        return known and f"the GPU failed before ({known})"
    notify("checking the kernels")
    notes = Notes()
    try:
        with current(CHOSEN.device), torch.no_grad():
            _compile_ahead(notify)
            record.begin("kernels")
            quick.quick(notes)
            torch.cuda.synchronize()
    except Exception as error:
        if is_gpu_failure(error):
            raise
        record.forget("kernels")
        logging.getLogger(__name__).warning("the GPU could not be checked", exc_info=True)
        # Memory that ran out says nothing of kernels, and is told by what is loaded next.
        return "" if ran_out(error) else _failed(first_line(error))
    words = notes.wrong[0] if notes.wrong else ""
    record.keep("kernels", words)
    return words and _failed(words)


def _failed(words: str) -> str:
    return f"the GPU failed its checks ({words})"


def _compile_ahead(notify: Callable[[str], None]) -> None:
    """Compile at a time what the quick part launches; without, each kernel would be compiled at its first launch."""
    try:
        compile_all(rehearsed(lambda: quick.kernels(Notes())), notify)
    except Exception:
        logging.getLogger(__name__).warning("kernels will be compiled one after the other", exc_info=True)
