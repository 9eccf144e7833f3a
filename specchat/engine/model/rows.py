"""Numbers of rows of a pass, and the products of heads."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

from specchat.engine.hardware.out_of_memory import ran_out

TILE = 16
"""Most rows of a verify pass."""
PREFILL_ROWS = 128
"""Most rows of any pass."""

HALF_ERROR = 2.0**-25
SHARED = 1 << 19
"""Least weights of a matrix for several threads."""
SLAB = 1 << 20
"""Weights that are compared at a time."""

Product = Callable[[Tensor], Tensor]


class Linear:
    """y = x W^T + b for x float32 [rows, inputs], for drafting alone: rows may depend on each other.

    On the CPU a matrix that float16 can represent is held in float16, half the bytes; on a GPU always in bfloat16.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Initialise with `weight` float32 or, on a GPU, bfloat16 [outputs, inputs], and `bias` float32 [outputs].

        Raises:
            MemoryError, RuntimeError: memory ran out (`out_of_memory.ran_out`).
        """
        halved = None
        if weight.device.type != "cpu":
            halved = _narrow(weight, bias)
        elif fits_half(weight):
            halved = _half(weight, bias)
        self._product: Product = halved or (lambda x: linear(x, weight, bias))
        self._bytes = (2 if halved else 4) * weight.numel() + (0 if bias is None else 4 * bias.numel())

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x)

    def memory(self) -> int:
        """Bytes held between calls."""
        return self._bytes


def _narrow(weight: Tensor, bias: Tensor | None) -> Product:
    """Product of weights and inputs in bfloat16, whose sums stay float32: torch has that on GPUs alone."""
    narrow = weight.bfloat16().t()

    def product(x: Tensor) -> Tensor:
        y = torch.mm(x.bfloat16(), narrow, out_dtype=torch.float32)
        return y if bias is None else y + bias

    return product


def _half(weight: Tensor, bias: Tensor | None) -> Product | None:
    """FBGEMM product: weights packed as float16, inputs and sums float32; None if this torch lacks FBGEMM.

    Threads share a large matrix, by the same arithmetic in a call that costs more.
    """
    x = torch.zeros(1, weight.shape[1])
    try:
        with warnings.catch_warnings():
            # They warn once of their deprecation.
            warnings.simplefilter("ignore")
            if torch.get_num_threads() > 1 and weight.numel() >= SHARED:
                shared = torch.ops.quantized.linear_prepack_fp16(weight, bias)
                run = torch.ops.quantized.linear_dynamic_fp16.default
                run(x, shared)
                return lambda x: run(x, shared)
            packed = torch.fbgemm_pack_gemm_matrix_fp16(weight)
            multiply = torch.ops.aten.fbgemm_linear_fp16_weight_fp32_activation.default
            multiply(x, packed, bias)
            return lambda x: multiply(x, packed, bias)
    except (AttributeError, RuntimeError) as error:
        if ran_out(error):
            raise
        return None


def fits_half(weight: Tensor) -> bool:
    """True if float16 can represent a matrix: exactly, or but for bits of bfloat16 below 2**-25."""
    slabs = weight.split(max(1, SLAB // weight.shape[1]))
    return all(bool((slab.half().float() - slab).abs().max() <= HALF_ERROR) for slab in slabs)
