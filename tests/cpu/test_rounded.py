"""Products of rows in 8 bits: the sums they should be, whatever the rows beside them and the instructions."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specchat.engine.cpu import compiled, packed
from specchat.engine.cpu.packed import Packed, format_of, look_up
from specchat.engine.cpu.products import columns, dots, integers, products
from specchat.engine.cpu.products.columns import is_rounded
from specchat.engine.cpu.products.dots import WAYS, Dots
from specchat.engine.cpu.products.unpacked import FOR_MANY
from specchat.engine.formats.gguf import SIZES, TYPES
from specchat.engine.formats.grids import GRIDS
from specchat.engine.formats.int8_rows import rounded
from specchat.engine.formats.layout import Blocks, EightBit, FourBit, GridBlocks
from specchat.engine.formats.mxfp4 import CODE as MXFP4_CODE
from specchat.engine.formats.quantise import dequantised
from tests.cpu.test_products import INPUTS, OUTPUTS, by_powers, by_tabled, four_bits, matrix, product, with_zeros

pytestmark = pytest.mark.cpu


def eight_bits(seed: int = 0) -> EightBit:
    """Random bytes of all values, -128 among them."""
    values = torch.randint(-128, 128, (OUTPUTS, INPUTS), generator=torch.Generator().manual_seed(seed))
    values[3, :4] = -128
    return EightBit(values.to(torch.int8), torch.rand(OUTPUTS, generator=torch.Generator().manual_seed(seed)) / 99)


def in_file(kind: str, seed: int = 0) -> Blocks:
    """A random matrix of a type of GGUF, whose scales are of a size."""
    made, inputs = np.random.default_rng(seed), 512
    raw = made.integers(0, 256, (OUTPUTS, inputs // SIZES[kind][0] * SIZES[kind][1]), dtype=np.uint8)
    weight = TYPES[kind].read(torch.from_numpy(raw), inputs)
    parts = {name: getattr(weight, name) for name in ("scales", "minimums", "supers", "minimum_supers")}
    floats = {name: one for name, one in parts.items() if one is not None and one.is_floating_point()}
    halves = torch.Generator().manual_seed(seed)
    return replace(
        weight, **{name: torch.rand(one.shape, generator=halves).half() / 99 for name, one in floats.items()}
    )


WEIGHTS: dict[str, Callable[[], EightBit | FourBit | Blocks]] = {
    "int8": eight_bits,
    "int4": lambda: replace(with_zeros(32), zeros=None),
    "int4 of 64 with zeros": lambda: with_zeros(64),
    "MXFP4": lambda: replace(by_powers(32), code=torch.tensor(MXFP4_CODE)),
    "NVFP4": lambda: replace(by_tabled(16), code=torch.tensor(MXFP4_CODE)),
} | {kind: (lambda kind=kind: in_file(kind)) for kind in TYPES}  # type: ignore[misc]
UNLIKE = ("Q4_0", "Q4_1", "Q8_0", "Q2_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_S")
"""Types of GGUF of which each unpacks in another way."""


def mostly(names: Iterable[str]) -> list[Any]:
    """Names of weights as parameters; types of GGUF that unpack as another does are slow."""
    alike = TYPES.keys() - set(UNLIKE)
    return [pytest.param(name, marks=pytest.mark.slow if name in alike else ()) for name in names]


COMMON = ("int8", "int4", "Q4_0", "Q6_K")
"""Weights whose products are compiled in tiles as they run; others in small ones, which take least to compile."""
KERNELS = cache(products.kernels.__wrapped__)
"""Small products by format: matrices have their addresses."""


@pytest.fixture(autouse=True)
def _small_tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    params = getattr(request.node, "callspec", None)
    name = params and (params.params.get("name") or params.params.get("kind"))
    if name and name not in COMMON:
        monkeypatch.setattr(compiled, "caches_code", lambda: False)
        monkeypatch.setattr(packed, "kernels", KERNELS)
        for wide in (True, False):
            monkeypatch.setitem(columns.ROUNDED, wide, {1: 1, FOR_MANY: 1})
            monkeypatch.setitem(columns.OF_ROUNDED, wide, 2)


def rows_of(count: int, inputs: int) -> NDArray[np.float32]:
    """Rows of a root mean square of one, which the norm before a product leaves as they are, with outliers."""
    x = np.random.default_rng(3).standard_normal((count, inputs)).astype(np.float32)
    x[0, 5], x[1, 7:9] = 300, -40
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True)).astype(np.float32)


def packed_of(name: str) -> tuple[Packed, EightBit | FourBit | Blocks]:
    weight, packed = WEIGHTS[name](), Packed(activations="int8")
    assert is_rounded(format_of(weight, "int8"))
    packed.add(weight, torch.arange(OUTPUTS).float())
    return packed, weight


@pytest.mark.rotated(3, 2)
@pytest.mark.parametrize("name", mostly(WEIGHTS))
def test_a_product_is_that_of_rounded_rows_and_a_row_what_it_is_alone(name: str) -> None:
    packed, weight = packed_of(name)
    x = rows_of(37, weight.shape[1])
    unit = (x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True))).astype(np.float32)
    dense = dequantised(weight, torch.float32).double()
    expected = rounded(torch.from_numpy(unit), weight).double() @ dense.T + torch.arange(OUTPUTS)
    found = product(packed, x)
    scale = float((rounded(torch.from_numpy(unit), weight).double().abs() @ dense.abs().T).max())
    # The norm may round a value of a row to the next number: one step of its block, of one weight.
    np.testing.assert_allclose(found[:, :OUTPUTS], expected.numpy(), atol=2e-3 * scale)
    assert np.median(np.abs(found[:, :OUTPUTS] - expected.numpy())) < 1e-6 * scale
    assert not found[:, OUTPUTS:].any()
    for first, count in ((0, 1), (1, 1), (3, 2), (5, 3), (4, 8), (7, 30)):
        np.testing.assert_array_equal(product(packed, x[first : first + count]), found[first : first + count])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("octet", [0, 255])
@pytest.mark.parametrize("kind", mostly(TYPES))
def test_sums_of_the_largest_numbers_are_held(kind: str, octet: int) -> None:
    """All numbers of the weights are the first or the last one, of a codebook the largest; those of rows are, too."""
    weight = in_file(kind)
    planes = {"low": weight.low, "high": weight.high}
    full = {name: torch.full_like(plane, octet) for name, plane in planes.items() if plane is not None}
    if isinstance(weight, GridBlocks):
        largest = len(weight.grid.magnitudes) - 1
        full["codebook"] = torch.full_like(weight.codebook, int(str(largest) * weight.grid.values, 16))
    weight, packed = replace(weight, **full), Packed(activations="int8")
    packed.add(weight)
    signs = np.random.default_rng(1).choice(np.float32([-1, 1]), weight.shape[1])
    x = np.stack([np.ones_like(signs), -np.ones_like(signs), signs])
    dense = dequantised(weight, torch.float32).double().numpy()
    np.testing.assert_allclose(product(packed, x)[:, :OUTPUTS], x @ dense.T, rtol=1e-5, atol=1e-3)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", mostly(WEIGHTS))
def test_a_row_of_the_table_is_read_as_it_is(name: str) -> None:
    packed, weight = packed_of(name)
    np.testing.assert_array_equal(look_up(packed.table, range(OUTPUTS)), dequantised(weight, torch.float32).numpy())


@pytest.mark.parametrize("kind", GRIDS)
def test_a_codebook_is_looked_up_beside_rows_of_float32_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "kernels", lambda _: np.zeros(1, np.int64))
    found, weight = Packed(), in_file(kind)
    found.add(weight)
    np.testing.assert_array_equal(look_up(found.table, range(OUTPUTS)), dequantised(weight, torch.float32).numpy())


class _Imitated(WAYS["AVX-512 VNNI"]):  # type: ignore[misc]
    """The way of VNNI, with the instruction imitated: unsigned bytes times signed ones."""

    def _add(self, before: Any, weights: Any, inputs: Any) -> Any:
        for byte in range(4):
            products = self._builder.mul(self._byte(weights, byte, False), self._byte(inputs, byte, True))
            before = self._builder.add(before, products)
        return before


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[Dots]], None]:
    """Multiply in another way: what is compiled for it is neither kept in files nor taken for what there is."""
    tables = []

    def kernels(form: int) -> NDArray[np.int64]:
        # Products have the address of their table.
        tables.append(products.kernels.__wrapped__(form))
        return tables[-1]

    def use(name: str, way: type[Dots]) -> None:
        monkeypatch.setitem(WAYS, name, way)
        monkeypatch.setattr(dots, "way", lambda: name)
        monkeypatch.setattr(integers, "way", lambda: name)
        monkeypatch.setattr(compiled, "caches_code", lambda: False)
        monkeypatch.setattr(packed, "kernels", kernels)
        # One function for all numbers of rows, in small tiles, which take least to compile.
        for wide in (True, False):
            monkeypatch.setitem(columns.ROUNDED, wide, {FOR_MANY: 1})
            monkeypatch.setitem(columns.OF_ROUNDED, wide, 2)

    return use


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("name", ["int8", "int4 of 64 with zeros", "Q5_K", "Q6_K", "IQ4_XS"])
def test_all_ways_give_the_same_bits(name: str, by: Callable[[str, type[Dots]], None]) -> None:
    x = rows_of(9, WEIGHTS[name]().shape[1])
    found = product(packed_of(name)[0], x)
    for way in (Dots, _Imitated):
        by("plain", way)
        np.testing.assert_array_equal(product(packed_of(name)[0], x), found)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_makes_its_own_row_none(value: float) -> None:
    packed, weight = packed_of("Q4_0")
    x = rows_of(3, weight.shape[1])
    before = product(packed, x)
    x[1, 40] = value
    found = product(packed, x)
    assert np.isnan(found[1, :OUTPUTS]).all()
    np.testing.assert_array_equal(found[[0, 2]], before[[0, 2]])


def test_weights_that_are_no_whole_numbers_keep_rows_of_float32() -> None:
    for weight in (four_bits(32), matrix().half(), eight_bits()):
        odd = EightBit(weight.values[:, :-8].contiguous(), weight.scales) if isinstance(weight, EightBit) else weight
        assert format_of(odd, "int8") == format_of(odd)
