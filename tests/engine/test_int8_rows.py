"""Rows in 8 bits: each number the nearest of all, by enumeration, and what products of the reference make of it."""

from dataclasses import replace
from fractions import Fraction
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specchat.engine.formats import known
from specchat.engine.formats.bitsandbytes import FP4_CODE, NF4_CODE
from specchat.engine.formats.format import LARGEST, LEAST_PEAK
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.int8_rows import (
    LEAST_BLOCK,
    MOST_INPUTS,
    code_factor,
    quantised_rows,
    rounded,
    takes_int8_rows,
)
from specchat.engine.formats.layout import EightBit, FourBit, Plain, Weight
from specchat.engine.formats.mxfp4 import CODE as MXFP4_CODE
from specchat.engine.formats.quantise import code_table, dequantised
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.reference.tensors import CheckpointTensors
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.packed import packed
from tests.engine.test_packed import INT4, SHAPE
from tests.engine.tiny import FAMILIES, checkpoint

F = np.float32
ROWS = {
    "random": [0.3, -1.7, 2.9, 0.01],
    "zeros": [0.0, -0.0, 0.0, 0.0],
    "halves": [127.0, 0.5, 1.5, -2.5],
    "halves of another scale": [254.0, 1.0, 3.0, -5.0],
    "an inverse that is rounded once": [1.2697867155075073, 0.39493364095687866, 0.0, 0.0],
    "one value of 1e30": [1e30, 1.0, -2.0, 5e27],
    "largest": [3.4028234e38, -3.4028234e38, 1e38, 1.0],
    "subnormal": [1e-40, -1e-42, 0.0, 1e-45],
    "just too small": [float(np.nextafter(F(LEAST_PEAK), F(0))), 0.0, -1e-30, 1e-31],
    "least": [LEAST_PEAK, -LEAST_PEAK / 2, LEAST_PEAK / 127, 1e-42],
    "nan": [nan, 1.0, 2.0, 3.0],
    "infinity": [1.0, inf, 2.0, 3.0],
    "minus infinity": [1.0, -inf, 2.0, 3.0],
}


def nearest(value: float) -> int:
    """Of all numbers the one that is nearest to a float32, the even one of two."""
    exact = Fraction(value)
    return min(range(-127, 128), key=lambda whole: (abs(exact - whole), whole % 2))


def enumerated(block: list[float]) -> tuple[list[int], float]:
    """Numbers and scale of a block, in steps of float32."""
    values = [F(value) for value in block]
    if not all(isfinite(value) for value in values):
        return [0] * len(block), nan
    peak = max(abs(value) for value in values)
    if peak < F(2.0**-96):
        return [0] * len(block), 0.0
    inverse = F(127) / peak
    return [nearest(float(value * inverse)) for value in values], float(peak / F(127))


@pytest.mark.parametrize("name", ROWS)
def test_numbers_and_scales_are_those_of_an_enumeration(name: str) -> None:
    of_others = [ROWS["random"], ROWS["halves"]]
    numbers, scales = quantised_rows(torch.tensor([[*ROWS[name], *of_others[0], *of_others[1]]]), 4)
    assert (numbers.dtype, scales.dtype) == (torch.int8, torch.float32)
    for at, block in enumerate([ROWS[name], *of_others]):
        wanted, scale = enumerated(block)
        assert numbers[0, 4 * at : 4 * at + 4].tolist() == wanted
        np.testing.assert_equal(scales[0, at].item(), scale)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_random_rows_are_those_of_an_enumeration(block: int) -> None:
    generator = torch.Generator().manual_seed(block)
    magnitudes = 10.0 ** torch.randint(-20, 20, (6, 1), generator=generator)
    x = magnitudes * torch.randn(6, 2 * block, generator=generator)
    numbers, scales = quantised_rows(x, block)
    for row in range(len(x)):
        for at in range(2):
            wanted, scale = enumerated(x[row, at * block : (at + 1) * block].tolist())
            assert numbers[row, at * block : (at + 1) * block].tolist() == wanted
            assert scales[row, at].item() == scale


def test_a_row_is_rounded_alike_alone_and_in_company() -> None:
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(1))
    x[4, 3], x[5] = nan, 0.0
    numbers, scales = quantised_rows(x, 32)
    for row in range(9):
        alone = quantised_rows(x[row : row + 1].clone(), 32)
        assert torch.equal(alone[0][0], numbers[row])
        np.testing.assert_array_equal(alone[1][0].numpy(), scales[row].numpy())


def random_four(code: Tensor, order: Tensor | None = None, zeros: bool = False) -> FourBit:
    made = torch.Generator().manual_seed(3)
    octets = torch.randint(256, (6, 64), generator=made, dtype=torch.uint8)
    points = torch.randint(-8, 8, (6, 4), generator=made, dtype=torch.int8) if zeros else None
    return FourBit(octets, torch.rand(6, 4, generator=made) + 0.1, code, 32, zeros=points, order=order)


def test_blocks_are_those_of_the_weight_in_its_order_of_the_inputs() -> None:
    order = torch.randperm(128, generator=torch.Generator().manual_seed(2))
    weight = random_four(code_table("int4"), order.int(), zeros=True)
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(4)) * torch.arange(1.0, 129.0)
    numbers, scales = quantised_rows(x[:, order], 32)
    values = numbers * scales.repeat_interleave(32, 1)
    expected = torch.empty_like(x)
    expected[:, order] = values
    assert torch.equal(rounded(x, weight), expected)
    assert not torch.equal(rounded(x, replace(weight, order=None)), expected)


def test_a_weight_with_a_scale_a_row_has_one_block_of_all_inputs() -> None:
    weight = EightBit(torch.ones(2, 96, dtype=torch.int8), torch.ones(2))
    x = torch.randn(5, 96, generator=torch.Generator().manual_seed(5))
    numbers, scales = quantised_rows(x, 96)
    assert scales.shape == (5, 1)
    assert torch.equal(rounded(x, weight), numbers * scales)


def gguf_matrix(kind: str) -> Plain:
    size = TYPES[kind].octets
    raw = torch.randint(256, (4, 256 // TYPES[kind].size * size), dtype=torch.uint8)
    return TYPES[kind].read(raw, 256)


def test_weights_of_whole_numbers_take_such_rows() -> None:
    for kind in TYPES:
        assert takes_int8_rows(gguf_matrix(kind)), kind
    for code, taken in ((code_table("int4"), True), (torch.tensor(MXFP4_CODE), True)):
        assert takes_int8_rows(random_four(code)) == taken
    for code in (NF4_CODE, FP4_CODE):
        assert not takes_int8_rows(random_four(torch.tensor(code)))
    assert not takes_int8_rows(torch.ones(3, 32))
    with pytest.raises(ValueError, match="not whole"):
        rounded(torch.ones(1, 32), torch.ones(3, 32))


@pytest.mark.parametrize("kind", TYPES)
def test_a_code_times_its_factor_is_of_whole_numbers_of_8_bits(kind: str) -> None:
    code = TYPES[kind].code
    if code is None:
        return
    factor = code_factor(torch.tensor(code))
    assert all((factor * value).is_integer() and abs(factor * value) <= 127 for value in code)
    assert factor == min(n for n in (1, 2, 4, 8) if all((n * value).is_integer() for value in code))


@pytest.mark.parametrize("kind", TYPES)
def test_float32_holds_the_sum_of_every_block(kind: str) -> None:
    """The bounds of docs/exactness.md: no sum of products leaves what float32 has exactly, and int32 with it."""
    of, code = TYPES[kind], TYPES[kind].code
    if code is None:
        numbers: list[float] = [number - of.offset for number in range(2**of.layout.bits)]
    else:
        numbers = [code_factor(torch.tensor(code)) * value for value in code]
    assert LARGEST * max(map(abs, numbers)) * of.layout.block < 2**24


def test_rows_of_more_inputs_than_int32_sums_stay_float32() -> None:
    most = MOST_INPUTS // LEAST_BLOCK * LEAST_BLOCK
    for inputs, taken in ((most, True), (most - 1, False), (most + LEAST_BLOCK, False)):
        assert takes_int8_rows(EightBit(torch.zeros(1, inputs, dtype=torch.int8), torch.ones(1))) == taken
        assert (LARGEST * 255 * inputs < 2**31) == (inputs <= most)


def test_formats_say_what_their_layouts_take() -> None:
    """int4 and the codes by their tables; int8 and GGUF by the layouts that they have alone."""
    for one in known():
        coded = not one.code or code_factor(torch.tensor(one.code)) > 0
        assert one.int8_rows == (coded and one.name != "fp8"), one.name


@pytest.mark.parametrize("method", ["compressed-tensors, 128", "awq", "gptq, act order, zero points"])
def test_the_reference_multiplies_rounded_rows(method: str, tmp_path: Path) -> None:
    folder, _ = packed(tmp_path, *INT4[method], **SHAPE)
    found = Checkpoint.open(folder)
    full, int8 = (CheckpointTensors(replace(found, activations=form)) for form in ("float32", "int8"))
    mlp = found.config.recipe.layers[0].gated
    for of in (mlp.gate_up, mlp.down):
        x = torch.randn(3, of.inputs, generator=torch.Generator().manual_seed(6))
        weight, _ = int8._matrices[of]
        assert isinstance(weight, FourBit)
        made, whole = int8.product(x, of), full.product(x, of)
        assert torch.equal(made, full.product(rounded(x, weight), of))
        assert 0 < (made - whole).abs().mean() < 0.02 * whole.abs().mean()
    x = torch.randn(2, found.config.hidden)
    assert torch.equal(int8.product(x, int8.head), full.product(x, full.head)), "a dense head is left as it is"


def test_rows_with_nan_or_infinity_are_no_numbers(tmp_path: Path) -> None:
    folder, _ = packed(tmp_path, *INT4["compressed-tensors, 32"], **SHAPE)
    tensors = CheckpointTensors(replace(Checkpoint.open(folder), activations="int8"))
    of = tensors_of_down(tensors)
    x = torch.ones(4, of.inputs)
    x[1, 7], x[2, 200], x[3] = nan, inf, 0.0
    made = tensors.product(x, of)
    assert made[0].isfinite().all()
    assert made[1:3].isnan().all()
    assert torch.equal(made[3], torch.zeros_like(made[3]))


def tensors_of_down(tensors: CheckpointTensors) -> Any:
    return next(of for of in tensors._matrices if "down_proj" in of.names[0])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("drafts", [None, (3, 5, 200)])
def test_a_head_in_8_bits_scores_alike_and_leaves_the_embeddings(
    tied: bool, drafts: tuple[int, ...] | None, tmp_path: Path
) -> None:
    found = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES["llama"] | {"tie_word_embeddings": tied}))
    found = replace(found, drafts=drafts)
    whole, int8 = (ReferenceDecoder(replace(found, head=form), 64) for form in (None, "int8"))  # type: ignore[arg-type]
    tokens = list(range(3, 20))
    assert torch.equal(int8.embed(tokens), whole.embed(tokens))
    hidden = whole.forward(tokens, 0)
    assert torch.equal(int8.forward(tokens, 0), hidden)
    expected, made = whole.logits(hidden), int8.logits(hidden)
    assert torch.equal(made.isfinite(), expected.isfinite())
    error = (made - expected)[expected.isfinite()].abs().mean()
    assert 0 < error < 0.02 * expected[expected.isfinite()].abs().mean()
    weight: Weight = int8._tensors._matrices[int8._tensors.head][0]
    assert isinstance(weight, EightBit)
    assert torch.equal(dequantised(weight, torch.float32), weight.values * weight.scales[:, None])
    rows = replace(found, head="int8", activations="int8")
    other = ReferenceDecoder(rows, 64).logits(hidden)
    assert not torch.equal(other, made)
    assert (other - made)[made.isfinite()].abs().mean() < 0.02 * made[made.isfinite()].abs().mean()
