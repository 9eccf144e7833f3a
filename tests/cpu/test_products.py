"""Products with packed weights: near the exact sums, and every row what it is alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from specchat.engine.cpu.description.buffers import pass_buffers
from specchat.engine.cpu.layers.passes import HEAD as HEAD_CODE
from specchat.engine.cpu.packed import Packed, format_of, look_up
from specchat.engine.cpu.primitives.records import HEAD, PASS, Structure
from specchat.engine.cpu.products.block_form import SHIFTED
from specchat.engine.cpu.products.columns import MOST_BLOCKS
from specchat.engine.cpu.products.tiles import FLOAT32
from specchat.engine.cpu.threads.dispatch import board, lead
from specchat.engine.formats.layout import FourBit, Weight
from specchat.engine.formats.quantise import code_table, dequantised, quantise
from specchat.engine.formats.scale_tables import by_table
from specchat.engine.memory.vectors import LANES

pytestmark = pytest.mark.cpu
OUTPUTS, INPUTS = 200, 192
"""The outputs fill no vector, let alone a tile."""


def matrix(seed: int = 0) -> Tensor:
    return torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(seed))


def four_bits(block: int, inputs: int = INPUTS) -> FourBit:
    """Random bytes, of a code whose numbers need all bits of a float32."""
    made = torch.Generator().manual_seed(6)
    packed = torch.randint(256, (OUTPUTS, inputs // 2), generator=made, dtype=torch.uint8)
    return FourBit(packed, torch.rand(OUTPUTS, inputs // block, generator=made), torch.randn(16, generator=made), block)


def with_zeros(block: int, inputs: int = INPUTS) -> FourBit:
    """Whole numbers, of which those from -8 to 8 are taken away."""
    weight, made = four_bits(block, inputs), torch.Generator().manual_seed(7)
    zeros = torch.randint(-8, 9, weight.scales.shape, generator=made, dtype=torch.int8)
    return replace(weight, code=code_table("int4"), zeros=zeros)


def by_powers(block: int, inputs: int = INPUTS) -> FourBit:
    """Scales that are powers of two, of which a byte holds the exponent."""
    weight, made = four_bits(block, inputs), torch.Generator().manual_seed(8)
    weight.code[0] = 0
    return replace(weight, scales=torch.exp2(torch.randint(-9, 3, weight.scales.shape, generator=made).float()))


def by_tabled(block: int) -> FourBit:
    """Scales in bytes, whose values a table has."""
    weight, made = by_powers(block), torch.Generator().manual_seed(9)
    scales = torch.randint(256, weight.scales.shape, generator=made, dtype=torch.uint8)
    return by_table(weight, scales, torch.rand(256, generator=made))


FORMATS: dict[str, Callable[[], Weight]] = {
    "float32": matrix,
    "float16": lambda: matrix().half(),
    "bfloat16": lambda: matrix().bfloat16(),
    "float32 that float16 holds": lambda: matrix().half().float(),
    "int8": lambda: quantise(matrix(), "int8"),
    "nf4": lambda: quantise(matrix(), "nf4"),
    "fp4": lambda: quantise(matrix(), "fp4"),
    "4 bits in blocks of 32": lambda: four_bits(32),
    "4 bits with zeros": lambda: with_zeros(64),
    "4 bits with exponents": lambda: by_powers(32),
    "4 bits with scales of a table": lambda: by_tabled(16),
}


def product(packed: Packed, x: NDArray[np.float32], cap: float = 0.0) -> NDArray[np.float32]:
    """x W^T + b as the last product of a pass is made, but for the norm: its weights and its eps make nothing of it."""
    table = packed.table
    rows, inputs = x.shape
    out = np.zeros((rows, LANES * int(table[0]["panels"])), np.float32)
    unit = (x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True))).astype(np.float32)
    head = Structure(HEAD, matrix=table, norm=np.ones(inputs, np.float32), cap=cap, logits=out, logits_row=out.shape[1])
    own, scores = np.zeros((1, 2, rows, max(inputs, 128)), np.float32), np.zeros((1, 1), np.float32)
    buffers = pass_buffers(out, own, scores)
    lead(
        board(1),
        Structure(PASS, x=unit, rows=rows, hidden=inputs, head=head, head_code=HEAD_CODE, **buffers).address,
        1,
    )
    return out


def exact(weight: Weight, bias: Tensor, x: NDArray[np.float32]) -> NDArray[np.float64]:
    unit = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True))
    dense = dequantised(weight, torch.float32).double().numpy()
    return unit @ dense.T + bias.double().numpy()


@pytest.mark.parametrize("name", FORMATS)
def test_a_product_is_the_sum_it_should_be(name: str) -> None:
    if name in ("int8", "nf4", "fp4"):
        pytest.importorskip("bitsandbytes")
    weight, bias = FORMATS[name](), torch.randn(OUTPUTS, generator=torch.Generator().manual_seed(2))
    packed = Packed()
    packed.add(weight, bias)
    x = np.random.default_rng(3).standard_normal((37, INPUTS)).astype(np.float32)
    found = product(packed, x)
    np.testing.assert_allclose(found[:, :OUTPUTS], exact(weight, bias, x), atol=1e-4, rtol=1e-5)
    assert not found[:, OUTPUTS:].any()


def test_a_cap_is_the_tanh_of_what_there_was() -> None:
    packed, x = Packed(), np.random.default_rng(5).standard_normal((5, INPUTS)).astype(np.float32)
    packed.add(matrix())
    plain, below = product(packed, x), product(packed, x, cap=0.5)
    np.testing.assert_allclose(below, 0.5 * np.tanh(plain.astype(np.float64) / 0.5), atol=2e-7)
    np.testing.assert_array_equal(product(packed, x[3:4], cap=0.5)[0], below[3])


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_is_what_it_is_alone(name: str) -> None:
    if name in ("int8", "nf4", "fp4"):
        pytest.importorskip("bitsandbytes")
    packed = Packed()
    packed.add(FORMATS[name]())
    x = np.random.default_rng(4).standard_normal((128, INPUTS)).astype(np.float32)
    alone = np.concatenate([product(packed, x[i : i + 1]) for i in range(20)])
    for rows in (*range(1, 20), 31, 33, 128):
        np.testing.assert_array_equal(product(packed, x[:rows])[:20], alone[:rows])
    np.testing.assert_array_equal(product(packed, x[1:20]), alone[1:])


@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("made", [four_bits, with_zeros, by_powers])
def test_each_weight_of_four_bits_is_its_number_of_the_code(made: Callable[[int, int], FourBit], block: int) -> None:
    """Rows that are zero but for one input, whose root mean square is a power of two: no sum is rounded."""
    inputs = 256
    weight = made(block, inputs)
    packed = Packed()
    packed.add(weight)
    octets = weight.packed.numpy()
    nibbles = np.stack([octets >> 4, octets & 15], axis=2).reshape(OUTPUTS, inputs)
    zeros = np.zeros_like(weight.scales) if weight.zeros is None else weight.zeros.numpy()
    dense = (weight.code.numpy()[nibbles] - zeros.repeat(block, axis=1)) * weight.scales.numpy().repeat(block, axis=1)
    found = product(packed, np.eye(inputs, dtype=np.float32))
    np.testing.assert_array_equal(found[:, :OUTPUTS], np.sqrt(np.float32(inputs)) * dense.T)


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "Q6_K"])
def test_each_weight_in_blocks_is_what_it_stands_for(kind: str) -> None:
    """As above; whatever is taken away from a whole block leaves each weight exact, alone and among 32 rows."""
    pytest.importorskip("gguf")
    from tests.engine.test_gguf_types import matrix as matrix_of

    weight, packed = matrix_of(kind, OUTPUTS, 256), Packed()
    packed.add(weight)
    found = product(packed, np.eye(256, dtype=np.float32))
    dense = dequantised(weight, torch.float32).numpy()
    np.testing.assert_array_equal(found[:, :OUTPUTS], 16 * dense.T)
    np.testing.assert_array_equal(look_up(packed.table, range(OUTPUTS)), dense)
    for rows in range(1, 10) if kind == "Q4_K" else (1,):
        np.testing.assert_array_equal(product(packed, np.eye(256, dtype=np.float32)[9 : 9 + rows]), found[9 : 9 + rows])


def test_parts_that_begin_a_vector_keep_their_outputs() -> None:
    weight, bias = matrix().half(), torch.arange(OUTPUTS).float()
    together, apart = Packed(), Packed()
    together.add(weight, bias)
    apart.add(weight, bias, ends=(40,))
    x = np.random.default_rng(5).standard_normal((3, INPUTS)).astype(np.float32)
    whole, split = product(together, x), product(apart, x)
    np.testing.assert_array_equal(split[:, :40], whole[:, :40])
    np.testing.assert_array_equal(split[:, 128 : 128 + OUTPUTS - 40], whole[:, 40:OUTPUTS])


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_a_packed_table_is_looked_up_as_it_is(name: str) -> None:
    weight = FORMATS[name]()
    assert isinstance(weight, Tensor)
    packed = Packed()
    packed.add(weight)
    rows = look_up(packed.table, [0, 199, 17])
    np.testing.assert_array_equal(rows, weight[[0, 199, 17]].float().numpy())


def test_weights_are_kept_in_the_fewest_bytes_that_hold_them() -> None:
    sizes = {
        name: format_of(FORMATS[name]()) for name in ("float32", "float16", "bfloat16", "float32 that float16 holds")
    }
    assert sizes["float32 that float16 holds"] == sizes["float16"]
    assert len(set(sizes.values())) == 3
    assert format_of(matrix().bfloat16().float() * 2.0**-100) == sizes["bfloat16"]


def test_four_bits_are_packed_as_two_inputs_a_byte() -> None:
    pytest.importorskip("bitsandbytes")
    weight = quantise(matrix(), "nf4")
    assert isinstance(weight, FourBit)
    packed = Packed()
    packed.add(weight)
    assert packed.memory() == -(-OUTPUTS // LANES) * LANES * (INPUTS // 2 + 4 * INPUTS // weight.block) + 64


def test_powers_of_two_take_a_byte_each_even_the_least_that_a_byte_names() -> None:
    weight = by_powers(32)
    weight.scales[3, 2] = 2.0**-127
    packed = Packed()
    packed.add(weight)
    assert packed.memory() == -(-OUTPUTS // LANES) * LANES * (INPUTS // 2 + INPUTS // weight.block) + 64
    rows = look_up(packed.table, range(OUTPUTS))
    np.testing.assert_array_equal(rows, dequantised(weight, torch.float32).numpy())


@pytest.mark.parametrize(("blocks", "form"), [(MOST_BLOCKS, SHIFTED), (MOST_BLOCKS + 1, FLOAT32)])
def test_very_long_rows_with_zeros_are_kept_dense(blocks: int, form: int) -> None:
    packed = Packed()
    packed.add(with_zeros(32, 32 * blocks))
    assert packed.table["form"] == form
