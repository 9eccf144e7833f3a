"""Triton's interpreter with what it lacks of a GPU (`specchat.engine.kernels.interpreter`), and quick enough for tests.

It spends two thirds of its time on what nobody uses: it exchanges Triton's language for its own and back at every
call, and looks for overflows that it then does not tell.
"""

import functools
from dataclasses import replace
from types import FunctionType

import torch

from specchat.engine.kernels import interpreter as lacking
from tests.kernels.operands import quicken
from tests.kernels.shapes_once import remember

rows_alone = lacking.rows_alone


class Stays:
    """The scope of an exchange that is not undone."""

    def restore(self) -> None:
        pass


@functools.cache
def complete() -> None:
    """Complete this process's interpreter and save it that time; on a GPU nothing is interpreted."""
    if torch.cuda.is_available():
        return
    from triton.runtime import interpreter

    from tests.kernels.recording import EXCHANGED
    from tests.kernels.traces import counted, untouched

    exchange = interpreter._patch_lang

    @functools.cache
    def exchange_once(kernel: FunctionType) -> Stays:
        exchange(kernel)
        kernel.__globals__["range"] = counted
        EXCHANGED.append(kernel)
        return Stays()

    lacking.complete()
    interpreter._patch_lang = exchange_once
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    remember()
    quicken()
    untouched()
