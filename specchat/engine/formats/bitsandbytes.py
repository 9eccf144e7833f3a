"""Matrices in the storage of bitsandbytes: NF4 and FP4 in blocks (QLoRA), int8 by rows (LLM.int8)."""

import logging
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

from pydantic import Field

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Count, Foreign, checked, parsed
from specchat.engine.formats.format import BLOCK, KERNEL_BLOCKS, NESTED_BLOCK, Format, StorageLayout, StoredParts
from specchat.engine.formats.settings import Quantised
from specchat.engine.protocol.pair import Quant

if TYPE_CHECKING:
    from torch import Tensor

    from specchat.engine.formats.layout import EightBit, Nested, Weight

# It warns about missing products for some CPUs, which are not used here.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

STATE = "quant_state.bitsandbytes__"
"""The prefix of "nf4" or "fp4" in the name of the tensor that holds a 4-bit matrix's settings as JSON."""
STORED_BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
NF4_CODE = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Quantiles of the normal distribution (QLoRA, Dettmers et al. 2023, appendix E)."""
_FP4_MAGNITUDES = (0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0)
FP4_CODE = tuple(m / 12 for m in (*_FP4_MAGNITUDES, 0.0, *(-m for m in _FP4_MAGNITUDES[1:])))
"""Sign, two bits of exponent, one of mantissa, scaled to 1 (bitsandbytes.functional.get_4bit_type)."""


class _State(Foreign):
    """Settings that bitsandbytes stores beside a 4-bit matrix."""

    quant_type: str
    shape: list[Count] = Field(max_length=8, description="a list of sizes")
    blocksize: Count
    dtype: str | None = None
    nested_blocksize: int | None = None
    nested_offset: float | None = Field(None, gt=-1e30, lt=1e30, description="a number")


@dataclass(frozen=True)
class FourBitFloats(Format):
    """Values of a code of 16 in blocks, times the scale of their block, which may be quantised itself (`nested`)."""

    quant: Quant
    code: tuple[float, ...]
    nested: bool = True

    def stated(self, settings: Quantised) -> "FourBitFloats | None":
        return replace(self, nested=settings.bnb_4bit_use_double_quant) if settings.bitsandbytes == self.quant else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        return None if inputs % BLOCK else StorageLayout(4, BLOCK, "nested" if self.nested else "float")

    def holds(self, source: StoredParts, name: str) -> bool:
        return f"{name}.weight.{STATE}{self.quant}" in source

    def pack(self, matrix: "Tensor") -> "Weight":
        from specchat.engine.formats.layout import FourBit, Nested
        from specchat.engine.formats.quantise import across_rows

        outputs, inputs = matrix.shape
        packed, state = _functional(self.quant).quantize_4bit(
            matrix.contiguous(), blocksize=BLOCK, compress_statistics=True, quant_type=self.quant
        )
        if inputs % BLOCK:
            nested = Nested(state.state2.code, state.state2.absmax, state.offset.view(1))
            return across_rows(packed, state.absmax, state.code, BLOCK, nested, matrix.shape, matrix.dtype)
        nested = Nested(state.state2.code, state.state2.absmax, state.offset.expand(outputs).contiguous())
        return FourBit(packed.view(outputs, inputs // 2), state.absmax.view(outputs, -1), state.code, BLOCK, nested)

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "Weight":
        import torch

        from specchat.engine.formats.layout import FourBit
        from specchat.engine.formats.quantise import across_rows

        (outputs, inputs), weight = shape, f"{name}.weight"
        state = f"{weight}.{STATE}{self.quant}"
        where = f"{source.folder}: {state}"
        text = bytes(source.part(state).to(torch.uint8).flatten().tolist())
        settings = checked(_State, parsed(text, where), where)
        _agree(source, weight, "quant_type", settings.quant_type, self.quant)
        _agree(source, weight, "shape", settings.shape, [outputs, inputs])
        block = settings.blocksize
        if block not in STORED_BLOCKS:
            raise ModelError(f"{source.folder}: {weight} has blocks of {block}, which bitsandbytes does not make.")
        # bnb_4bit_quant_storage sets the dtype of the bytes.
        packed = _sized(source, weight, source.part(weight).contiguous().view(torch.uint8), -(-outputs * inputs // 2))
        stored = _sized(source, f"{weight}.quant_map", source.part(f"{weight}.quant_map").float(), 16)
        code = torch.tensor(self.code)
        if not torch.allclose(stored, code, atol=1e-6):
            raise ModelError(
                f"{source.folder}: {weight}.quant_map is not the table of {self.quant}. Download it again."
            )
        blocks = -(-outputs * inputs // block)
        absmax = _sized(source, f"{weight}.absmax", source.part(f"{weight}.absmax"), blocks)
        nested = None
        if absmax.dtype == torch.uint8:
            nested = _nested(source, weight, settings, blocks)
        elif not absmax.is_floating_point():
            raise ModelError(f"{source.folder}: {weight}.absmax is {absmax.dtype}, neither float nor uint8.")
        scales = absmax if nested else absmax.float()
        if block not in KERNEL_BLOCKS or inputs % block:
            kind = settings.dtype if settings.dtype in ("float16", "bfloat16") else "float32"
            return across_rows(packed, scales, code, block, nested, (outputs, inputs), getattr(torch, kind))
        if nested and nested.offset is not None:
            nested = replace(nested, offset=nested.offset.repeat(outputs))
        return FourBit(packed.view(outputs, inputs // 2), scales.view(outputs, -1), code, block, nested)


@dataclass(frozen=True)
class Int8(Format):
    """Integers by rows, each row with a scale."""

    quant = "int8"
    int8_rows = True

    def stated(self, settings: Quantised) -> "Int8 | None":
        return self if settings.bitsandbytes == self.quant else None

    def layout(self, inputs: int, name: str = "") -> StorageLayout | None:
        return StorageLayout(8, scales="float")

    def holds(self, source: StoredParts, name: str) -> bool:
        return f"{name}.SCB" in source and source.stored_dtype(f"{name}.weight") == "I8"

    def pack(self, matrix: "Tensor") -> "EightBit":
        from specchat.engine.formats.layout import EightBit

        # bitsandbytes' Int8Params rounds to float16 first.
        values, largest, _ = _functional(self.quant).int8_vectorwise_quant(matrix.half().contiguous())
        return EightBit(values, largest / 127)

    def read(self, source: StoredParts, name: str, shape: tuple[int, int]) -> "EightBit":
        from specchat.engine.formats.layout import EightBit

        weight = f"{name}.weight"
        values = source.part(weight)
        _agree(source, weight, "shape", list(values.shape), list(shape))
        layout = f"{name}.weight_format"
        if layout in source and source.part(layout).any():
            raise ModelError(
                f"{source.folder}: {weight} is laid out for one kind of GPU. Use a checkpoint in row order."
            )
        largest = _sized(source, f"{name}.SCB", source.part(f"{name}.SCB").float(), shape[0])
        return EightBit(values.contiguous(), largest / 127)


def _functional(quant: Quant) -> ModuleType:
    try:
        from bitsandbytes import functional
    except ImportError:
        raise ModelError(
            f'quant = "{quant}" needs the package bitsandbytes, which is not installed. Install it, or leave quant out.'
        ) from None
    return functional


def _nested(source: StoredParts, weight: str, settings: _State, blocks: int) -> "Nested":
    """Read the double quantisation of the scales, with one offset for all."""
    import torch

    from specchat.engine.formats.layout import Nested

    _agree(source, weight, "nested_blocksize", settings.nested_blocksize, NESTED_BLOCK)
    if settings.nested_offset is None:
        raise ModelError(f"{source.folder}: {weight} has no nested_offset. Download it again.")
    code, absmax = f"{weight}.nested_quant_map", f"{weight}.nested_absmax"
    return Nested(
        _sized(source, code, source.part(code).float(), 256),
        _sized(source, absmax, source.part(absmax).float(), -(-blocks // NESTED_BLOCK)),
        torch.tensor([settings.nested_offset]),
    )


def _sized(source: StoredParts, name: str, tensor: "Tensor", size: int) -> "Tensor":
    if tensor.numel() != size:
        raise ModelError(f"{source.folder}: {name} has {tensor.numel()} values, not {size}. Download it again.")
    return tensor.flatten().contiguous()


def _agree(source: StoredParts, weight: str, key: str, found: object, expected: object) -> None:
    if found != expected:
        raise ModelError(f"{source.folder}: {weight} has {key} {found}, not {expected} as the rest of the checkpoint.")


FORMATS = (FourBitFloats("nf4", NF4_CODE), FourBitFloats("fp4", FP4_CODE), Int8())
