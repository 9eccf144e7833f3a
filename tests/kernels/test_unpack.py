"""4-bit weights unpacked by bytes of registers: bit for bit the numbers of the table times the scale, rounded."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from specchat.engine.formats.layout import FourBit
from specchat.engine.kernels import unpack, weight_tiles
from specchat.engine.kernels.products import ProductShape
from specchat.engine.kernels.stored import stored

pytest.importorskip("bitsandbytes.functional")
from bitsandbytes.functional import dequantize_4bit, quantize_4bit

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
ROWS, INPUTS = 32, 512
"""Every byte there is, in each row."""


@triton.jit
def _unpacked(weight, out, program: tl.constexpr):
    n, k = tl.arange(0, program.outputs), tl.program_id(0) * program.inputs
    w = unpack.four_bit(weight, weight_tiles.table(weight, program), n, k, program, out.dtype.element_ty)
    tl.store(out + n[:, None] * weight.inputs + k + tl.arange(0, program.inputs)[None, :], w)


def unpacked(
    packed: torch.Tensor,
    scales: torch.Tensor,
    code: torch.Tensor,
    dtype: torch.dtype,
    zeros: torch.Tensor | None = None,
) -> torch.Tensor:
    out = torch.empty(ROWS, INPUTS, device=DEVICE, dtype=dtype)
    weight, form = stored(FourBit(packed, scales, code, 64, zeros=zeros), None)
    program = ProductShape(form, ROWS, 64, 8, 1, INPUTS, True, None)
    _unpacked[(INPUTS // 64,)](weight, out, program, enable_fp_fusion=False)
    return out


@pytest.mark.parametrize("quant", ["nf4", "fp4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_all_codes_are_bitsandbytes(quant: str, dtype: torch.dtype) -> None:
    """All bytes, by scales whose products round up, down, and to numbers that float16 has no room for."""
    packed = torch.arange(256, dtype=torch.uint8, device=DEVICE).repeat(ROWS, 1)
    scales = torch.rand(ROWS, INPUTS // 64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    scales[:4] *= torch.tensor([[1e-6], [1e-3], [1e3], [1e5]], device=DEVICE)
    _, state = quantize_4bit(torch.zeros(ROWS, INPUTS, device=DEVICE, dtype=dtype), blocksize=64, quant_type=quant)
    state.absmax = scales.flatten()
    # As numbers: the sign of FP4's second zero depends on the processor that bitsandbytes runs on.
    expected = dequantize_4bit(packed.view(-1, 1), state)
    assert torch.equal(unpacked(packed, scales, state.code, dtype), expected)
    if not GPU:
        # What no GPU computes: by the address in the table, in float32.
        assert torch.equal(unpacked(packed, scales, state.code, torch.float32).to(dtype), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_all_numbers_less_all_zero_points(dtype: torch.dtype) -> None:
    """The whole number times the scale, rounded once: scales of 16 bits leave nothing to round before."""
    packed = torch.arange(256, dtype=torch.uint8, device=DEVICE).repeat(ROWS, 1)
    draw = torch.Generator().manual_seed(0)
    scales = torch.rand(ROWS, INPUTS // 64, generator=draw).half().float().to(DEVICE)
    zeros = (torch.arange(ROWS * INPUTS // 64) % 17 - 8).to(torch.int8).view_as(scales).to(DEVICE)
    code = torch.arange(-8.0, 8.0, device=DEVICE)
    numbers = torch.stack((packed >> 4, packed & 15), -1).flatten(1).int() - 8
    whole = (numbers - zeros.repeat_interleave(64, 1)).double() * scales.double().repeat_interleave(64, 1)
    assert torch.equal(unpacked(packed, scales, code, dtype, zeros), whole.to(dtype))


@triton.jit
def _picked(low, high, selector, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, unpack.picked(tl.load(low + i), tl.load(high + i), tl.load(selector + i)))


def test_bytes_are_picked_as_the_instruction_does() -> None:
    """`prmt` of the PTX manual, 9.7.8.7: the value's nibbles from the lowest on pick bytes of {high, low}."""
    draw = np.random.default_rng(0)
    low, high = (draw.integers(0, 2**32, 256, dtype=np.uint32) for _ in range(2))
    selector = draw.integers(0, 2**32, 256, dtype=np.uint32) & np.uint32(0x77777777)
    out = torch.empty(256, dtype=torch.uint32, device=DEVICE)
    _picked[(1,)](*(torch.from_numpy(x).to(DEVICE) for x in (low, high, selector)), out, 256)
    eight = np.concatenate([low[:, None], high[:, None]], 1).view(np.uint8)
    nibbles = selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & 7
    assert np.array_equal(out.cpu().numpy(), np.take_along_axis(eight, nibbles, 1).view(np.uint32)[:, 0])
