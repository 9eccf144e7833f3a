"""The product that the interpreted kernels are tested with."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.kernels.interpreter import rows_alone

pytestmark = pytest.mark.cpu


def drawn(rows: int, columns: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(16, 32, 64), (64, 256, 16), (1, 64, 1)])
def test_a_row_is_the_same_at_any_place_among_any_others(rows: int, inner: int, columns: int, dtype: type) -> None:
    a, b = drawn(rows, inner, dtype), drawn(inner, columns, dtype)
    whole = rows_alone(a, b, np.float32)
    np.testing.assert_allclose(whole, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-4)
    for shift in range(rows):
        assert np.array_equal(rows_alone(np.roll(a, shift, 0), b, np.float32), np.roll(whole, shift, 0))
    alone = np.zeros_like(a)
    alone[-1] = a[0]
    assert np.array_equal(rows_alone(alone, b, np.float32)[-1], whole[0])
    assert np.array_equal(rows_alone(a, np.asfortranarray(b), np.float32), whole)


@triton.jit
def _dot(a, b, out, ROWS: tl.constexpr, INNER: tl.constexpr, COLUMNS: tl.constexpr):
    rows, inner, columns = tl.arange(0, ROWS), tl.arange(0, INNER), tl.arange(0, COLUMNS)
    left = tl.load(a + rows[:, None] * INNER + inner)
    right = tl.load(b + inner[:, None] * COLUMNS + columns)
    tl.store(out + rows[:, None] * COLUMNS + columns, tl.dot(left, right, input_precision="ieee"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_kernels_multiply_so() -> None:
    a, b, out = torch.from_numpy(drawn(16, 64)), torch.from_numpy(drawn(64, 32)), torch.empty(16, 32)
    _dot[(1,)](a, b, out, 16, 64, 32)
    assert np.array_equal(out.numpy(), rows_alone(a.numpy(), b.numpy(), np.float32))
