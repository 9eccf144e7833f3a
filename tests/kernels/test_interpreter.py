"""The product and the bfloat16 that the interpreted kernels are tested with."""

import importlib.util
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.semantic import IncompatibleTypeErrorImpl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

from tests.kernels.interpreter import rows_alone
from tests.kernels.operations import FLOATING, FUNCTIONS, REFLECTED, SIGNED


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_numbers_are_no_wider_than_their_type() -> None:
    wide, narrow = np.ones(4, np.int64), interpreter.TensorHandle(np.ones(4, np.int8), tl.int8)
    with pytest.raises(ValueError, match="exceeds"):
        interpreter.TensorHandle(wide, tl.int32)
    made = interpreter.interpreter_builder.create_add(narrow, interpreter.TensorHandle(wide, tl.int64))
    assert made.data.dtype == np.int8
    assert interpreter.TensorHandle(np.ones(4, np.bool_), tl.int1).attr == {}


KINDS = (tl.int1, tl.uint8, tl.int32, tl.uint32, tl.int64, tl.uint64, tl.float16, tl.bfloat16, tl.float32, tl.float64)
SHAPES = ((), (4,), (8,), (4, 1), (1, 8), (4, 8), (2, 8))
NUMBERS = (0, 3, -5, 2**31, -(2**31) - 1, 2**70, True, 0.0, -0.0, 1.5, 1e-40, float("inf"))
FLAGS = ((), (True, True), (True, False), (False, False, True, True), (False, False, False, True))
"""How the operations ask for their operands: pointers on either side, one type for both, a division."""


def operand(kind: Any, shape: tuple[int, ...]) -> Any:
    """Numbers that tell places apart."""
    values = np.arange(1, 1 + max(math.prod(shape), 1)).reshape(shape or (1,))
    numpy = np.uint64 if kind.is_ptr() else interpreter._get_np_dtype(kind)
    handle = interpreter.TensorHandle(values.astype(numpy), kind)
    return tl.tensor(handle, tl.block_type(kind, list(shape)) if shape else kind)


def brought(bring: Callable[..., tuple[Any, Any]], lhs: object, rhs: object, flags: tuple[bool, ...]) -> object:
    """The types and numbers of both operands, or what is wrong with them."""
    try:
        both = bring(lhs, rhs, *flags)
    except (TypeError, ValueError, OverflowError, AttributeError, IncompatibleTypeErrorImpl) as wrong:
        return type(wrong), str(wrong)
    shapes = [one.type.shape if one.type.is_block() else (1,) for one in both]
    assert np.broadcast_shapes(*(one.handle.data.shape for one in both)) == shapes[0] == shapes[1]
    spread = [np.broadcast_to(one.handle.data, shape) for one, shape in zip(both, shapes, strict=True)]
    return [
        (str(one.type), one.dtype, one.handle.dtype, values.tobytes()) for one, values in zip(both, spread, strict=True)
    ]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_operands_come_together_as_triton_brings_them() -> None:
    semantic = interpreter.interpreter_semantic
    ours, theirs = semantic.binary_op_type_checking_impl, partial(type(semantic).binary_op_type_checking_impl, semantic)
    pointers = [tl.pointer_type(tl.float32), tl.pointer_type(tl.int64)]
    of_kinds = [operand(kind, (4,)) for kind in (*KINDS, *pointers)] + [*NUMBERS]
    of_shapes = [operand(kind, shape) for kind in (tl.float32, tl.int32, pointers[0]) for shape in SHAPES] + [2]
    wrong = 0
    for operands in (of_kinds, of_shapes):
        for lhs, rhs, flags in product(operands, operands, FLAGS):
            expected = brought(theirs, lhs, rhs, flags)
            assert brought(ours, lhs, rhs, flags) == expected, (lhs, rhs, flags)
            wrong += isinstance(expected, tuple)
    assert wrong > 100


@pytest.fixture(scope="module")
def untouched() -> ModuleType:
    """The interpreter as it is without what the tests change in it."""
    spec = importlib.util.find_spec("triton.runtime.interpreter")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def copied(operand: Any) -> Any:
    """A tensor with numbers of its own, as Triton's shift to the right changes the type of those that it is given."""
    if not isinstance(operand, tl.tensor):
        return operand
    return tl.tensor(interpreter.TensorHandle(operand.handle.data.copy(), operand.handle.dtype), operand.type)


def outcome(operator: Callable[..., Any], lhs: Any, rhs: Any) -> object:
    """The type and numbers of an operation, or what is wrong with it."""
    try:
        made = operator(copied(lhs), copied(rhs))
    except (TypeError, ValueError, OverflowError, AttributeError, AssertionError, IncompatibleTypeErrorImpl) as wrong:
        return type(wrong), str(wrong)
    return str(made.type), made.dtype, made.shape, made.numel, made.handle.data.shape, made.handle.data.tobytes()


@pytest.mark.rotated(2)
@pytest.mark.filterwarnings("ignore:.*encountered in", "ignore:Value .* exceeds")
@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
@pytest.mark.parametrize("name", [*(SIGNED | FLOATING), *(f"r{name}" for name in REFLECTED)])
def test_an_operator_makes_what_triton_makes(name: str, untouched: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, as what is remembered of the first is used in the second."""
    ours = getattr(tl.tensor, f"__{name}__")
    theirs = ours.__wrapped__
    pointers = [tl.pointer_type(tl.float32), tl.pointer_type(tl.int64)]
    operands = [operand(kind, shape) for kind in (*KINDS, *pointers) for shape in ((), (4,), (4, 1))]
    of_shapes = [operand(kind, shape) for kind in (tl.float32, tl.int32, pointers[0]) for shape in SHAPES]
    numbers = [one for one in NUMBERS if "shift" not in name or one in (0, 3)]
    pairs = [*product(operands, [*operands, *numbers]), *product(of_shapes, of_shapes)]
    made = [[outcome(ours, *pair) for pair in pairs] for _ in range(2)]
    for create in FUNCTIONS:
        built = getattr(untouched.InterpreterBuilder, f"create_{create}")
        monkeypatch.setattr(interpreter.InterpreterBuilder, f"create_{create}", built)
    expected = [outcome(theirs, *pair) for pair in pairs]
    assert made[0] == made[1] == expected
    assert sum(len(one) > 2 for one in expected) > 20  # type: ignore[arg-type]


@triton.jit
def _mixed(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)
    value = tl.load(x + rows * COLUMNS + columns, mask=(rows > 0) & (columns < COLUMNS - 1), other=-1.0)
    value = tl.where((rows + columns) % 2 == 0, 1 - value, value / 3)
    tl.store(out + rows * COLUMNS + columns, tl.maximum(value, -0.5) + (3 - columns) // 2 - (rows << 1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
def test_numbers_rows_and_columns_are_those_of_the_formula() -> None:
    x, out = torch.from_numpy(drawn(4, 8)), torch.empty(4, 8)
    rows, columns = torch.arange(4)[:, None], torch.arange(8)
    for _ in range(2):
        _mixed[(1,)](x, out, 4, 8)
        value = torch.where((rows > 0) & (columns < 7), x, torch.tensor(-1.0))
        value = torch.where((rows + columns) % 2 == 0, 1 - value, value / 3)
        assert torch.equal(out, value.clamp(min=-0.5) + ((3 - columns) / 2).trunc() - rows * 2)


@triton.jit
def _accessed(x, count, out, SIZE: tl.constexpr):
    """Loads and stores with and without a mask, of one number and of blocks; choices between blocks and numbers."""
    place, least = tl.arange(0, SIZE), tl.load(count)
    every, some = tl.load(x + place), tl.load(x + place, mask=place < least)
    # Zeros stand for what is masked: of these the interpreter has them, other than a GPU.
    other = tl.load(x + place, mask=place < least, other=7)
    tl.store(out + place, tl.where(place < 3, some, -1.0))
    tl.store(out + SIZE + place, tl.where(place < 3, 2.5, other), mask=place != 1)
    tl.store(out + 2 * SIZE + place, tl.where(place < 3, every, some + other))
    tl.store(out + 3 * SIZE + place, 1, mask=place < least)
    cube = place[:, None, None] * 4 + tl.arange(0, 2)[None, :, None] * 2 + tl.arange(0, 2)[None, None, :]
    tl.store(out + 4 * SIZE + cube, tl.where(cube < least, float("inf"), cube.to(tl.float32)))
    tl.store(out + 8 * SIZE, least)


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the GPU here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8])
def test_loads_stores_and_choices_are_those_of_the_formula(dtype: torch.dtype) -> None:
    size, least = 8, 5
    x, place = torch.arange(10, 10 + size, dtype=dtype), torch.arange(size)
    some, other = (torch.where(place < least, x.float(), float(instead)) for instead in (0, 7))
    cube = torch.arange(4 * size)
    for _ in range(2):
        out = torch.full((8 * size + 1,), -3.0)
        _accessed[(1,)](x, torch.tensor([least], dtype=torch.int32), out, size)
        rows = out[:-1].view(8, size)
        assert torch.equal(rows[0], torch.where(place < 3, some, -1.0))
        assert torch.equal(rows[1], torch.where(place == 1, -3.0, torch.where(place < 3, 2.5, other)))
        assert torch.equal(rows[2], torch.where(place < 3, x.float(), some + other))
        assert torch.equal(rows[3], torch.where(place < least, 1.0, -3.0))
        assert torch.equal(out[4 * size : -1], torch.where(cube < least, float("inf"), cube.float()))
        assert out[-1] == least


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
