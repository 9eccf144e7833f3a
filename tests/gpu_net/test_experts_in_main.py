"""Experts that a GPU reads in main memory: what is launched, locked and written, on a GPU that is not there."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from specchat.bench.published import PUBLISHED
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.weights import Product, load
from specchat.engine.errors import PageLockRefused
from specchat.engine.formats.layout import EightBit, FourBit, Weight, values_of
from specchat.engine.hardware.page_locked import values_in_main
from specchat.engine.kernels.processors import as_with
from specchat.engine.protocol.pair import QUANTS, Quant
from specchat.engine.runners.device import device_runner
from specchat.engine.weights.checkpoint import Checkpoint
from tests.device.conftest import CONTEXT, ON_GPU
from tests.device.test_decoding import SAMPLINGS, write
from tests.device.test_families import changes
from tests.engine.tiny import VOCAB, checkpoint
from tests.families.test_gpt_oss import published, saved
from tests.gpu_net.fake_torch import fake_torch
from tests.gpu_net.runtime import Launch, flat
from tests.gpu_net.shapes import weights

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

__all__ = ["saved"]

HOST, GPU = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of experts beside an MLP."""
    return checkpoint(tmp_path_factory.mktemp("experts") / "target", **changes("qwen2_moe"))


@pytest.fixture(scope="module")
def packed(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experts in MXFP4 as they are published."""
    return published(saved, tmp_path_factory.mktemp("packed"))


def decoder(folder: Path, quant: Quant | None, device: torch.device, in_main: int) -> DeviceDecoder:
    opened, dtype = Checkpoint.open(folder), torch.float32
    loaded = load(opened, quant, device, dtype, experts_in_main=in_main)
    return DeviceDecoder(opened.config, loaded, CONTEXT, device, dtype)


def text(decoder: DeviceDecoder) -> list[int]:
    runner = device_runner(decoder, None, VOCAB, decoder.device)
    return write(runner, "lookup", 3, SAMPLINGS["sampled"], tokens=3)


def values(weight: Weight) -> Tensor:
    return weight.packed if isinstance(weight, FourBit) else weight.values if isinstance(weight, EightBit) else weight


def of_experts(decoder: DeviceDecoder) -> list[Tensor]:
    forms = [form for one in decoder.config.recipe.mixtures for form in (one.each.gate_up, one.each.down)]
    return [values(decoder.weights.products[form].weight) for form in forms]


@pytest.mark.parametrize("quant", [None, *(pytest.param(one, marks=pytest.mark.slow) for one in QUANTS)])
def test_bits_are_those_of_experts_on_the_device(folder: Path, quant: Quant | None) -> None:
    """Under the interpreter, in every format of loading."""
    assert text(decoder(folder, quant, HOST, 1)) == text(decoder(folder, quant, HOST, 0))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ["folder", "packed"])
def test_a_gpu_reads_them_in_main_memory(name: str, request: pytest.FixtureRequest) -> None:
    place: Path = request.getfixturevalue(name)
    at_once = text(decoder(place, None, HOST, 0))
    with fake_torch(2, computes=True) as fake:
        there = decoder(place, None, GPU, 1)
        moved, kept = of_experts(there)[:2], of_experts(there)[2:]
        assert {one.device.type for one in moved} == {"cpu"}
        assert {one.device for one in kept} == {GPU}
        assert sorted(fake.locked) == sorted(one.data_ptr() for one in (*moved, values_of(there.weights.embed)))
        assert decoder(place, None, GPU, 0).memory() - there.memory() == sum(one.nbytes for one in moved)
        del there, moved
        assert not fake.locked
        assert text(decoder(place, None, GPU, 1)) == at_once
        assert not fake.runtime.problems


def launched(in_main: bool) -> list[Launch]:
    """The launches of a captured pass of a layer of Qwen3-30B-A3B in NF4."""
    config = PUBLISHED["qwen3-30b-a3b"].target.cut(1)
    (mixture,) = config.recipe.mixtures
    with fake_torch(2) as fake, as_with(1024):  # what took main memory for its device would be cut for a large one
        kept = weights(config, "nf4", GPU)
        for form in (mixture.each.gate_up, mixture.each.down) if in_main else ():
            weight, bias = kept.products[form]
            kept.products[form] = Product(values_in_main(weight, GPU), bias)
        made = DeviceDecoder(config, kept, CONTEXT, GPU, torch.bfloat16)
        tokens, start = (torch.zeros(many, dtype=torch.int32, device=GPU) for many in (64, 1))
        graph, first = torch.cuda.CUDAGraph(), len(fake.launches)
        with torch.cuda.stream(torch.cuda.Stream(GPU)):
            graph.capture_begin()
            made.forward(tokens, start, 4)
            graph.capture_end()
        assert not fake.runtime.problems
        return fake.launches[first:]


def test_launches_are_those_of_experts_on_the_gpu() -> None:
    """In grid and arguments, so that the same compiled kernels run."""

    def told(launches: list[Launch]) -> list[tuple[object, ...]]:
        shapes = [
            [(name, (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else v) for name, v in flat(one.arguments)]
            for one in launches
        ]
        return [(one.name, one.grid, shape) for one, shape in zip(launches, shapes, strict=True)]

    assert told(launched(in_main=True)) == told(launched(in_main=False))


def test_memory_that_is_not_locked_is_told_and_leaves_no_error_to_the_next_kernel(folder: Path) -> None:
    with fake_torch(2) as fake:
        fake.lockable = 0
        with pytest.raises(PageLockRefused, match=r'^The GPU cannot read 0\.0 GiB .*CUDA error 2.*device = "cpu"\.$'):
            decoder(folder, None, GPU, 1)
        assert not fake.locked
        torch.ones(1, device=GPU)


def test_no_other_weight_may_lie_in_main_memory(folder: Path) -> None:
    with fake_torch(2) as fake:
        made = decoder(folder, None, GPU, 1)
        torch.cuda.cudart().cudaHostRegister((bad := torch.zeros(64, dtype=torch.int32)).data_ptr(), bad.nbytes, 3)
        made.forward(bad, torch.zeros(1, dtype=torch.int32, device=GPU), 1)
        assert any("tokens in main memory" in problem for problem in fake.runtime.problems)
