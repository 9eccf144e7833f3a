"""Operations on weights: quantisation, concatenation, dequantisation, and 4-bit values in bytes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from operator import itemgetter
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad

from specchat.engine.formats import by_quant
from specchat.engine.formats.fields import fields
from specchat.engine.formats.format import NESTED_BLOCK
from specchat.engine.formats.gpu_blocks import GridWords, WordBlocks
from specchat.engine.formats.grids import SUPER_BLOCK, grid_numbers, grid_scales
from specchat.engine.formats.layout import (
    Blocks,
    EightBit,
    FileRows,
    FourBit,
    GridBlocks,
    Joined,
    Nested,
    Plain,
    Table,
    Unread,
    Weight,
    mapped,
)
from specchat.engine.formats.scale_tables import by_table, shared_table, table_of
from specchat.engine.formats.words import from_words
from specchat.engine.protocol.pair import Quant

WeightKind = TypeVar("WeightKind", bound=Weight)
ROWS = ("packed", "values", "scales", "zeros", "low", "high", "minimums", "supers", "minimum_supers", "signs", "rows")
"""The parts of weights that have a row for each output."""


def code_table(quant: Quant) -> Tensor:
    """The value of each nibble: float32 [16]."""
    return torch.tensor(by_quant(quant).code)


def quantise(matrix: Tensor, quant: Quant) -> Weight:
    """Quantise a dense matrix float [outputs, inputs] on its device; dense where its rows do not fill blocks.

    Raises:
        ModelError: bitsandbytes is not installed.
    """
    return by_quant(quant).pack(matrix)


def from_octets(octets: Tensor) -> Tensor:
    """Pack uint8 [..., inputs / 2], whose low nibbles are the even inputs, as `FourBit`."""
    return (octets << 4) | (octets >> 4)


def nibbles(words: Tensor) -> Tensor:
    """The nibbles uint8 [..., 8] of int32 [...], the lowest first."""
    octets = words[..., None].view(torch.uint8)
    return torch.stack((octets & 15, octets >> 4), -1).flatten(-2)


def in_order(packed: Tensor, order: Tensor) -> Tensor:
    """Columns of `FourBit.packed` in an order of the inputs."""
    columns = torch.stack((packed >> 4, packed & 15), -1).flatten(1)[:, order]
    return (columns[:, 0::2] << 4) | columns[:, 1::2]


def across_rows(
    packed: Tensor,
    scales: Tensor,
    code: Tensor,
    block: int,
    nested: Nested | None,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Dequantise a matrix of `shape` to `dtype` whose 4-bit blocks cross rows; the last one may be shorter.

    `packed` uint8 and `scales` as in `FourBit`, flattened; `nested` has one offset.
    """
    missing = scales.numel() * block // 2 - packed.numel()
    row = FourBit(pad(packed.flatten(), (0, missing))[None], scales.view(1, -1), code, block, nested)
    return dequantised(row, dtype).flatten()[: prod(shape)].view(*shape)


def fused(parts: Sequence[Weight]) -> Weight:
    """Concatenate matrices of the same inputs along the outputs.

    Parts of one format keep it; if one of them is dense, all become dense, in its dtype, and so do 4 bits in unlike
    orders. Blocks stay apart from all that is stored otherwise.
    """
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, Blocks | FileRows) for part in parts):
        return _fused_blocks(parts)
    if four := [p for p in parts if isinstance(p, FourBit)]:
        first = four[0]
        if len(four) == len(parts) and all(_alike(p, first) for p in four):
            return _fused_four(four)
    elif len(eight := [p for p in parts if isinstance(p, EightBit)]) == len(parts):
        return EightBit(torch.cat([p.values for p in eight]), torch.cat([p.scales for p in eight]))
    dtype = next((p.dtype for p in parts if isinstance(p, Tensor)), torch.float32)
    return torch.cat([dequantised(p, dtype) for p in parts])


def _fused_blocks(parts: Sequence[Weight]) -> Weight:
    """Concatenate neighbours of one storage; the others stay parts of `Joined`."""
    found: list[Plain] = []
    for part in (one for each in parts for one in (each.parts if isinstance(each, Joined) else (each,))):
        last = found[-1] if found else None
        if isinstance(part, Blocks) and isinstance(last, Blocks) and _stored_alike(part, last):
            rows: dict[str, Any] = {n: torch.cat([one, getattr(part, n)]) for n, one in _rows_of(last).items()}
            found[-1] = replace(last, **rows)
        elif isinstance(part, FileRows) and isinstance(last, FileRows) and part.kind == last.kind:
            found[-1] = replace(last, rows=torch.cat([last.rows, part.rows]), held=last.held + part.held)
        else:
            found.append(part)
    return found[0] if len(found) == 1 else Joined(tuple(found))


def fused_experts(parts: Sequence[Weight], each: int) -> Weight:
    """Concatenate matrices along the outputs as `fused` does, `each` of an expert after those of the one before.

    Experts may have unlike orders of their inputs, which become int32 [experts, inputs].
    """
    four = [part for part in parts if isinstance(part, FourBit)]
    unlike = any(not _alike(part, four[number - number % each]) for number, part in enumerate(four))
    if len(four) < len(parts) or unlike or all(part.order is None for part in four):
        return fused(parts)
    whole = fused([replace(part, order=None) for part in four])
    if not isinstance(whole, FourBit):
        return fused(parts)
    in_place = torch.arange(whole.shape[1], dtype=torch.int32, device=whole.packed.device)
    return replace(whole, order=torch.stack([in_place if one.order is None else one.order for one in four[::each]]))


def by_experts(weight: Weight, count: int) -> Weight:
    """Order parts of `count` experts, which stand one after another, so that all experts of a part are neighbours.

    All experts have parts of the same storage.
    """
    if not isinstance(weight, Joined):
        return weight
    parts = weight.parts
    each = len(parts) // count
    return Joined(tuple(cast(Plain, fused(parts[part::each])) for part in range(each)))


def _stored_alike(part: Blocks, first: Blocks) -> bool:
    numbers = [
        (one.bits, one.offset, one.block, [(n, t.dtype) for n, t in _rows_of(one).items()]) for one in (part, first)
    ]
    tables = [(one.code, one.order, getattr(one, "codebook", None)) for one in (part, first)]
    same = all(
        one is other if one is None or other is None else torch.equal(one, other)
        for one, other in zip(*tables, strict=True)
    )
    return numbers[0] == numbers[1] and same


def _rows_of(weight: Plain) -> dict[str, Tensor]:
    """The tensors of a weight that have a row for each output, by name."""
    return {name: one for name in ROWS if (one := getattr(weight, name, None)) is not None}


def _alike(part: FourBit, first: FourBit) -> bool:
    orders = part.order, first.order
    ordered = [one for one in orders if one is not None]
    same = not ordered or (len(ordered) == len(orders) and torch.equal(*ordered))
    return part.block == first.block and torch.equal(part.code, first.code) and same


def _fused_four(parts: list[FourBit]) -> FourBit:
    table = shared_table(parts)
    nested = [p.nested for p in parts if p.nested is not None and table_of(p) is None]
    # Scale i of the whole has nested scale i // 256, so every part but the last must fill its blocks.
    whole = all(p.scales.numel() % NESTED_BLOCK == 0 for p in parts[:-1])
    inner = None
    if whole and len(nested) == len(parts) and all(torch.equal(n.code, nested[0].code) for n in nested):
        factors = (torch.cat([getattr(n, name) for n in nested]) for name in ("absmax", "offset"))
        inner = Nested(nested[0].code, *factors)
    scales = [block_scales(p) if inner is None and table is None else p.scales for p in parts]
    zeros = None
    if any(p.zeros is not None for p in parts):
        zeros = torch.cat([torch.zeros_like(p.scales, dtype=torch.int8) if p.zeros is None else p.zeros for p in parts])
    packed, first = torch.cat([p.packed for p in parts]), parts[0]
    found = FourBit(packed, torch.cat(scales), first.code, first.block, inner, zeros, first.order)
    return found if table is None else by_table(found, found.scales, table)


def block_scales(weight: FourBit) -> Tensor:
    """The scale of each block, float32 [outputs, inputs / block], nested ones dequantised as by bitsandbytes."""
    if weight.nested is None:
        return weight.scales
    nested = weight.nested
    read = nested.code[weight.scales.flatten().int()]
    if nested.absmax is None or nested.offset is None:
        return read.view(weight.scales.shape)
    read *= nested.absmax.repeat_interleave(NESTED_BLOCK)[: read.numel()]
    return read.view(weight.scales.shape) + nested.offset[:, None]


def by_rows(weight: Weight, of: Callable[[Tensor], Tensor]) -> Any:
    """A weight of what `of` makes of each tensor that has a row for each output.

    Nested scales are dequantised; those of a table stay so. The rows of `Joined` are taken part by part.
    """
    if isinstance(weight, Tensor):
        return of(weight)
    if isinstance(weight, Joined):
        return _fused_blocks([by_rows(part, of) for part in weight.parts])
    if isinstance(weight, FourBit) and (table := table_of(weight)) is not None:
        return by_table(by_rows(replace(weight, nested=None), of), of(weight.scales), table)
    if isinstance(weight, FourBit):
        weight = replace(weight, scales=block_scales(weight), nested=None)
    rows: dict[str, Any] = {name: of(one) for name, one in _rows_of(weight).items()}
    return replace(weight, **rows)


def block_numbers(weight: Blocks) -> tuple[Tensor, Tensor | None]:
    """The scale and the minimum of each block, float32 [outputs, inputs / block], both exact; None: all are 0."""
    scales, minimums = grid_scales(weight) if isinstance(weight, GridBlocks) else weight.scales, weight.minimums
    if weight.minimum_supers is not None and minimums is None:
        scales, minimums = scales & 15, scales >> 4
    return _by_supers(weight, scales, weight.supers), (
        None if minimums is None else _by_supers(weight, minimums, weight.minimum_supers)
    )


def _by_supers(weight: Blocks, numbers: Tensor, supers: Tensor | None) -> Tensor:
    if supers is None:
        return numbers.float()
    return numbers * supers.float().repeat_interleave(SUPER_BLOCK // weight.block, 1)


def block_values(weight: Blocks) -> Tensor:
    """Values of the numbers of a weight, float32 [outputs, inputs], in the order of its storage."""
    if isinstance(weight, GridBlocks):
        assert weight.code is not None
        return weight.code[grid_numbers(weight).int()]
    numbers = fields(weight.low, weight.low_bits)
    if weight.high is not None:
        numbers = numbers | (fields(weight.high, weight.bits - weight.low_bits) << weight.low_bits)
    return numbers.float() - weight.offset if weight.code is None else weight.code[numbers.int()]


def dequantised(weight: Weight, dtype: torch.dtype) -> Tensor:
    """Dequantise to a dense matrix `dtype` [outputs, inputs] on the weight's device.

    A 4-bit weight is (code - zero) * scale in float32, rounded once: the bits of
    bitsandbytes.functional.dequantize_4bit, except the sign of FP4's second zero, which is negative for bitsandbytes on
    some processors.

    Raises:
        Unread: it is, or has, `FileRows`.
    """
    match weight:
        case FourBit(packed, _, code, block, _, zeros, order):
            pairs = torch.stack((code.repeat_interleave(16), code.repeat(16)), 1)
            dense = embedding(packed.int(), pairs).view(packed.shape[0], -1, block)
            if zeros is not None:
                dense -= zeros[:, :, None]
            dense = dense.mul_(block_scales(weight)[:, :, None]).flatten(1).to(dtype)
            return _by_inputs(dense, order)
        case EightBit(values, scales):
            return (values * scales[:, None]).to(dtype)
        case Blocks(block=block, order=order):
            of_block, least = block_numbers(weight)
            dense = block_values(weight).unflatten(1, (-1, block)).mul_(of_block[:, :, None])
            if least is not None:
                dense -= least[:, :, None]
            dense = dense.flatten(1).to(dtype)
            return _by_inputs(dense, order)
        case WordBlocks() | GridWords():
            return dequantised(from_words(weight), dtype)
        case Joined(parts):
            return torch.cat([dequantised(part, dtype) for part in parts])
        case FileRows():
            raise Unread
        case _:
            return weight.to(dtype)


def table_rows(table: Table, tokens: Tensor) -> Tensor:
    """Rows of a table float32 [tokens, values] of tokens int64 [tokens]."""
    if isinstance(table, Tensor):
        return embedding(tokens, table).float()
    return dequantised(by_rows(table, itemgetter(tokens)), torch.float32)


def owned(weight: WeightKind) -> WeightKind:
    """Copy a matrix from the file's memory, with nested scales dequantised."""
    copied: WeightKind = mapped(by_rows(weight, lambda rows: rows), torch.clone)
    return copied


def _by_inputs(dense: Tensor, order: Tensor | None) -> Tensor:
    """Put columns that are in an order of the inputs in that of the inputs."""
    return dense if order is None else torch.empty_like(dense).index_copy_(1, order.long(), dense)
