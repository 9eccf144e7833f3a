"""Blocks laid out from the bytes of a file are, bit for bit, those taken apart by torch and laid out by numpy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from specchat.engine.cpu import packed, parameters, unpacking
from specchat.engine.cpu.packed import Packed
from specchat.engine.cpu.parameters import Parameters
from specchat.engine.errors import ModelError
from specchat.engine.formats.block_fields import Half
from specchat.engine.formats.gguf import FIELDS, MXFP4, SIZES, Gguf
from specchat.engine.formats.grids import GRIDS
from specchat.engine.formats.layout import Blocks, FileRows, FourBit, Unread, Weight
from specchat.engine.formats.quantise import fused
from specchat.engine.memory.devices import Machine, place
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.matrices import reordered

pytest.importorskip("gguf")
pytestmark = pytest.mark.cpu

from gguf import GGUFReader  # noqa: E402

from measure.random_qwen3 import Shape, write  # noqa: E402
from tests.engine.test_gguf_types import Source, rows_of  # noqa: E402


@pytest.fixture(autouse=True)
def _without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the products of each format uncompiled, which nothing here multiplies with."""
    monkeypatch.setattr(packed, "kernels", lambda _: np.zeros(1, np.int64))


def both(kind: str, outputs: int, inputs: int, seed: int = 0) -> tuple[FileRows, Blocks | FourBit]:
    """A random matrix in the bytes of a file, and read from them."""
    raw = rows_of(kind, outputs, inputs, seed)
    held = torch.from_numpy(raw)
    rows = FileRows(held.data_ptr() + held.shape[1] * torch.arange(outputs), kind, inputs, (held,))
    return rows, Gguf({"a": kind}).read(Source(raw, kind), "a", (outputs, inputs))


def same(one: Packed, other: Packed) -> None:
    """Compare all that two hold, and the products but for addresses."""
    for found, expected in zip(one._held, other._held, strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if found.dtype.names is None:
            assert np.array_equal(found.view(np.uint8), expected.view(np.uint8))
        else:
            assert all((found[name] == expected[name]).all() for name in ("form", "panels", "inputs", "block"))
    for name in ("form", "panels", "inputs", "block", "stored"):
        assert (one.table[name] == other.table[name]).all()


def compare(one: Weight, other: Weight, bias: Tensor | None = None, ends: tuple[int, ...] = ()) -> None:
    found, expected = Packed(), Packed()
    found.add(one, bias, ends)
    expected.add(other, bias, ends)
    same(found, expected)


@pytest.mark.parametrize("kind", FIELDS)
def test_all_numbers_and_scales_are_those_of_the_general_way(kind: str) -> None:
    """Outputs that fill no panel, and rows whose blocks are no multiple of those that are taken apart together."""
    compare(*both(kind, 200, 1024 + SIZES[kind][0]))
    compare(*both(kind, 24, SIZES[kind][0], seed=1), torch.arange(24.0))
    compare(*both(kind, 72, 512, seed=2), ends=(40,))


def test_threads_share_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "CORES", 3)
    monkeypatch.setattr(unpacking, "SHARED", 1)
    compare(*both("Q5_K", 1000, 256))


def test_joined_rows_in_another_order_are_those_of_the_general_way() -> None:
    parts = [both(kind, 48, 512, seed) for seed, kind in enumerate(("Q4_K", "Q4_K", "Q6_K", "IQ4_XS"))]
    order = [*range(47, -1, -1), *range(48, 96), *range(128, 144), *range(96, 128), *range(144, 192)]
    found, expected = (reordered(fused(one), order) for one in zip(*parts, strict=True))
    compare(found, expected, torch.arange(192.0), ends=(96,))


@pytest.mark.parametrize("kind", sorted({*FIELDS} - {"Q8_0", MXFP4}))
def test_rows_of_zeros_are_those_of_the_general_way(kind: str) -> None:
    """But of Q8_0 the general way has the smallest number there, and of MXFP4 scales in the place of exponents."""
    order = [*range(20), *[-1] * 12, *range(20, 40), *[-1] * 12]
    found, expected = both(kind, 40, 256)
    compare(reordered(found, order), reordered(expected, order))


@pytest.mark.parametrize("kind", FIELDS)
def test_scales_that_are_no_numbers_are_left_to_the_general_way(kind: str) -> None:
    halves = [field.begin for field in FIELDS[kind] if isinstance(field, Half)]
    for begin in halves or [0]:
        raw = rows_of(kind, 40, 512)
        last = (512 // SIZES[kind][0] - 1) * SIZES[kind][1] + begin
        raw[37, last : last + 2] = np.array([np.nan], np.float16).view(np.uint8) if halves else 255
        held = torch.from_numpy(raw)
        rows = held.data_ptr() + held.shape[1] * torch.arange(40)
        with pytest.raises(Unread):
            Packed().add(FileRows(rows, kind, 512, (held,)))


def test_parts_that_no_product_has_are_left_to_the_general_way() -> None:
    (one, _), (other, _) = both("Q4_0", 24, 256), both("Q6_K", 24, 256)
    with pytest.raises(Unread):
        Packed().add(fused([one, other]))


TINY = Shape(256, 512, 2, 640)


@pytest.mark.parametrize("mixture", ["Q4_K_M", "Q4_0", "Q8_0", "IQ2_XXS"])
def test_a_file_is_what_it_is_in_the_general_way(mixture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    write(file, TINY, mixture)
    opened, used = Checkpoint.open(file), list[str]()
    unpack = unpacking.unpack

    def noted(kind: str, *arguments: object) -> None:
        used.append(kind)
        unpack(kind, *arguments)

    monkeypatch.setattr(packed, "unpack", noted)
    found = Parameters(opened, None)
    count = len(used)
    monkeypatch.setattr(parameters, "InFile", lambda weights: weights)
    expected = Parameters(opened, None)
    assert count >= 2 * 4 + 1
    assert len(used) == count
    same(found._packed, expected._packed)
    assert found.memory() == expected.memory()


@pytest.mark.parametrize("kind", GRIDS)
def test_a_model_with_codebooks_takes_the_bytes_of_its_file(kind: Any, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(file, TINY, kind)
    opened = Checkpoint.open(file)
    held, stored = Parameters(opened, None).memory(), sum(int(one.n_bytes) for one in GGUFReader(file).tensors)
    assert held <= 1.05 * stored, (held, stored)
    planned = place(PairSpec("p", "P", ModelSource(path=str(file))), opened, None, 200, Machine("none", None), 1)
    assert planned.plan.need("cpu").weights == pytest.approx(held, rel=0.01)


def test_a_table_of_its_own_is_read_from_the_file_and_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    write(file, TINY, "Q6_K")
    opened = Checkpoint.open(file)
    opened = replace(opened, drafts=(3, 9, 600))
    found = Parameters(opened, None)
    monkeypatch.setattr(parameters, "InFile", lambda weights: weights)
    assert torch.equal(found.embed([5, 639, 5]), Parameters(opened, None).embed([5, 639, 5]))
    assert found.embed([5])[0].std() > 0
    same(found._packed, Parameters(opened, None)._packed)


def test_a_damaged_scale_is_said_by_the_name_of_its_matrix(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write(file, TINY, "Q4_K_M")
    damaged = next(one for one in GGUFReader(file).tensors if one.name == "blk.1.ffn_up.weight")
    with file.open("r+b") as stored:
        stored.seek(damaged.data_offset)
        stored.write(np.array([np.inf], np.float16).tobytes())
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj has scales that are no numbers"):
        Parameters(Checkpoint.open(file), None)
