"""Products with quantised weights on the CPU: weights stay packed and are unpacked slab by slab while they are used.

A slab is some outputs, few enough that their float32 weights stay in the processor's cache between being unpacked and
being multiplied. Only the product with a slab could make a row depend on the others, so that is what is checked here.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from specchat.engine.kernels.formats import EightBit, FourBit, Weight
from specchat.engine.model.quantise import block_scales, dequantised
from specchat.engine.model.rows import PROBED_ROWS, UNPADDED, Arrangement, Linear, Product, attempted, one_by_one, tiled

SLAB_WEIGHTS = 1 << 20
"""Weights that are unpacked at a time: 4 MiB as float32."""

Unpack = Callable[[FourBit, slice], Tensor]
"""Rows of a 4-bit matrix whose scales are not nested, as float32."""


class QuantisedLinear:
    """y = x W^T + b for x float32 [rows, inputs], 1 <= rows <= PREFILL_ROWS; row-invariant.

    A 4-bit weight is float32(code * scale), as bitsandbytes unpacks it; an 8-bit one is exact in float32 and its scale
    multiplies the sum.
    """

    def __init__(self, weight: FourBit | EightBit, bias: Tensor | None = None) -> None:
        """`bias` float32 [outputs]."""
        if isinstance(weight, FourBit):
            # Nested scales would save 8 % of the memory and cost 14 % of the time: they are read once.
            weight = replace(weight, scales=block_scales(weight), nested=None)
        self.weight = weight
        self._bias = bias
        outputs, inputs = weight.shape
        step = max(64, SLAB_WEIGHTS // inputs // 64 * 64)
        self._slabs = [slice(first, min(first + step, outputs)) for first in range(0, outputs, step)]
        self._arranged = [arrange(slab.stop - slab.start, inputs) for slab in self._slabs]
        self._unpack = _unpacker(weight) if isinstance(weight, FourBit) else None

        self.padding = UNPADDED

    @property
    def arrangement(self) -> str:
        return self._arranged[0]

    def __call__(self, x: Tensor) -> Tensor:
        products = [ARRANGEMENTS[name](slab, None)(x) for name, slab in zip(self._arranged, self._dense(), strict=True)]
        y = torch.cat(products, 1) if len(products) > 1 else products[0]
        if isinstance(self.weight, EightBit):
            y.mul_(self.weight.scales)
        return y if self._bias is None else y.add_(self._bias)

    def _dense(self) -> Iterator[Tensor]:
        for slab in self._slabs:
            if isinstance(self.weight, EightBit):
                yield self.weight.values[slab].float()
            elif self._unpack is not None:
                yield self._unpack(self.weight, slab)

    def memory(self) -> int:
        """Bytes held between calls."""
        match self.weight:
            case FourBit(packed, scales):
                held = [packed, scales]
            case EightBit(values, scales):
                held = [values, scales]
        if self._bias is not None:
            held.append(self._bias)
        return sum(t.numel() * t.element_size() for t in held)


def linear_of(weight: Weight, bias: Tensor | None = None, drafting: bool = False) -> Linear | QuantisedLinear:
    """The product for a matrix of any format; a dense one is multiplied in float32. `bias` float32 [outputs].

    `drafting` is as in `Linear`.
    """
    return Linear(weight.float(), bias, drafting) if isinstance(weight, Tensor) else QuantisedLinear(weight, bias)


def unpacked(weight: Tensor, bias: Tensor | None) -> Product:
    """oneDNN on the weight as it lies, a single row going through as two: one row alone is summed in another order."""
    run = torch.ops.mkldnn._linear_pointwise

    def product(x: Tensor) -> Tensor:
        if x.shape[0] > 1:
            return run(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]
        return run(x.expand(2, -1).contiguous(), weight, bias, "none", [], "")[:1]  # type: ignore[no-any-return]

    return product


ARRANGEMENTS: dict[str, Arrangement] = {
    "unpacked-pair": unpacked,
    "tiled": tiled,
    "one-by-one": one_by_one,
}

_checked: dict[tuple[int, int, int], str] = {}
"""(outputs of a slab, inputs, torch threads) -> the arrangement that was found to be row-invariant here."""


def arrange(outputs: int, inputs: int) -> str:
    """The first arrangement that is row-invariant for slabs of this shape on this machine.

    Raises:
        MemoryError, RuntimeError: memory ran out (`out_of_memory.ran_out`).
    """
    key = (outputs, inputs, torch.get_num_threads())
    if key not in _checked:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(max(PROBED_ROWS), inputs, generator=generator)
        slab = torch.randn(outputs, inputs, generator=generator)
        candidates = ("unpacked-pair", "tiled") if torch.backends.mkldnn.is_available() else ("tiled",)
        holding = (name for name in candidates if attempted(ARRANGEMENTS[name], slab, None, x) is not None)
        _checked[key] = next(holding, "one-by-one")
    return _checked[key]


def _unpacker(weight: FourBit) -> Unpack:
    """bitsandbytes' compiled routine where it is there, ten times as fast as the same in torch."""
    try:
        import bitsandbytes  # noqa: F401
        from bitsandbytes.cextension import ErrorHandlerMockBNBNativeLibrary, lib
    except ImportError:
        return _in_torch
    if isinstance(lib, ErrorHandlerMockBNBNativeLibrary):
        return _in_torch
    run = torch.ops.bitsandbytes.dequantize_4bit.default
    kind = "fp4" if weight.code[1] > 0 else "nf4"

    def unpack(weight: FourBit, rows: slice) -> Tensor:
        packed, scales = weight.packed[rows], weight.scales[rows]
        shape = (packed.shape[0], 2 * packed.shape[1])
        return run(packed, scales, weight.block, kind, shape, torch.float32)  # type: ignore[no-any-return]

    return unpack


def _in_torch(weight: FourBit, rows: slice) -> Tensor:
    return dequantised(replace(weight, packed=weight.packed[rows], scales=weight.scales[rows]), torch.float32)
