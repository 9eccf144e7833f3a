"""The product and the bfloat16 that the interpreted kernels are tested with."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

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


@triton.jit
def _unlike(out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tl.store(out + tl.arange(0, ROWS), tl.arange(0, ROWS) + tl.arange(0, COLUMNS))


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_shapes_that_are_remembered_are_told_apart() -> None:
    for _ in range(2):
        one, other, third = (
            tl.block_type(kind, [16, columns]) for kind, columns in ((tl.float32, 32), (tl.int32, 32), (tl.float32, 64))
        )
        assert one == tl.block_type(tl.float32, [16, 32])
        assert [kind == one for kind in (other, third, tl.float32)] == [False] * 3
        assert [(list(kind.shape), kind.numel, kind.scalar) for kind in (one, other, third)] == [
            ([16, 32], 512, tl.float32),
            ([16, 32], 512, tl.int32),
            ([16, 64], 1024, tl.float32),
        ]
        with pytest.raises(ValueError, match="power of 2"):
            tl.block_type(tl.float32, [16, 33])
        with pytest.raises(InterpreterError, match="incompatible dimensions"):
            _unlike[(1,)](torch.empty(16, dtype=torch.int32), 16, 32)


@triton.jit
def _scaled(x, copy, out, SIZE: tl.constexpr):
    place = tl.arange(0, SIZE)
    value = tl.load(x + place, mask=place < SIZE - 1, other=0.0)
    tl.store(copy + place, value)
    tl.store(out + place, (value.to(tl.float32) * 1.2345).to(tl.bfloat16))


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_bfloat16_is_torchs() -> None:
    x = torch.from_numpy(drawn(1, 4096)[0]).to(torch.bfloat16)
    x[:6] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1e-40, 2.5e38])
    copy, out = torch.empty_like(x), torch.empty_like(x)
    _scaled[(1,)](x, copy, out, len(x))
    x[-1] = 0.0
    assert torch.equal(copy.view(torch.int16), x.view(torch.int16))
    expected = (x.float() * 1.2345).to(torch.bfloat16)
    assert torch.equal(out[1:].view(torch.int16), expected[1:].view(torch.int16))
    assert out[0].isnan()


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_bfloat16_is_multiplied_as_its_values() -> None:
    a, b = (torch.from_numpy(drawn(*shape)).to(torch.bfloat16) for shape in ((16, 64), (64, 32)))
    out = torch.empty(16, 32)
    _dot[(1,)](a, b, out, 16, 64, 32)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-5, atol=1e-5)
