"""Mends of Triton's interpreter, which lacks two things of a GPU: rows of a product that are alone, and bfloat16.

The interpreter multiplies with numpy and so with a BLAS. Some of its kernels, those of OpenBLAS for AVX2 among them,
sum a row in another order at another place in its block: no kernel's rows could be compared then. bfloat16 it keeps as
uint16, multiplies as that, and cuts off instead of rounding.
"""

from typing import Any

import numpy as np
import torch


def rows_alone(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """a @ b for a [rows, inner] and b [inner, columns], each element summed in `dtype` from the first of `inner` on."""
    products: np.ndarray = np.multiply(a.T[:, :, None], b[:, None, :], dtype=dtype, order="C")
    summed: np.ndarray = products.sum(0)
    return summed


def widened(bits: np.ndarray) -> np.ndarray:
    """float32 of bfloat16 in uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """bfloat16 in uint16 of float32, rounded to the nearest, to the even one of two."""
    near = torch.from_numpy(np.array(values)).to(torch.bfloat16)
    return near.view(torch.int16).numpy().view(np.uint16)


def complete() -> None:
    """Give this process's interpreter both."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    cast = InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        match (source.dtype.scalar, kind.scalar):
            case (tl.bfloat16, tl.float32):
                return TensorHandle(widened(source.data), tl.float32)
            case (tl.float32 | tl.int8, tl.bfloat16):
                return TensorHandle(rounded(source.data.astype(np.float32)), tl.bfloat16)
        return cast(self, source, kind)

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        del self, input_precision, max_num_imprecise_acc
        left, right = (widened(x.data) if x.dtype.scalar == tl.bfloat16 else x.data for x in (a, b))
        return TensorHandle(rows_alone(left, right, d.data.dtype) + d.data, d.dtype.scalar)

    InterpreterBuilder.cast_impl = cast_impl
    InterpreterBuilder.create_dot = create_dot
