"""Quantised matrices in the storage of bitsandbytes, read and checked."""

from collections.abc import Callable, Container
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.foreign import Count, Foreign, checked, parsed
from specchat.engine.formats.blocks import KERNEL_BLOCKS, NESTED_BLOCK
from specchat.engine.formats.layout import EightBit, FourBit, Nested
from specchat.engine.formats.quantise import across_rows, code_table
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.checkpoint import DTYPES

STATE = "quant_state.bitsandbytes__"
"""The prefix of "nf4" or "fp4" in the name of the tensor that holds a 4-bit matrix's settings as JSON."""

STORED_BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)

Read = Callable[[str], Tensor]


def kind_of(name: str, names: Container[str], dtype: torch.dtype) -> Quant | None:
    """Quantisation of matrix `name`, by the tensors beside it; None: not by bitsandbytes."""
    if f"{name}.weight.{STATE}nf4" in names:
        return "nf4"
    if f"{name}.weight.{STATE}fp4" in names:
        return "fp4"
    return "int8" if dtype == torch.int8 and f"{name}.SCB" in names else None


class _State(Foreign):
    """Settings that bitsandbytes stores beside a 4-bit matrix."""

    quant_type: str
    shape: list[Count] = Field(max_length=8, description="a list of sizes")
    blocksize: Count
    dtype: str | None = None
    nested_blocksize: int | None = None
    nested_offset: float | None = Field(None, gt=-1e30, lt=1e30, description="a number")


class Stored:
    """Reads quantised matrices of one checkpoint; `read` returns a tensor by name, `where` begins every message."""

    def __init__(self, read: Read, names: Container[str], where: str) -> None:
        self._read = read
        self._names = names
        self._where = where

    def four_bit(self, name: str, quant: Quant, outputs: int, inputs: int) -> FourBit | Tensor:
        """Matrix `name` (without ".weight") of nf4 or fp4; dense where no kernel supports its blocks.

        Raises:
            ModelError: a part is missing or does not fit the others.
        """
        weight = f"{name}.weight"
        settings = self._settings(f"{weight}.{STATE}{quant}")
        self._agree(weight, "quant_type", settings.quant_type, quant)
        self._agree(weight, "shape", settings.shape, [outputs, inputs])
        block = settings.blocksize
        if block not in STORED_BLOCKS:
            raise ModelError(f"{self._where}: {weight} has blocks of {block}, which bitsandbytes does not make.")
        # bnb_4bit_quant_storage sets the dtype of the bytes.
        packed = self._sized(weight, self._read(weight).contiguous().view(torch.uint8), -(-outputs * inputs // 2))
        code = self._sized(f"{weight}.quant_map", self._part(weight, "quant_map").float(), 16)
        if not torch.allclose(code, code_table(quant), atol=1e-6):
            raise ModelError(f"{self._where}: {weight}.quant_map is not the table of {quant}. Download it again.")
        blocks = -(-outputs * inputs // block)
        absmax = self._sized(f"{weight}.absmax", self._part(weight, "absmax"), blocks)
        nested = None
        if absmax.dtype == torch.uint8:
            nested = self._nested(weight, settings, blocks)
        elif not absmax.is_floating_point():
            raise ModelError(f"{self._where}: {weight}.absmax is {absmax.dtype}, neither float nor uint8.")
        scales = absmax if nested else absmax.float()
        if block not in KERNEL_BLOCKS or inputs % block:
            dtype = DTYPES.get(settings.dtype or "", torch.float32)
            return across_rows(packed, scales, code_table(quant), block, nested, (outputs, inputs), dtype)
        if nested:
            nested = replace(nested, offset=nested.offset.repeat(outputs))
        return FourBit(packed.view(outputs, inputs // 2), scales.view(outputs, -1), code_table(quant), block, nested)

    def eight_bit(self, name: str, outputs: int, inputs: int) -> EightBit:
        """Matrix `name` of int8.

        Raises:
            ModelError: a part is missing or does not fit the others.
        """
        weight = f"{name}.weight"
        values = self._read(weight)
        self._agree(weight, "shape", list(values.shape), [outputs, inputs])
        layout = f"{name}.weight_format"
        if layout in self._names and self._read(layout).any():
            raise ModelError(f"{self._where}: {weight} is laid out for one kind of GPU. Use a checkpoint in row order.")
        largest = self._sized(f"{name}.SCB", self._read(f"{name}.SCB").float(), outputs)
        return EightBit(values.contiguous(), largest / 127)

    def _nested(self, weight: str, settings: _State, blocks: int) -> Nested:
        """Read the double quantisation of the scales, with one offset for all."""
        self._agree(weight, "nested_blocksize", settings.nested_blocksize, NESTED_BLOCK)
        if settings.nested_offset is None:
            raise ModelError(f"{self._where}: {weight} has no nested_offset. Download it again.")
        code = self._sized(f"{weight}.nested_quant_map", self._part(weight, "nested_quant_map").float(), 256)
        absmax = self._part(weight, "nested_absmax").float()
        absmax = self._sized(f"{weight}.nested_absmax", absmax, -(-blocks // NESTED_BLOCK))
        return Nested(code, absmax, torch.tensor([settings.nested_offset]))

    def _settings(self, name: str) -> _State:
        where = f"{self._where}: {name}"
        return checked(_State, parsed(bytes(self._read(name).to(torch.uint8).flatten().tolist()), where), where)

    def _part(self, weight: str, part: str) -> Tensor:
        if f"{weight}.{part}" not in self._names:
            raise ModelError(f"{self._where}: {weight}.{part} is missing. Download the checkpoint again.")
        return self._read(f"{weight}.{part}")

    def _sized(self, name: str, tensor: Tensor, size: int) -> Tensor:
        if tensor.numel() != size:
            raise ModelError(f"{self._where}: {name} has {tensor.numel()} values, not {size}. Download it again.")
        return tensor.flatten().contiguous()

    def _agree(self, weight: str, key: str, found: object, expected: object) -> None:
        if found != expected:
            raise ModelError(
                f"{self._where}: {weight} has {key} {found}, not {expected} as the rest of the checkpoint."
            )
