"""Matrix products against bitsandbytes' fused 4-bit product, its LLM.int8, and cuBLAS, on the same weights."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from specchat.bench.device_timer import Body
from specchat.bench.kernel_case import Case, copies_of, held, rows_alike
from specchat.engine.kernels.formats import EightBit, FourBit, Nested, Weight
from specchat.engine.kernels.products import multiply, splits
from specchat.engine.kernels.tiles import MOST_ROWS
from specchat.engine.model.blocks import NESTED_BLOCK
from specchat.engine.model.config import ModelConfig
from specchat.engine.model.quantise import block_scales, dequantised, quantise
from specchat.engine.pair import Quant

FORMATS: dict[str, tuple[Quant, bool]] = {
    "nf4 nested": ("nf4", True),
    "nf4": ("nf4", False),
    "fp4": ("fp4", False),
    "int8": ("int8", False),
}
"""Formats by name; "nested" has its scales quantised too, as this program quantises on loading."""
QUICK_FORMATS = ("nf4 nested",)
QUICK_MATRICES = ("gate_up", "down")


def matrices(c: ModelConfig) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a layer's products."""
    return {
        "qkv": ((c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden),
        "out": (c.hidden, c.heads * c.head_dim),
        "gate_up": (2 * c.intermediate, c.hidden),
        "down": (c.hidden, c.intermediate),
    }


def product_cases(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, quick: bool, cycled: int
) -> Iterator[Case]:
    """Ours first, then the rivals, for every matrix in every format; then the head in the compute dtype."""
    for name, (outputs, inputs) in matrices(config).items():
        if quick and name not in QUICK_MATRICES:
            continue
        dense = _random(outputs, inputs, device, dtype)
        for label, (quant, nested) in FORMATS.items():
            if quick and label not in QUICK_FORMATS:
                continue
            weight = quantised(dense, quant, nested)
            yield from _cases(f"{name} {outputs}x{inputs} {label}", weight, quant, device, dtype, cycled)
    head = _random(config.vocab, config.hidden, device, dtype)
    width = str(dtype).removeprefix("torch.")
    yield from _cases(f"head {config.vocab}x{config.hidden} {width}", head, None, device, dtype, cycled)


def _cases(
    what: str, weight: Weight, quant: Quant | None, device: torch.device, dtype: torch.dtype, cycled: int
) -> Iterator[Case]:
    outputs, inputs = weight.shape
    x = torch.randn(MOST_ROWS, inputs, device=device).to(dtype)
    size = weight_bytes(weight)
    copies = [weight, *(copied(weight) for _ in range(copies_of(size, cycled) - 1))]
    out = torch.empty(splits(weight), MOST_ROWS, outputs, device=device, dtype=torch.float32)

    def ours(rows: int) -> Body:
        return lambda copy: multiply(x, copies[copy], None, out, rows)

    def summed(first: int, rows: int) -> Tensor:
        multiply(x[first:], weight, None, out, rows)
        return out[:, :rows].transpose(0, 1)

    yield Case("products", what, "specchat", size, len(copies), ours, rows_alike(summed))

    if quant is not None:
        calls = [bitsandbytes_call(one, quant, dtype) for one in copies]

        def theirs(rows: int) -> Body:
            return lambda copy: calls[copy](x[:rows])

        alike = rows_alike(lambda first, rows: calls[0](x[first : first + rows]))
        yield Case("products", what, "bitsandbytes", size, len(calls), theirs, alike)

    # cuBLAS multiplies the same weights unquantised: what a step costs without quantisation.
    dense = dequantised(weight, dtype)
    denses = [dense, *(dense.clone() for _ in range(copies_of(held(dense), cycled) - 1))]
    product = torch.empty(MOST_ROWS, outputs, device=device, dtype=dtype)

    def cublas(rows: int) -> Body:
        return lambda copy: _mm(x[:rows], denses[copy], product[:rows])

    alike = rows_alike(lambda first, rows: x[first : first + rows] @ dense.t())
    yield Case("products", what, "cuBLAS", held(dense), len(denses), cublas, alike)


def bitsandbytes_call(weight: Weight, quant: Quant, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """x [rows, inputs] -> x @ weight^T, by bitsandbytes on the same memory."""
    library: Any = import_module("bitsandbytes")
    if isinstance(weight, EightBit):
        state: Any = library.MatmulLtState()
        state.CB, state.SCB = weight.values, 127 * weight.scales
        state.has_fp16_weights = state.is_training = False
        eight = weight.values
        return lambda x: library.matmul(x, eight, state=state)
    assert isinstance(weight, FourBit)
    packed, of_four = weight.packed.view(-1, 1), _quant_state(weight, quant, dtype)
    return lambda x: library.matmul_4bit(x, packed, of_four)


def _quant_state(weight: FourBit, quant: Quant, dtype: torch.dtype) -> Any:
    make: Any = import_module("bitsandbytes.functional").QuantState
    inner = offset = None
    if weight.nested is not None:
        nested = weight.nested
        inner = make(absmax=nested.absmax, blocksize=NESTED_BLOCK, code=nested.code, dtype=torch.float32)
        offset = nested.offset[0]
    return make(
        absmax=weight.scales.flatten(),
        shape=torch.Size(weight.shape),
        code=weight.code,
        blocksize=weight.block,
        quant_type=quant,
        dtype=dtype,
        offset=offset,
        state2=inner,
    )


def copied(weight: Weight) -> Weight:
    """The same weight in other memory."""
    match weight:
        case FourBit(packed, scales, code, block, nested):
            inner = nested and Nested(nested.code.clone(), nested.absmax.clone(), nested.offset.clone())
            return FourBit(packed.clone(), scales.clone(), code.clone(), block, inner)
        case EightBit(values, scales):
            return EightBit(values.clone(), scales.clone())
        case _:
            return weight.clone()


def weight_bytes(weight: Weight) -> int:
    """Bytes that a product reads of it."""
    match weight:
        case FourBit(packed, scales, code, _, nested):
            return held(packed, scales, code, *((nested.code, nested.absmax, nested.offset) if nested else ()))
        case EightBit(values, scales):
            return held(values, scales)
        case _:
            return held(weight)


def quantised(dense: Tensor, quant: Quant, nested: bool) -> Weight:
    """`dense` in one of FORMATS."""
    weight = quantise(dense, quant)
    if isinstance(weight, FourBit) and not nested:
        return FourBit(weight.packed, block_scales(weight), weight.code, weight.block)
    return weight


def _random(outputs: int, inputs: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    drawn: Tensor = torch.randn(outputs, inputs, device=device) / inputs**0.5
    return drawn.to(dtype)


def _mm(x: Tensor, dense: Tensor, out: Tensor) -> None:
    torch.mm(x, dense.t(), out=out)
