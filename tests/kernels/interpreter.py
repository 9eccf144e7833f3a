"""A matrix product for Triton's interpreter whose rows are alone, as those of a GPU's tensor cores are.

The interpreter multiplies with numpy and so with a BLAS. Some of its kernels, those of OpenBLAS for AVX2 among them,
sum a row in another order at another place in its block: no kernel's rows could be compared then.
"""

from typing import Any

import numpy as np
import torch


def rows_alone(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """a @ b for a [rows, inner] and b [inner, columns], each element summed in `dtype` from the first of `inner` on."""
    return np.multiply(a.T[:, :, None], b[:, None, :], dtype=dtype, order="C").sum(0)


def make_rows_alone() -> None:
    """Send every product of this process's interpreter through `rows_alone`; on a GPU nothing is interpreted."""
    if torch.cuda.is_available():
        return
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        del self, input_precision, max_num_imprecise_acc
        return TensorHandle(rows_alone(a.data, b.data, d.data.dtype) + d.data, d.dtype.scalar)

    InterpreterBuilder.create_dot = create_dot
