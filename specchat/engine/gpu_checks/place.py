"""The device of a check, the GPU or main memory under the interpreter, and random tensors there."""

import os

import torch
from torch import Tensor

from specchat.engine.formats.format import BLOCK, NESTED_BLOCK
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Blocks, EightBit, FourBit, Nested, Weight, mapped
from specchat.engine.formats.quantise import code_table
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks.notes import Unavailable
from specchat.engine.protocol.pair import Quant

ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
"""Allowed difference of values near 1, by dtype."""


def on_gpu() -> bool:
    """True where kernels run on a GPU, not under the interpreter."""
    return torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"


def device() -> torch.device:
    """The GPU, or main memory under the interpreter."""
    return torch.device("cuda" if on_gpu() else "cpu")


def gpu() -> torch.device:
    """The GPU.

    Raises:
        Unavailable: there is none.
    """
    if not on_gpu():
        raise Unavailable("no GPU")
    return torch.device("cuda")


def dtype() -> torch.dtype:
    """The precision of pairs; float32 under the interpreter, which is fast and exact only there."""
    return torch.bfloat16 if on_gpu() else torch.float32


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, the same on every machine."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(device(), dtype)


def filled(*shape: int, value: float = torch.nan, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of one value, NaN by default: what nothing has written yet."""
    return torch.full(shape, value, device=device(), dtype=dtype)


def number(value: int) -> Tensor:
    """int32 [1]."""
    return filled(1, value=value, dtype=torch.int32)


def weight_of(quant: Quant | str | None, outputs: int, inputs: int) -> Weight:
    """A random matrix in a format or a type of GGUF, of int4 with zero points and inputs in an order.

    It is made without bitsandbytes, whose import alone takes seconds.
    """
    if quant in TYPES:
        return in_words(blocks_of(quant, outputs, inputs))
    where, drawn = device(), torch.Generator().manual_seed(outputs)

    def integers(low: int, high: int, kind: torch.dtype, columns: int) -> Tensor:
        return torch.randint(low, high, (outputs, columns), generator=drawn, dtype=kind).to(where)

    scales = (0.5 + torch.rand(outputs, generator=drawn)).to(where) / inputs**0.5
    if quant is None:
        return random(outputs, inputs, seed=outputs).div(inputs**0.5).to(dtype())
    if quant == "int8":
        return EightBit(integers(-127, 128, torch.int8, inputs), scales / 127)
    packed, quantised = integers(0, 256, torch.uint8, inputs // 2), integers(0, 256, torch.uint8, inputs // BLOCK)
    if quant == "int4":
        of_blocks, zeros = (scales / 8)[:, None] * (1 + quantised / 256), (quantised % 17).to(torch.int8) - 8
        order = torch.randperm(inputs, generator=drawn).to(where, torch.int32)
        return FourBit(packed, of_blocks, code_table("int4").to(where), BLOCK, zeros=zeros, order=order)
    absmax = scales[: -(-quantised.numel() // NESTED_BLOCK)].clone()
    nested = Nested(torch.linspace(-1, 1, 256, device=where) ** 3, absmax, 2 * scales)
    return FourBit(packed, quantised, code_table("fp4" if quant == "fp4" else "nf4").to(where), BLOCK, nested)


def blocks_of(kind: str, outputs: int, inputs: int) -> Blocks:
    """A random matrix of a type of GGUF."""
    known, drawn = TYPES[kind], torch.Generator().manual_seed(outputs)
    raw = torch.randint(0, 256, (outputs, inputs // known.size * known.octets), generator=drawn, dtype=torch.uint8)

    def sane(numbers: Tensor) -> Tensor:
        if numbers.dtype != torch.float16:
            return numbers.to(device())
        # Numbers of up to 7 bits, or of fewer times scales of 6, of Q6_K times scales of 8.
        largest = 64 if known.size == 32 else 4096 if kind == "Q6_K" else 512
        return (0.5 + torch.rand(numbers.shape, generator=drawn)).div(largest * inputs**0.5).half().to(device())

    return mapped(known.read(raw, inputs), sane)


def largest(difference: Tensor) -> float:
    """The largest magnitude; infinity if there is a NaN."""
    worst = difference.abs().max()
    return float(worst) if torch.isfinite(worst) else float("inf")
