"""Products against float64 of what bitsandbytes itself unpacks, rows alone, and what the compiler makes of them."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import EightBit, FourBit, Weight
from specchat.engine.formats.quantise import code_table, dequantised, quantise
from specchat.engine.formats.scale_tables import by_table
from specchat.engine.formats.words import in_words
from specchat.engine.gpu_checks import place
from specchat.engine.gpu_checks.references import reference_gate_mul
from specchat.engine.kernels import products
from specchat.engine.kernels.activation import Activation
from specchat.engine.kernels.gpu_shapes import (
    MOST_SPLITS,
    PASS_ROWS,
    PROMPT_ROWS,
    RESIDENT,
    TILE_ROWS,
    activates,
    stages,
    tiling,
    widened,
)
from specchat.engine.kernels.products import multiply, splits
from tests.kernels import compiled

pytest.importorskip("bitsandbytes.functional")
from tests.engine.bnb import four_bit

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPES = (torch.bfloat16, torch.float16) if GPU else (torch.float32, torch.bfloat16)
COUNTS = (*range(1, 17), 17, 32, 33, 64) if GPU else (2, 7, 8, 9, 16, 17, 33, 64)
ON_DEVICE = (pytest.mark.gpu, pytest.mark.skipif(not GPU, reason="needs a CUDA device"))
"""Qwen3-8B's shapes take too long under the interpreter."""

ROW_TYPES = ("Q4_1", "Q8_0", "Q2_K", "Q3_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ2_XS", "IQ3_S", "IQ3_XXS")
"""One of each way to unpack blocks."""
Made = tuple[Weight, Tensor]
"""A weight, and the matrix float64 that it stands for."""


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def four(quant: str, nested: bool, block: int) -> Callable[[int, int, torch.dtype], Made]:
    def make(outputs: int, inputs: int, dtype: torch.dtype) -> Made:
        weight, dense = four_bit(drawn(outputs, inputs, dtype=dtype), quant, nested, block)  # type: ignore[arg-type]
        return weight, dense.double()

    return make


def shifted(block: int, ordered: bool = False) -> Callable[[int, int, torch.dtype], Made]:
    """Whole numbers with zero points, in scales of the 16 bits that files have."""

    def make(outputs: int, inputs: int, dtype: torch.dtype) -> Made:
        of_blocks = torch.Generator().manual_seed(5), (outputs, inputs // block)
        plain, _ = four("nf4", False, block)(outputs, inputs, dtype)
        assert isinstance(plain, FourBit)
        zeros = torch.randint(-8, 9, of_blocks[1], generator=of_blocks[0], dtype=torch.int8).to(DEVICE)
        weight = replace(plain, scales=plain.scales.half().float(), code=code_table("int4").to(DEVICE), zeros=zeros)
        numbers = plain.packed[:, :, None].div(torch.tensor([16, 1], device=DEVICE), rounding_mode="floor") % 16 - 8.0
        blocks = numbers.flatten(1).unflatten(1, (-1, block))
        truth = ((blocks - zeros[..., None]).double() * weight.scales[..., None]).flatten(1).to(dtype).double()
        if not ordered:
            return weight, truth
        order = torch.randperm(inputs, generator=of_blocks[0]).to(DEVICE)
        return replace(weight, order=order.to(torch.int32)), truth[:, order.argsort()]

    return make


def tabled(outputs: int, inputs: int, dtype: torch.dtype) -> Made:
    """Blocks of 16 with scales of a table, as NVFP4 has them."""
    made = torch.Generator().manual_seed(6)
    packed, scales = (
        torch.randint(256, (outputs, columns), generator=made, dtype=torch.uint8).to(DEVICE)
        for columns in (inputs // 2, inputs // 16)
    )
    table = torch.rand(256, generator=made).to(DEVICE)
    weight = by_table(FourBit(packed, scales, code_table("fp4").to(DEVICE), 16), scales, table)
    return weight, dequantised(weight, dtype).double()


def eight(outputs: int, inputs: int, dtype: torch.dtype) -> Made:
    weight = quantise(drawn(outputs, inputs, dtype=dtype), "int8")
    assert isinstance(weight, EightBit)
    return weight, weight.values.double() * weight.scales.double()[:, None]


def dense(outputs: int, inputs: int, dtype: torch.dtype) -> Made:
    weight = drawn(outputs, inputs, dtype=dtype)
    return weight, weight.double()


def blocks(kind: str) -> Callable[[int, int, torch.dtype], Made]:
    def make(outputs: int, inputs: int, dtype: torch.dtype) -> Made:
        found = place.blocks_of(kind, outputs, inputs)
        return in_words(found), dequantised(found, dtype).double()

    return make


FORMATS = {
    **{
        f"{quant}{' nested' if nested else ''} {block}": four(quant, nested, block)
        for quant in ("nf4", "fp4")
        for nested in (False, True)
        for block in (64, 32)
    },
    "fp4 of a table 16": tabled,
    "int4 with zeros 64": shifted(64),
    "int4 with zeros 32 in an order": shifted(32, ordered=True),
    "int8": eight,
    "dense": dense,
    **{kind: blocks(kind) for kind in TYPES},
}


def product(x: Tensor, weight: Weight, rows: int, bias: Tensor | None = None, skip: Tensor | None = None) -> Tensor:
    """All partial sums float32 [splits, rows of x, outputs]; rows that are not asked for stay 7."""
    out = torch.full((splits(weight), max(PASS_ROWS, len(x)), weight.shape[0]), 7.0, device=DEVICE)
    multiply(x, weight, bias, out, rows, skip)
    return out


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), [(96, 256), (130, 192), (64, 1024)])
def test_is_the_product_of_what_is_unpacked(name: str, dtype: torch.dtype, outputs: int, inputs: int) -> None:
    """Float32 sums of exact products: only their order can differ, by 2e-6 of the sum of magnitudes."""
    if name in TYPES and inputs % TYPES[name].size:
        inputs = 256 * (outputs // 32)
    weight, truth = FORMATS[name](outputs, inputs, dtype)
    x, bias = drawn(64, inputs, seed=1, dtype=dtype), drawn(outputs, seed=2)
    made = product(x, weight, 5, bias)
    expected = x[:5].double() @ truth.T + bias.double()
    most = x[:5].double().abs() @ truth.abs().T + bias.abs().double()
    assert ((made.sum(0)[:5].double() - expected).abs() <= 2e-6 * most).all()
    assert (made[:, 5:] == 7).all(), "a row beyond the count was written"


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["nf4 nested 64", "int4 with zeros 64", "int8", "dense", *ROW_TYPES])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_alone(name: str, dtype: torch.dtype) -> None:
    weight, _ = FORMATS[name](160, 256, dtype)
    x = drawn(64, 256, seed=3, dtype=dtype)
    alone = torch.cat([product(x[r:], weight, 1)[:, :1] for r in range(64)], 1)
    for rows in COUNTS:
        assert torch.equal(product(x, weight, rows)[:, :rows], alone[:, :rows]), rows


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["nf4 nested 64", "int8", "Q4_K"])
def test_rows_of_a_prompt_are_alone_in_groups(name: str) -> None:
    """With two splits; and groups after the last row that counts write nothing."""
    weight, _ = FORMATS[name](130 if name != "Q4_K" else 160, 1024, DTYPES[-1])
    rows, end = 2 * PASS_ROWS + 5, torch.tensor([PASS_ROWS + 3], dtype=torch.int32, device=DEVICE)
    x, bias = drawn(rows, 1024, seed=3, dtype=DTYPES[-1]), drawn(weight.shape[0], seed=2)
    together = product(x, weight, rows, bias)
    assert len(together) > 1
    for first in (0, PASS_ROWS):
        group = product(x[first : first + PASS_ROWS], weight, PASS_ROWS, bias)
        assert torch.equal(together[:, first : first + PASS_ROWS], group)
    for row in (0, PASS_ROWS - 1, PASS_ROWS, 2 * PASS_ROWS, rows - 1):
        assert torch.equal(together[:, row], product(x[row:], weight, 1, bias)[:, 0])
    out = torch.full_like(together, 7.0)
    multiply(x, weight, bias, out, rows, last=end)
    assert torch.equal(out[:, : 2 * PASS_ROWS], together[:, : 2 * PASS_ROWS])
    assert (out[:, 2 * PASS_ROWS :] == 7).all()


def test_activated_rows_of_a_prompt_are_alone_in_groups() -> None:
    weight, _ = FORMATS["nf4 nested 64"](256, 256, DTYPES[-1])
    rows = 2 * PASS_ROWS + 5
    x = drawn(rows, 256, seed=3, dtype=DTYPES[-1])
    together = activated(x, weight, rows, "silu")
    for row in (0, PASS_ROWS, rows - 1):
        assert torch.equal(together[row], activated(x[row:], weight, 1, "silu")[0])


def test_rows_are_alone_on_a_gpu_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many splits there are may depend on the GPU, and what a row is among others may not."""
    weight, truth = FORMATS["nf4 nested 64"](64, 2048, DTYPES[0])
    x = drawn(64, 2048, seed=8, dtype=DTYPES[0])
    seen = set()
    for processors in (1, 2, 128):
        monkeypatch.setattr(products, "processors", lambda _, count=processors: count)
        together = product(x, weight, 17)
        seen.add(len(together))
        torch.testing.assert_close(together.sum(0)[:17].double(), x[:17].double() @ truth.T, rtol=1e-3, atol=1e-3)
        for row in (0, 15, 16):
            assert torch.equal(product(x[row:], weight, 1)[:, 0], together[:, row])
    assert len(seen) > 1, "every GPU splits it alike: nothing was shown"


@pytest.mark.parametrize("name", ["nf4 nested 64", "fp4 32"])
def test_rows_are_alone_in_wide_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one multiprocessor, which all programs wait for, however wide."""
    monkeypatch.setattr(products, "processors", lambda _: 1)
    cut = tiling(256, 256, 4, 1)
    assert widened(cut, 256, 4, 8, 1).outputs == 2 * cut.outputs
    weight, _ = FORMATS[name](256, 256, DTYPES[-1])
    x = drawn(64, 256, seed=3, dtype=DTYPES[-1])
    for made in (product, lambda x, weight, rows: activated(x, weight, rows, "silu")[None]):
        alone = torch.cat([made(x[r:], weight, 1)[:, :1] for r in range(9)], 1)
        for rows in (2, 7, 8, 9):
            assert torch.equal(made(x, weight, rows)[:, :rows], alone[:, :rows]), rows


def test_programs_are_wider_where_no_multiprocessor_has_more_to_do() -> None:
    """Llama-3.1-8B: q/k/v are 384 programs on 128 multiprocessors, three on each, or four in two wide ones."""
    assert activates(28672, 4096, 4, 128)
    for outputs, inputs, wider in ((6144, 4096, False), (4096, 4096, True), (28672, 4096, True), (4096, 14336, True)):
        cut = tiling(outputs, inputs, 4, 128)
        cut = replace(cut, splits=1) if outputs == 28672 else cut
        for rows in (1, 2, TILE_ROWS, TILE_ROWS + 1):
            made = widened(cut, outputs, 4, rows, 128)
            assert (made != cut) == (wider and 1 < rows <= TILE_ROWS), (outputs, rows)
            assert (made.inputs, made.splits) == (cut.inputs, cut.splits)
            assert made.outputs / made.warps == cut.outputs / cut.warps
    # Neither of other weights, nor where the last program had fewer outputs.
    assert widened(tiling(28672, 4096, 8, 128), 28672, 8, 8, 128).outputs == 64
    assert widened(tiling(64 * 257, 4096, 4, 128), 64 * 257, 4, 8, 128).outputs == 64


def test_partial_sums_are_of_parts_of_the_inputs() -> None:
    weight, truth = dense(64, 2048, torch.float32)
    count = splits(weight)
    assert count > 1
    x, bias = drawn(64, 2048, seed=4), drawn(64, seed=5)
    made = product(x, weight, 3, bias)
    span = 2048 // count
    for i in range(count):
        part = slice(i * span, (i + 1) * span)
        expected = x[:3, part].double() @ truth[:, part].T + (bias.double() if i == 0 else 0.0)
        torch.testing.assert_close(made[i, :3].double(), expected, rtol=1e-5, atol=1e-4)


def test_skipped_products_leave_everything_as_it_was() -> None:
    weight, _ = dense(64, 64, torch.float32)
    x = drawn(64, 64)
    assert (product(x, weight, 4, skip=torch.ones(1, dtype=torch.int32, device=DEVICE)) == 7).all()
    clear = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    assert torch.equal(product(x, weight, 4, skip=clear), product(x, weight, 4))


def test_the_cut_depends_on_the_shape_and_the_gpu() -> None:
    for outputs in (32, 576, 4096, 24576, 151_936):
        for inputs in (64, 320, 896, 4096, 14336):
            for bits in (4, 8, 16):
                for processors in (1, 28, 82, 132, 170):
                    cut = tiling(outputs, inputs, bits, processors)
                    assert 1 <= cut.splits <= MOST_SPLITS
                    assert cut.inputs & (cut.inputs - 1) == 0
                    blocks = -(-inputs // cut.inputs)
                    assert (cut.splits - 1) * -(-blocks // cut.splits) < blocks, "a split without inputs"


@pytest.mark.parametrize(("processors", "splits"), [(28, 2), (82, 4), (128, 4), (132, 4)])
def test_no_multiprocessor_has_twice_the_work_of_another(processors: int, splits: int) -> None:
    """Qwen3-8B's q/k/v are 96 tiles: 192 programs would leave a third of 128 multiprocessors idle half of the time."""
    assert tiling(6144, 4096, 4, processors).splits == splits
    busiest = -(-96 * splits // processors)
    assert 96 * splits / (busiest * processors) > 0.72
    assert tiling(151_936, 4096, 16, processors).splits == 1


def test_what_is_left_for_a_last_wave_counts_as_much_as_two_programs() -> None:
    """Llama-3.1-8B on 128 multiprocessors: 384 programs for q/k/v, three on each, are there at a time."""
    assert (tiling(6144, 4096, 4, 128).splits * 96, RESIDENT[4] * 128) == (384, 384)
    # Seven on each would be two waves of three and one alone; the sums of eight splits are read for nothing.
    assert tiling(4096, 14336, 4, 82).splits == 2
    assert tiling(128_256, 4096, 16, 132).splits == 1


def test_many_tiles_of_rows_leave_shared_memory_for_a_second_program() -> None:
    assert [stages(tiles) for tiles in (1, 2, 4, 8)] == [3, 3, 2, 2]


def test_bad_shapes_are_refused() -> None:
    weight, _ = dense(64, 64, torch.float32)
    out = torch.zeros(splits(weight), 64, 64, device=DEVICE)
    for rows in (0, PROMPT_ROWS + 1):
        with pytest.raises(ValueError, match=f"1 to {PROMPT_ROWS}"):
            multiply(drawn(PROMPT_ROWS + 1, 64), weight, None, out, rows)
    with pytest.raises(ValueError, match="does not fit"):
        multiply(drawn(64, 32), weight, None, out, 1)
    packed = FourBit(
        torch.zeros(64, 24, dtype=torch.uint8), torch.zeros(64, 1), torch.zeros(16), 32
    )  # 48 inputs in blocks of 32
    with pytest.raises(ModelError, match="48 inputs are not a multiple of the 4-bit block of 32"):
        multiply(drawn(64, 48), packed, None, out[:1], 1)
    huge = torch.empty(2**17, 2**14, dtype=torch.float16, device="meta")
    with pytest.raises(ModelError, match="131072x16384"):
        multiply(torch.empty(1, 2**14, device="meta"), huge, None, torch.empty(1, 1, 2**17, device="meta"), 1)


@pytest.mark.parametrize("name", [pytest.param(n, marks=ON_DEVICE) for n in FORMATS])
@pytest.mark.parametrize(("outputs", "inputs"), [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)])
def test_qwen3_8b_on_the_device(name: str, outputs: int, inputs: int) -> None:
    for dtype in DTYPES:
        weight, truth = FORMATS[name](outputs, inputs, dtype)
        x = drawn(64, inputs, seed=6, dtype=dtype)
        together = product(x, weight, 64)
        expected, most = x.double() @ truth.T, x.double().abs() @ truth.abs().T
        assert ((together.sum(0).double() - expected).abs() <= 4e-6 * most).all()
        alone = torch.cat([product(x[r:], weight, 1)[:, :1] for r in range(64)], 1)
        for rows in COUNTS:
            assert torch.equal(product(x, weight, rows)[:, :rows], alone[:, :rows])


def activated(
    x: Tensor, weight: Weight, rows: int, activation: Activation, bias: Tensor | None = None, skip: Tensor | None = None
) -> Tensor:
    """[rows of x, outputs / 2]; rows that are not asked for stay 7."""
    out = torch.full((max(PASS_ROWS, len(x)), weight.shape[0] // 2), 7.0, device=DEVICE, dtype=x.dtype)
    multiply(x, weight, bias, out, rows, skip, activation)
    return out


def check_activation(name: str, activation: Activation, inner: int, inputs: int, dtype: torch.dtype) -> None:
    weight, truth = FORMATS[name](2 * inner, inputs, dtype)
    x, bias = drawn(64, inputs, seed=1, dtype=dtype), drawn(2 * inner, seed=2)
    made = activated(x, weight, 5, activation, bias)
    expected = reference_gate_mul((x[:5].double() @ truth.T + bias.double())[None], activation)
    torch.testing.assert_close(made[:5].double(), expected, rtol=1e-4 if dtype == torch.float32 else 1e-2, atol=1e-3)
    assert (made[5:] == 7).all(), "a row beyond the count was written"


@pytest.mark.parametrize("name", ["nf4 nested 64", "fp4 32", "int8", "dense"])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("inner", "inputs"), [(64, 256), (100, 192)])
def test_the_product_of_gates_applies_their_activation(
    name: str, activation: Activation, dtype: torch.dtype, inner: int, inputs: int
) -> None:
    check_activation(name, activation, inner, inputs, dtype)


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", ["nf4 nested 64", "int8", "dense"])
def test_activated_rows_are_alone(name: str) -> None:
    weight, _ = FORMATS[name](160, 256, DTYPES[-1])
    x = drawn(64, 256, seed=3, dtype=DTYPES[-1])
    alone = torch.cat([activated(x[r:], weight, 1, "silu")[:1] for r in range(64)])
    for rows in COUNTS:
        assert torch.equal(activated(x, weight, rows, "silu")[:rows], alone[:rows]), rows


def test_a_skipped_product_activates_nothing() -> None:
    weight, _ = dense(64, 64, torch.float32)
    assert (
        activated(drawn(64, 64), weight, 4, "silu", skip=torch.ones(1, dtype=torch.int32, device=DEVICE)) == 7
    ).all()


def test_an_activation_takes_whole_sums_where_they_cost_little() -> None:
    """Qwen3-0.6B's gates would keep 96 of 128 multiprocessors busy, and each for long."""
    assert activates(28672, 4096, 4, 128)
    assert activates(16384, 2048, 8, 128)
    assert not activates(6144, 1024, 8, 128)


CASES, PLANTED = "tests.kernels.cases_products", "tests.kernels.cases_products:PLANTED"


@compiled.NEWEST
def test_compiled_for_gpus_that_are_not_here(architectures: tuple[int, ...]) -> None:
    """Registers, shared memory, instructions a weight; of a pass: shared memory, barriers, integers, lines ahead."""
    ceilings = {
        "nf4 nested, 8 rows": (122, 29_184, 4.5, 396, 4, 726, 116),
        "nf4 nested, 16 rows": (168, 37_376, 5.1, 556, 4, 746, 148),
        "nf4 nested, 32 rows": (184, 26_880, 6.1, 876, 4, 764, 164),
        "nf4 nested, 64 rows": (255, 43_264, 7.9, 1516, 4, 842, 244),
        "nf4 nested, 8 rows in wide programs": (128, 50_176, 4.5, 760, 4, 1452, 176),
        "nf4 nested with silu, 8 rows in wide programs": (128, 50_176, 4.5, 760, 4, 1452, 80),
        "nf4, 8 rows in wide programs": (128, 45_056, 4.3, 704, 2, 1392, 264),
        "nf4, block 32, 8 rows in wide programs": (128, 49_152, 4.8, 1056, 2, 1536, 264),
        "nf4, 8 rows": (112, 26_624, 4.3, 368, 2, 688, 160),
        "int4 with zeros, 8 rows": (128, 27_136, 4.7, 380, 2, 712, 288),
        "int4 with zeros, 64 rows": (255, 42_240, 8.2, 1500, 2, 842, 512),
        "int4 in order, 8 rows": (128, 20_480, 4.9, 400, 6, 780, 160),
        "nf4, block 32, 8 rows": (128, 28_672, 4.8, 544, 2, 782, 160),
        "nvfp4, 8 rows": (96, 34_816, 6.3, 1152, 4, 968, 136),
        "nvfp4, 64 rows": (191, 46_080, 9.7, 2272, 4, 1040, 360),
        "nf4 nested of 896 inputs, 8 rows": (120, 14_848, 5.8, 176, 4, 432, 36),
        "nf4 nested with silu, 8 rows": (122, 29_184, 4.5, 396, 4, 726, 68),
        "nf4 nested with silu, 16 rows": (168, 37_376, 5.0, 556, 4, 744, 100),
        "nf4 nested with silu, 64 rows": (255, 43_264, 7.9, 1516, 4, 842, 196),
        "int8 with silu, 8 rows": (56, 20_480, 3.8, 208, 2, 230, 32),
        "int8, 8 rows": (56, 20_480, 3.8, 208, 2, 230, 80),
        "int8, 16 rows": (80, 24_576, 4.4, 288, 2, 232, 96),
        "int8, 32 rows": (96, 16_384, 5.1, 448, 2, 246, 128),
        "int8, 64 rows": (144, 24_576, 7.6, 768, 2, 278, 192),
        "bf16 head, 8 rows": (48, 18_432, 2.2, 168, 2, 44, 72),
        "bf16, 16 rows": (56, 20_480, 2.5, 208, 2, 46, 80),
        "bf16, 32 rows": (72, 12_288, 3.1, 288, 2, 54, 96),
        "bf16, 64 rows": (112, 16_384, 5.1, 448, 2, 88, 128),
    }
    found = compiled.reports(CASES, architectures)
    compiled.check_names(found, ceilings, architectures)
    for report in found:
        registers, shared, *of_the_loop, integers, lines = ceilings[report.name]
        spilled = {"nf4": 64, "int4": 112}.get(report.name.split()[0], 0) if report.name.endswith(", 64 rows") else 0
        compiled.check_limits(report, registers, shared, spilled)
        compiled.check_loop(report, *of_the_loop)
        assert report.integers <= integers, report
        assert report.lines_ahead <= lines, report
        # Inputs in an order are loaded by what is loaded before them.
        assert report.loads == 0 or "in order" in report.name, f"{report.name}: something is not copied ahead"
        assert report.tensor_cores == compiled.BFLOAT16_MMA, report


@compiled.NEWEST
def test_as_many_programs_fit_a_multiprocessor_as_the_cut_counts_on(architectures: tuple[int, ...]) -> None:
    """Of its shared memory every block takes 1 KiB more than it asks for; registers are given out by eight.

    In blocks of 16 scales take more memory: there the cut counts on one program too many on cards for consumers.
    """
    for report in compiled.reports(CASES, architectures):
        if report.name.endswith(", 8 rows"):
            programs = RESIDENT[next(bits for kind, bits in BITS.items() if report.name.startswith(kind))]
            programs -= report.name.startswith("nvfp4")
            assert programs * (report.shared + 1024) <= compiled.SHARED_LIMIT[report.architecture] + 1024, report
            assert programs * report.threads * -(-report.registers // 8) * 8 <= 65_536, report


@compiled.NEWEST
def test_two_wide_programs_fit_a_multiprocessor(architectures: tuple[int, ...]) -> None:
    """As many warps as four programs of one row's have: RESIDENT counts on three."""
    wide = [report for report in compiled.reports(CASES, architectures) if report.name.endswith("wide programs")]
    assert wide
    for report in wide:
        assert 2 * (report.shared + 1024) <= compiled.SHARED_LIMIT[report.architecture] + 1024, report
        assert 2 * report.threads * -(-report.registers // 8) * 8 <= 65_536, report


BITS = {"nf4": 4, "nvfp4": 4, "int4": 4, "int8": 8, "bf16": 16}


@compiled.NEWEST
@pytest.mark.parametrize("weights", ["nf4 nested", "nf4 nested with silu", "int8", "bf16"])
def test_more_tiles_of_rows_are_multiplied_as_one_is(weights: str, architectures: tuple[int, ...]) -> None:
    """The programs for 1 to 64 rows, wide or not: the same operands in the same places of `mma`, in the same order."""
    for architecture in architectures:
        alike = [r for r in compiled.reports(CASES, architectures) if r.architecture == architecture]
        alike = [r for r in alike if r.name.startswith(f"{weights}, ")]
        assert len(alike) > 1
        assert len(alike[0].chains) == 1, "tiles of one program differ"
        assert len({_as_multiplied(report) for report in alike}) == 1, alike


def test_programs_that_multiply_otherwise_are_told_apart() -> None:
    ours, planted = ({r.name: r for r in compiled.reports(cases, (120,))} for cases in (CASES, PLANTED))
    for name, kind in (("bf16, 32 rows", "shorter blocks"), ("int8, 32 rows", "more warps")):
        assert _as_multiplied(planted[f"{name}: {kind}"]) != _as_multiplied(ours[name])


def _as_multiplied(report: compiled.Report) -> tuple[object, ...]:
    """What the programs of one kind of weights must have in common."""
    return (report.tensor_cores, *map(_of_a_warp, report.operands), *report.chains)


def _of_a_warp(operands: str) -> str:
    """The operands of a product with the outputs of one warp for those of the program."""
    warps = re.search(r"warpsPerCTA = \[(\d+), 1\]", operands)
    if warps is None:
        return operands
    outputs = r"(^|-> )tensor<(\d+)"
    operands = re.sub(outputs, lambda found: f"{found[1]}tensor<{int(found[2]) / int(warps[1])}", operands)
    return operands.replace(warps[0], "")
