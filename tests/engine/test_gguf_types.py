"""Every type of tensors in GGUF files against the package of the format's owners."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from specchat.engine.errors import ModelError
from specchat.engine.formats.fields import fields
from specchat.engine.formats.gguf import MXFP4, TYPES, Gguf
from specchat.engine.formats.gpu_blocks import GridWords, WordBlocks
from specchat.engine.formats.grids import GRIDS
from specchat.engine.formats.layout import Blocks, GridBlocks, Joined, tensors_of
from specchat.engine.formats.quantise import by_rows, dequantised, fused
from specchat.engine.formats.words import ROWS_AT, from_words, in_words
from specchat.engine.weights.matrices import reordered

gguf = pytest.importorskip("gguf")
OUTPUTS, INPUTS = 24, 1024
SCALES_AT = {
    "Q4_1": [0, 2],
    "Q5_1": [0, 2],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
"""Bytes where the float16 of a block begin, where they are not the first two."""


class Source:
    """The bytes of one matrix, as a checkpoint gives them."""

    folder = Path("model.gguf")

    def __init__(self, raw: np.ndarray, kind: str) -> None:
        self.raw, self.kind = torch.from_numpy(raw), kind

    def __contains__(self, name: object) -> bool:
        return name == "a.weight"

    def stored_dtype(self, name: str) -> str:
        return self.kind if name in self else ""

    def part(self, name: str) -> Tensor:
        assert name in self
        return self.raw


def rows_of(kind: str, outputs: int = OUTPUTS, inputs: int = INPUTS, seed: int = 0) -> np.ndarray:
    """Random bytes of a type, with scales of a sane size."""
    rng = np.random.default_rng(seed)
    size, octets = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    raw = rng.integers(0, 256, (outputs, inputs // size, octets), dtype=np.uint8)
    if kind == MXFP4:
        raw[:, :, 0] = rng.integers(110, 130, raw.shape[:2])
        return raw.reshape(outputs, -1)
    for begin in SCALES_AT.get(kind, [0]):
        raw[:, :, begin : begin + 2] = rng.normal(0, 0.05, (*raw.shape[:2], 1)).astype(np.float16).view(np.uint8)
    return raw.reshape(outputs, -1)


def matrix(kind: str, outputs: int = OUTPUTS, inputs: int = INPUTS, seed: int = 0) -> Blocks:
    return TYPES[kind].read(torch.from_numpy(rows_of(kind, outputs, inputs, seed)), inputs)


def truth(kind: str, raw: np.ndarray) -> Tensor:
    return torch.from_numpy(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind]))


def same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.mark.parametrize("kind", TYPES)
def test_dequantises_bit_for_bit_as_the_owners_package(kind: str) -> None:
    raw = rows_of(kind)
    assert same(dequantised(matrix(kind), torch.float32), truth(kind, raw))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_dequantises_what_the_package_quantised(kind: str) -> None:
    dense = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(1)).numpy()
    raw = gguf.quants.quantize(dense, gguf.GGMLQuantizationType[kind])
    assert same(dequantised(TYPES[kind].read(torch.from_numpy(raw), INPUTS), torch.float32), truth(kind, raw))


@pytest.mark.parametrize("kind", TYPES)
def test_a_block_has_the_bytes_of_the_format_and_memory_those_of_the_plan(kind: str) -> None:
    known = TYPES[kind]
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]] == (known.size, known.octets)
    found = matrix(kind)
    tables = found.code, found.codebook if isinstance(found, GridBlocks) else None
    held = sum(one.nbytes for one in tensors_of(found)) - sum(one.nbytes for one in tables if one is not None)
    assert held == known.layout.bytes(OUTPUTS, INPUTS)


@pytest.mark.parametrize("kind", TYPES)
def test_memory_holds_at_most_a_twentieth_more_than_the_file(kind: str) -> None:
    known = TYPES[kind]
    for on_gpu in (False, True):
        assert known.layout.bytes(1, 256, in_words=on_gpu) <= 1.05 * known.octets * (256 // known.size)


@pytest.mark.parametrize("kind", [*TYPES, MXFP4])
def test_the_format_reads_a_matrix_by_the_type_of_its_tensor(kind: str) -> None:
    raw, form = rows_of(kind), Gguf({"a": kind})
    source = Source(raw, kind)
    assert form.holds(source, "a")
    assert not form.holds(source, "b")
    # MXFP4 has two zeros, of which the package knows one.
    assert torch.equal(dequantised(form.read(source, "a", (OUTPUTS, INPUTS)), torch.float32), truth(kind, raw))
    assert form.layout(INPUTS, "a") is not None
    assert form.layout(INPUTS, "b") is None


def test_scales_that_are_no_numbers_and_bytes_that_do_not_fit_are_refused() -> None:
    raw = rows_of("Q6_K")
    raw[3, 208:210] = np.array([np.inf], np.float16).view(np.uint8)
    with pytest.raises(ModelError, match="a has scales that are no numbers"):
        Gguf().read(Source(raw, "Q6_K"), "a", (OUTPUTS, INPUTS))
    with pytest.raises(ModelError, match="not those of 24x2048 Q6_K"):
        Gguf().read(Source(raw, "Q6_K"), "a", (OUTPUTS, 2 * INPUTS))


def test_rows_of_one_type_join_and_others_stay_parts() -> None:
    parts = [matrix("Q4_K", 32, seed=1), matrix("Q4_K", 16, seed=2), matrix("Q6_K", 16, seed=3)]
    whole = torch.cat([dequantised(part, torch.float32) for part in parts])
    joined = fused(parts)
    assert isinstance(joined, Joined)
    assert [part.shape for part in joined.parts] == [(48, INPUTS), (16, INPUTS)]
    assert same(dequantised(joined, torch.float32), whole)
    order = [63, 62, -1, 0, 40, 50, -1, 5]
    expected = torch.cat([whole, torch.zeros(1, INPUTS)])[order]
    assert torch.equal(dequantised(reordered(joined, order), torch.float32), expected)
    assert same(dequantised(by_rows(joined, torch.clone), torch.float32), whole)


@pytest.mark.parametrize("kind", TYPES)
def test_the_order_of_a_gpu_keeps_every_number(kind: str) -> None:
    found = matrix(kind)
    turned = in_words(found)
    assert turned.shape == found.shape
    assert same(dequantised(turned, torch.float32), dequantised(found, torch.float32))
    back = from_words(turned)
    held = sum(one.nbytes for one in tensors_of(turned)) - turned.code.nbytes
    held -= turned.codebook.nbytes if isinstance(turned, GridWords) else 0
    assert held == TYPES[kind].layout.bytes(OUTPUTS, INPUTS, in_words=True)
    for one, other in zip(tensors_of(back), tensors_of(found), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_a_word_has_consecutive_numbers_in_its_units() -> None:
    """Bytes of whole numbers."""
    found = matrix("Q5_1", outputs=1, inputs=256)
    turned = in_words(found)
    assert isinstance(turned, WordBlocks)
    assert turned.high is not None
    numbers = fields(found.low, 4) | fields(found.high, 1) << 4
    for first in range(0, 32, 4):
        of_low, of_high = int(turned.low[0, first // 8]) >> first % 8, int(turned.high[0, 0]) >> first // 4
        for at in range(4):
            low, high = of_low >> 8 * at & 15, of_high >> 8 * at & 1
            assert low | high << 4 == int(numbers[0, first + at])


@pytest.mark.parametrize("kind", GRIDS)
def test_a_gpu_has_a_sign_for_each_input_or_finds_it(kind: str) -> None:
    """Eight words of four signs, which are the highest bits of bytes; an eighth one makes a group's number even."""
    found, negative = in_words(matrix(kind, outputs=1, inputs=256)), truth(kind, rows_of(kind, 1, 256)) < 0
    assert isinstance(found, GridWords)
    assert int(found.codebook[0]) == found.codebook.view(torch.int32)[ROWS_AT:].data_ptr()
    signs = [int(found.signs[0, 0]) >> n // 4 >> 8 * (n % 4) & 1 for n in range(32)]
    known = [n for n in range(32) if n % 8 < 7 or found.grid.signs == "apart"]
    assert [signs[n] ^ int(found.supers[0, 0] < 0) for n in known] == [int(negative[0, n]) for n in known]
