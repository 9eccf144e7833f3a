"""Patches of Triton's interpreter, which lacks row-invariant products and correct bfloat16.

The interpreter multiplies with numpy and thus with a BLAS. Some BLAS kernels, such as OpenBLAS's for AVX2, sum a row in
an order that depends on its place in the block, so that rows of kernels cannot be compared. bfloat16 is held as uint16,
multiplied as integers, and truncated instead of rounded.
"""

from typing import Any

import numpy as np
import torch


def rows_alone(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a @ b for a [rows, inner] and b [inner, columns], each element summed in `dtype` in order of `inner`."""
    products: np.ndarray = np.multiply(a.T[:, :, None], b[:, None, :], dtype=dtype, order="C")
    summed: np.ndarray = products.sum(0)
    return summed


def widened(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 in uint16 to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """Convert float32 to bfloat16 in uint16, rounded to nearest even."""
    near = torch.from_numpy(np.array(values)).to(torch.bfloat16)
    return near.view(torch.int16).numpy().view(np.uint16)


def complete() -> None:
    """Patch the interpreter of this process."""
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
