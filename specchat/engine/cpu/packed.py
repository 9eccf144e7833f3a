"""Matrices of a model in the layout that `passes` multiplies: packed once, in the fewest bytes that are exact."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.primitives.records import PRODUCT
from specchat.engine.cpu.products.block_form import BLOCKED, BlockForm
from specchat.engine.cpu.products.codebooks import table_of
from specchat.engine.cpu.products.columns import MOST_BLOCKS, row_reader
from specchat.engine.cpu.products.dots import WAYS, way
from specchat.engine.cpu.products.products import kernels
from specchat.engine.cpu.products.tiles import BFLOAT16, BFLOAT16_PAIRS, FLOAT16, FLOAT32, INT8
from specchat.engine.cpu.stored_blocks import CODED, block_of, block_parts, form_of_blocks, rounded_form, scale_table
from specchat.engine.cpu.unpacking import unpack
from specchat.engine.formats.bfloat16_rows import to_bfloat16
from specchat.engine.formats.gguf import SIZES, block_of_zeros
from specchat.engine.formats.gpu_blocks import GridWords, WordBlocks
from specchat.engine.formats.layout import Blocks, EightBit, FileRows, FourBit, GridBlocks, Joined, Plain, Weight
from specchat.engine.formats.quantise import dequantised
from specchat.engine.memory.vectors import FEW, LANES, panels_for
from specchat.engine.protocol.pair import Activations

DENSE = {torch.float32: FLOAT32, torch.float16: FLOAT16, torch.bfloat16: BFLOAT16}
"""Storage formats of dense weights."""


class OutputPanels(NamedTuple):
    """Outputs of a matrix that are consecutive in a product, and the panels that they fill."""

    outputs: slice
    panels: int


@dataclass
class Packed:
    """Products of a model, one after another."""

    _rows: list[NDArray[Any]] = field(default_factory=list)
    _held: list[NDArray[Any]] = field(default_factory=list)
    _codes: dict[bytes, int] = field(default_factory=dict)
    activations: Activations = "float32"
    """Rows that the products multiply, where their weights take them."""

    def add(self, weight: Weight, bias: Tensor | None = None, ends: Sequence[int] = ()) -> None:
        """Add a product; a vector begins after each of the outputs `ends`.

        `bias` float32 [outputs].

        Raises:
            Unread: rows of a file that no product has as they are.
        """
        found = pieces(weight, ends, self.activations)
        if found is None:
            weight = dequantised(weight, torch.float32)
            found = pieces(weight, ends)
        assert found is not None
        parts, begin, rows = weight.parts if isinstance(weight, Joined) else (weight,), 0, []
        for part, of_part in zip(parts, found, strict=True):
            end = begin + part.shape[0]
            rows.append(self._part(part, None if bias is None else bias[begin:end], of_part))
            begin = end
        for row, after in reversed([*pairwise(rows)]):
            row["next"] = self._hold(after)
        rows[0]["panels"] = sum(int(row["stored"][0]) for row in rows)
        self._rows.append(rows[0])

    def _part(self, weight: Plain, bias: Tensor | None, of: Sequence[OutputPanels]) -> NDArray[Any]:
        """A PRODUCT of outputs of one storage."""
        row, form = np.zeros(1, PRODUCT), format_of(weight, self.activations)
        row["form"], row["inputs"] = form, weight.shape[1]
        row["functions"] = kernels(form).ctypes.data

        row["panels"] = row["stored"] = stored = sum(piece.panels for piece in of)
        # Compiled products take FEW panels at a time.
        spare = [0] * (len(of) - 1) + [max(0, FEW - stored)]

        def put(name: str, numbers: NDArray[Any] | None) -> None:
            if numbers is not None:
                panels = [to_panels(numbers[at], count + more) for (at, count), more in zip(of, spare, strict=True)]
                row[name] = self._hold(concatenate(panels))

        put("bias", None if bias is None else bias.float().numpy()[:, None])
        if isinstance(weight, FileRows):
            for name, panels in _from_file(weight, of, spare, BlockForm.of(form)).items():
                row[name] = self._hold(panels)
            weight = block_of_zeros(weight.kind)
        elif form >= BLOCKED:
            assert isinstance(weight, FourBit | Blocks | EightBit)
            for name, numbers in block_parts(weight, BlockForm.of(form)).items():
                put(name, numbers)
        if form >= BLOCKED:
            assert isinstance(weight, FourBit | Blocks | EightBit)
            row["block"], row["code"] = block_of(weight), self._code(weight, BlockForm.of(form))
            order = getattr(weight, "order", None)
            if order is not None:
                row["order"] = self._hold(order.numpy().astype(np.int32))
        else:
            assert isinstance(weight, Tensor | EightBit)
            put("address", stored_numbers(weight, form))
            put("scales", weight.scales.float().numpy()[:, None] if isinstance(weight, EightBit) else None)
        return row

    @property
    def table(self) -> NDArray[Any]:
        """PRODUCT [products]; its addresses hold as long as this object lives."""
        self._rows = [np.concatenate(self._rows)]
        return self._rows[0]

    def memory(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self._held)

    def _hold(self, array: NDArray[Any]) -> int:
        self._held.append(np.ascontiguousarray(array))
        return self._held[-1].ctypes.data

    def _code(self, weight: FourBit | Blocks | EightBit, form: BlockForm) -> int:
        """Address of the table of a code, which many products share; 0 without one."""
        if not form.coded:
            return 0
        assert isinstance(weight, FourBit | Blocks)
        assert weight.code is not None
        table = np.resize(weight.code.float().numpy(), CODED)
        if form.rounded:
            table = (table * (1 << form.finer)).astype(np.int8)
        if isinstance(weight, GridBlocks):
            table = table - np.int8(WAYS[way()].less) if form.rounded else table
            rows = table_of(weight.grid, weight.codebook.numpy(), table if form.rounded else None)
            table = np.concatenate([table.view(np.uint8), rows])
        if isinstance(weight, FourBit) and (scales := scale_table(weight)) is not None:
            table = np.concatenate([table.view(np.uint8), scales.numpy().view(np.uint8)])
        if (held := self._codes.get(table.tobytes())) is None:
            held = self._codes[table.tobytes()] = self._hold(table)
        return held


def concatenate(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; return a single one itself, as it may be large."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def pieces(
    weight: Weight, ends: Sequence[int], activations: Activations = "float32"
) -> list[list[OutputPanels]] | None:
    """The pieces of each part of a weight where a vector begins after each of the outputs `ends`.

    None where no product has such a weight: a part begins within a vector, parts have unlike orders of their inputs, or
    rows have too many blocks.
    """
    parts, (outputs, inputs) = weight.parts if isinstance(weight, Joined) else (weight,), weight.shape
    spans = [*zip((0, *ends), (*ends, outputs), strict=True)]
    # The format of a dense part takes a look at all of its numbers.
    in_blocks = [(part, format_of(part, activations)) for part in parts if not isinstance(part, Tensor)]
    forms = [(part, BlockForm.of(form)) for part, form in in_blocks if form >= BLOCKED]
    if any(form.has_totals and not form.rounded and inputs > MOST_BLOCKS * block_of(part) for part, form in forms):
        return None
    orders = [getattr(part, "order", None) for part in parts]
    if len(parts) > 1 and any(order is not None for order in orders):
        return None
    found, begin = [], 0
    for part in parts:
        of_part, end = [], begin + part.shape[0]
        for first, last in spans:
            start, stop = max(first, begin), min(last, end)
            if start >= stop:
                continue
            if (start - first) % LANES:
                return None
            before = (start - first) // LANES
            panels = panels_for(last - first) - before if stop == last else (stop - start) // LANES
            of_part.append(OutputPanels(slice(start - begin, stop - begin), panels))
        found.append(of_part)
        begin = end
    return found


def format_of(weight: Plain, activations: Activations = "float32") -> int:
    """Storage format of a packed matrix: its own, but 16 bits for float32 that fits them exactly."""
    if activations == "int8" and (rounded := rounded_form(weight)) is not None:
        return rounded.form
    match weight:
        case EightBit():
            return INT8
        case FourBit() | Blocks():
            return form_of_blocks(weight).form
        case FileRows(kind=kind):
            return form_of_blocks(block_of_zeros(kind)).form
        case WordBlocks() | GridWords():
            raise TypeError("in the order of a GPU's kernels")
    if activations == "bfloat16":
        return BFLOAT16_PAIRS
    if weight.dtype == torch.float32:
        for dtype, half in ((torch.float16, FLOAT16), (torch.bfloat16, BFLOAT16)):
            if torch.equal(weight.to(dtype).float(), weight):
                return half
        return FLOAT32
    return DENSE[weight.dtype]


def stored_numbers(weight: Tensor | EightBit, kind: int) -> NDArray[Any]:
    """Stored numbers of a matrix of format `kind`, [outputs, inputs]."""
    if isinstance(weight, EightBit):
        return weight.values.numpy()
    if kind == FLOAT16:
        return weight.to(torch.float16).numpy()
    if kind == BFLOAT16_PAIRS:
        return to_bfloat16(weight).view(torch.int16).contiguous().numpy().view("<u4")
    if kind == BFLOAT16:
        return weight.to(torch.bfloat16).view(torch.int16).numpy()
    return weight.numpy()


def _from_file(
    weight: FileRows, of: Sequence[OutputPanels], spare: Sequence[int], form: BlockForm
) -> dict[str, NDArray[Any]]:
    """The fields of a PRODUCT in panels, some of them `spare` after each piece, read from a file's bytes.

    Raises:
        Unread: a scale is no number.
    """
    panels, blocks = sum(piece.panels for piece in of) + sum(spare), weight.inputs // SIZES[weight.kind][0]
    rows, begin = np.zeros(panels * LANES, np.int64), 0
    for (at, count), more in zip(of, spare, strict=True):
        addresses = weight.rows[at].numpy()
        rows[begin : begin + len(addresses)] = addresses
        begin += (count + more) * LANES
    parts = block_parts(block_of_zeros(weight.kind), form)
    found = {
        name: np.zeros((panels, blocks * one.shape[1], LANES), one.dtype)
        for name, one in parts.items()
        if one is not None
    }
    unpack(weight.kind, form.rounded > 0, rows, blocks, found)
    return found


def to_panels(weights: NDArray[Any], panels: int) -> NDArray[Any]:
    """Lay weights [outputs, inputs] out for products: [panels, inputs, LANES], padded with zeros."""
    outputs, inputs = weights.shape
    whole = outputs // LANES
    packed = np.zeros((panels, inputs, LANES), weights.dtype)
    packed[:whole] = weights[: whole * LANES].reshape(whole, LANES, inputs).transpose(0, 2, 1)
    if outputs % LANES:
        packed[whole, :, : outputs % LANES] = weights[whole * LANES :].T
    return packed


def look_up(product: NDArray[Any], outputs: Sequence[int]) -> NDArray[np.float32]:
    """Look up outputs of a product, PRODUCT [1], as rows float32 [outputs, inputs]."""
    read = row_reader(int(product["form"][0]))
    rows = np.empty((len(outputs), int(product["inputs"][0])), np.float32)
    for output, row in zip(outputs, rows, strict=True):
        read.ctypes(product.ctypes.data, output, row.ctypes.data, 0, 0, 0, 0, 0)
    return rows
