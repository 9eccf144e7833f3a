"""Weight formats, a file each: how a checkpoint stores a matrix, and what memory holds of it.

A file is imported without torch, for plans do without; methods that take tensors import it.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from specchat.engine.formats.format import Format
from specchat.engine.formats.settings import Quantised
from specchat.engine.protocol.pair import Quant

TENSORS = ("bfloat16_rows", "fields", "gpu_blocks", "int8_rows", "layout", "quantise", "scale_tables", "words")
"""The modules of this package that import torch."""


@cache
def known() -> tuple[Format, ...]:
    """The formats of every module in this package: its `FORMATS`."""
    names = (module.name for module in iter_modules(__path__) if module.name not in TENSORS)
    modules = (import_module(f"{__name__}.{name}") for name in names)
    return tuple(one for module in modules for one in getattr(module, "FORMATS", ()))


def by_quant(quant: Quant) -> Format:
    """The format that a matrix has when it is quantised at load, or where nothing says more."""
    return next(one for one in known() if one.quant == quant)


def recognised(settings: Quantised) -> Format | None:
    """The format that "quantization_config" states; None where none is known."""
    return next((found for one in known() if (found := one.stated(settings)) is not None), None)
