"""Matrices of a model in the layout that `passes` multiplies: packed once, in the fewest bytes that are exact."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.primitives.records import PRODUCT
from specchat.engine.cpu.products.products import MOST_BLOCKS, kernels
from specchat.engine.cpu.products.tiles import BFLOAT16, FLOAT16, FLOAT32, FOUR_BIT, INT8, SHIFTED
from specchat.engine.formats.layout import EightBit, FourBit, Weight
from specchat.engine.formats.quantise import block_scales, dequantised
from specchat.engine.memory.vectors import LANES, panels_for


@dataclass
class Packed:
    """Products of a model, one after another."""

    _rows: list[NDArray[Any]] = field(default_factory=list)
    _held: list[NDArray[Any]] = field(default_factory=list)
    _codes: dict[bytes, int] = field(default_factory=dict)

    def add(self, weight: Weight, bias: Tensor | None = None, ends: Sequence[int] = ()) -> NDArray[Any]:
        """Add a product and return its packed weights; a vector begins after each of the outputs `ends`.

        `bias` float32 [outputs].
        """
        outputs, inputs = weight.shape
        if isinstance(weight, FourBit) and weight.zeros is not None and inputs > MOST_BLOCKS * weight.block:
            weight = dequantised(weight, torch.float32)
        spans = [slice(a, b) for a, b in zip((0, *ends), (*ends, outputs), strict=True)]
        row: NDArray[Any] = np.zeros((), PRODUCT)
        row["form"], row["inputs"] = format_of(weight), inputs
        numbers = stored_numbers(weight, int(row["form"]))
        weights = concatenate([to_panels(numbers[span]) for span in spans])
        row["panels"], row["address"] = len(weights), self._hold(weights)
        if bias is not None:
            row["bias"] = self._outputs(bias, spans)
        if isinstance(weight, EightBit):
            row["scales"] = self._outputs(weight.scales, spans)
        elif isinstance(weight, FourBit):
            scales = block_scales(weight).numpy()
            row["scales"] = self._hold(concatenate([to_panels(scales[span]) for span in spans]))
            row["code"], row["block"] = self._code(weight.code), weight.block
            if weight.zeros is not None:
                zeros = weight.zeros.numpy()
                row["zeros"] = self._hold(concatenate([to_panels(zeros[span]) for span in spans]))
            if weight.order is not None:
                row["order"] = self._hold(weight.order.numpy().astype(np.int32))
        self._rows.append(row)
        return weights

    @property
    def table(self) -> NDArray[Any]:
        """PRODUCT [products], with their compiled functions; its addresses hold as long as this object lives."""
        made = np.stack(self._rows)
        made["functions"] = [kernels(form).ctypes.data for form in made["form"].tolist()]
        return made

    def memory(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self._held)

    def _hold(self, array: NDArray[Any]) -> int:
        self._held.append(np.ascontiguousarray(array))
        return self._held[-1].ctypes.data

    def _code(self, code: Tensor) -> int:
        """Address of the tables of a 4-bit code, which many products share."""
        tables = code_tables(code)
        if (held := self._codes.get(tables.tobytes())) is None:
            held = self._codes[tables.tobytes()] = self._hold(tables)
        return held

    def _outputs(self, values: Tensor, spans: Sequence[slice]) -> int:
        """Address of values float32 [outputs], laid out as the outputs of the product."""
        return self._hold(concatenate([to_panels(values.float().numpy()[span, None]).ravel() for span in spans]))


def concatenate(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; return a single one itself, as it may be large."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def format_of(weight: Weight) -> int:
    """Storage format of a packed matrix: its own, but 16 bits for float32 that fits them exactly."""
    if isinstance(weight, EightBit):
        return INT8
    if isinstance(weight, FourBit):
        return FOUR_BIT if weight.zeros is None else SHIFTED
    if weight.dtype == torch.float32:
        for dtype, half in ((torch.float16, FLOAT16), (torch.bfloat16, BFLOAT16)):
            if torch.equal(weight.to(dtype).float(), weight):
                return half
        return FLOAT32
    return {torch.float16: FLOAT16, torch.bfloat16: BFLOAT16}[weight.dtype]


def stored_numbers(weight: Weight, kind: int) -> NDArray[Any]:
    """Stored numbers of a matrix of format `kind`, [outputs, inputs]; 4 bits as NIBBLES in one, the first lowest."""
    if isinstance(weight, EightBit):
        return weight.values.numpy()
    if isinstance(weight, FourBit):
        packed = weight.packed.numpy()
        return ((packed >> 4) | (packed << 4)).view("<u4")
    if kind == FLOAT16:
        return weight.to(torch.float16).numpy()
    if kind == BFLOAT16:
        return weight.to(torch.bfloat16).view(torch.int16).numpy()
    return weight.numpy()


def to_panels(weights: NDArray[Any]) -> NDArray[Any]:
    """Lay weights [outputs, inputs] out for products: [panels, inputs, LANES], padded with zeros."""
    outputs, inputs = weights.shape
    whole = outputs // LANES
    packed = np.zeros((panels_for(outputs), inputs, LANES), weights.dtype)
    packed[:whole] = weights[: whole * LANES].reshape(whole, LANES, inputs).transpose(0, 2, 1)
    if outputs % LANES:
        packed[whole, :, : outputs % LANES] = weights[whole * LANES :].T
    return packed


def code_tables(code: Tensor) -> NDArray[np.uint8]:
    """Bytes of a 4-bit code float32 [16], then [4, 32]: the first byte of each number twice, the second, and so on."""
    octets = code.float().numpy().view(np.uint8).reshape(16, 4)
    return np.concatenate([octets.ravel(), np.tile(octets.T, 2).ravel()])


def look_up(packed: NDArray[Any], tokens: Sequence[int]) -> NDArray[np.float32]:
    """Look up rows float32 [tokens, inputs] of a dense packed matrix."""
    places = np.asarray(tokens)
    rows = packed[places // LANES, :, places % LANES]
    if rows.dtype == np.int16:
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)
