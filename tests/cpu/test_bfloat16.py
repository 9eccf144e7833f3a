"""Products of bfloat16 rows: each sum the one that its rounding gives, with the instruction for it and without."""

import re
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int64
from fractions import Fraction
from math import inf, isfinite, nan
from platform import machine
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu import compiled, packed
from specchat.engine.cpu.packed import Packed, look_up
from specchat.engine.cpu.primitives.simd import features
from specchat.engine.cpu.products import bfloat16, columns, products
from specchat.engine.cpu.products.bfloat16 import FLAGGED, INSTRUCTION, PLAIN
from specchat.engine.cpu.products.products import FIRST, KERNELS, MOST
from specchat.engine.formats.bfloat16_rows import to_bfloat16
from specchat.engine.memory.vectors import LANES
from tests.cpu.test_dots_compiled import X86, assembled
from tests.cpu.test_products import INPUTS, OUTPUTS, matrix, product

pytestmark = pytest.mark.cpu
LEAST = 2.0**-126
"""The smallest normal float32."""
CALL = CFUNCTYPE(None, *[c_int64] * 8)


_COMPILED: dict[tuple[str, int], NDArray[np.int64]] = {}
"""Products by way and format: matrices have their addresses."""


def kernels(form: int) -> NDArray[np.int64]:
    """Products compiled for the way of the moment."""
    if (bfloat16.way(), form) not in _COMPILED:
        _COMPILED[bfloat16.way(), form] = products.kernels.__wrapped__(form)
    return _COMPILED[bfloat16.way(), form]


@pytest.fixture(params=[INSTRUCTION, FLAGGED, PLAIN])
def packed_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Tensor], Packed]:
    """Pack a matrix for each way to add products that this processor has."""
    if request.param == INSTRUCTION and "+avx512bf16" not in features():
        pytest.skip("this processor has no AVX-512 BF16")
    if request.param == FLAGGED and machine() not in bfloat16.X86:
        pytest.skip("this processor has no such flags")
    if request.param != bfloat16.way():
        # Tiles of more rows are those of three, unrolled further; each takes a tenth of a second to compile.
        for name in ("WIDE", "NARROW"):
            few = dict(list(getattr(columns, name).items())[:3])
            monkeypatch.setattr(columns, name, few)
    monkeypatch.setattr(bfloat16, "way", lambda: request.param)
    monkeypatch.setattr(compiled, "caches_code", lambda: False)
    monkeypatch.setattr(packed, "kernels", kernels)

    def made(weight: Tensor) -> Packed:
        found = Packed(activations="bfloat16")
        found.add(weight)
        return found

    return made


def of_rows(packed: Packed, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The product of at most as many rows as one call takes, without the norm that a pass has before it."""
    row = packed.table[0]
    panels, functions = int(row["panels"]), int(row["functions"])
    table = np.ctypeslib.as_array((c_int64 * KERNELS).from_address(functions))
    out = np.zeros((len(x), LANES * panels), np.float32)
    assert len(x) <= table[MOST]
    address = int(table[FIRST + len(x) - 1])
    arguments = x.ctypes.data, x.shape[1], packed.table.ctypes.data, out.ctypes.data, out.shape[1], 0, panels, len(x)
    CALL(address)(*arguments)
    return out


def rounded_once(value: Fraction) -> float:
    """The nearest float32; 0 below the smallest normal one."""
    found = float(np.float32(0))
    if value:
        exponent = max(-126, _exponent(abs(value))) - 23
        whole = value / Fraction(2) ** exponent
        found = float(round(whole) * Fraction(2) ** exponent)
    return found if abs(found) >= LEAST else 0.0


def _exponent(value: Fraction) -> int:
    found = value.numerator.bit_length() - value.denominator.bit_length()
    return found if Fraction(2) ** found <= value else found - 1


def enumerated(x: NDArray[np.float32], weight: Tensor) -> NDArray[np.float32]:
    """The sums, in exact numbers: of two inputs the odd one first, each rounded once."""
    rows, weights = (to_bfloat16(one).double().tolist() for one in (torch.from_numpy(x), weight))
    found = np.zeros((len(rows), len(weights)), np.float32)
    for r, row in enumerate(rows):
        for n, column in enumerate(weights):
            total = 0.0
            for k in range(0, len(row), 2):
                for at in (k + 1, k):
                    total = rounded_once(Fraction(total) + Fraction(row[at]) * Fraction(column[at]))
            found[r, n] = total
    return found


@pytest.mark.parametrize("size", [1.0, 2.0**-62])
def test_a_sum_is_the_one_that_its_rounding_gives(size: float, packed_as: Callable[[Tensor], Packed]) -> None:
    made = torch.Generator().manual_seed(1)
    weight = torch.randn(130, 32, generator=made) * size
    x = (torch.randn(3, 32, generator=made) * size).numpy()
    found = of_rows(packed_as(weight), x)
    some = [*range(LANES), *range(126, 130)]  # the lanes of a vector, and both sides of a panel's edge
    np.testing.assert_array_equal(found[:, some], enumerated(x, weight[some]))
    assert found[:, some].any()


def test_a_row_is_what_it_is_alone(packed_as: Callable[[Tensor], Packed]) -> None:
    packed = packed_as(matrix())
    x = np.random.default_rng(3).standard_normal((37, INPUTS)).astype(np.float32)
    found = product(packed, x)
    assert not found[:, OUTPUTS:].any()
    unit = torch.from_numpy(x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True))).float()
    expected = to_bfloat16(unit).double() @ to_bfloat16(matrix()).double().T
    # The norm may round a value to the next bfloat16.
    np.testing.assert_allclose(found[:, :OUTPUTS], expected.numpy(), atol=0.05)
    assert np.median(np.abs(found[:, :OUTPUTS] - expected.numpy())) < 1e-5
    for first, count in ((0, 1), (1, 1), (3, 2), (5, 3), (4, 8), (7, 30)):
        np.testing.assert_array_equal(product(packed, x[first : first + count]), found[first : first + count])


def test_a_row_of_the_table_is_the_weights_in_bfloat16(packed_as: Callable[[Tensor], Packed]) -> None:
    weight = matrix()
    weight[0, :4] = torch.tensor([1e-39, -1e-40, 3.4028235e38, 1.00390625])
    expected = to_bfloat16(weight).float()
    assert expected[0, :2].tolist() == [0.0, -0.0]
    packed = packed_as(weight)
    np.testing.assert_array_equal(look_up(packed.table, range(OUTPUTS)), expected.numpy())


@pytest.mark.parametrize("value", [nan, inf, -inf, 3.4028235e38, 1e30, 1e-40, -0.0, 1.00390625, 1.01171875])
def test_a_row_of_any_value_has_the_sum_that_float32_has(value: float, packed_as: Callable[[Tensor], Packed]) -> None:
    weight, x = torch.zeros(128, 32), np.zeros((2, 32), np.float32)
    weight[:, 5], weight[:, 8] = 1.0, 2.0
    x[0, 5], x[0, 8] = value, 3.0
    x[1, 8] = 3.0
    found = of_rows(packed_as(weight), x)
    as_bfloat16 = float(to_bfloat16(torch.tensor(value)).float())
    np.testing.assert_array_equal(found[0], np.full(128, as_bfloat16 + 6.0 if isfinite(value) else value, np.float32))
    np.testing.assert_array_equal(found[1], np.full(128, 6.0, np.float32))


@pytest.mark.parametrize("processor", ["znver4", "sapphirerapids"])
def test_the_instruction_adds_and_nothing_is_called(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "way", lambda: INSTRUCTION)
    emit: Any = bfloat16.pair_tile._defn.__wrapped__  # type: ignore[attr-defined]
    code = assembled(lambda builder, *given: emit(builder, 4, 2, *given), 5, X86, processor)
    assert len(re.findall(r"\bvdpbf16ps\b.*%zmm", code)) >= 4 * 2
    assert not re.findall(r"\bcall", code)
