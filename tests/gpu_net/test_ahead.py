"""Weights asked for ahead in the passes of a GPU that is not there: those of the next product, and no launch more."""

import pytest
import torch

from measure.families import SIZES, family
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.kernels.ahead import NONE, VARIABLE, Memory, as_of, memory_of, whole_memory
from specchat.engine.kernels.gpu_shapes import AHEAD_PART
from specchat.engine.runners import device as runners
from specchat.engine.runners.device import compile_ahead
from specchat.resident.address import fingerprint
from tests.device.conftest import ON_GPU
from tests.gpu_net.fake_torch import FakeTorch, fake_torch
from tests.gpu_net.runtime import Launch
from tests.gpu_net.shapes import weights

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")
THERE = torch.device("cuda", 0)
MIXTURES = ("Qwen3-Coder-30B-A3B", "Qwen3.6-35B-A3B", "Gemma 4 26B-A4B", "gpt-oss-20b")

ASKING = {
    "Qwen3-Coder-30B-A3B": 1,
    "Qwen3.5-9B": 14,
    "Qwen3.8-27B": 14,
    "Qwen3.6-35B-A3B": 7,
    "Gemma 4 31B": 19,
    "Gemma 4 26B-A4B": 8,
    "gpt-oss-20b": 13,
    "Muse Glimmer 30B": 19,
    "LFM2-1.2B": 11,
}
"""Launches that ask, in six layers and for the head. Coder's products take no longer than a launch."""


def passed(fake: FakeTorch, name: str, memory: Memory) -> list[Launch]:
    """The launches of a pass of one row through six layers, as with this memory."""
    whole = family(name)
    model, before = whole.config.cut(6), len(fake.launches)
    kept = weights(model, whole.quant, THERE, packed=whole.stored is not None and whole.stored.of_experts)
    made = DeviceDecoder(model, kept, 64, THERE, torch.bfloat16)
    tokens, start = (torch.zeros(many, dtype=torch.int32, device=THERE) for many in (64, 1))
    with as_of(memory):
        made.forward(tokens, start, 1)
        made.logits(0, 1)
    return fake.launches[before:]


def product_after(launches: list[Launch], at: int) -> Launch:
    return next(one for one in launches[at:] if one.name == "_multiply")


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", SIZES)
def test_what_is_asked_for_is_the_next_products(name: str) -> None:
    with fake_torch() as fake:
        launches, without = passed(fake, name, memory_of(THERE)), passed(fake, name, NONE)
        assert not fake.runtime.problems
    assert [one.name for one in launches] == [one.name for one in without]
    asking = [at for at, one in enumerate(launches) if one.arguments.get("ahead") is not None]
    assert len(asking) == ASKING[name]
    assert all(one.arguments.get("ahead") is None for one in without)
    for at in asking:
        given, of_next = launches[at].arguments, product_after(launches, at).arguments["weight"].planes.low
        programs = launches[at].grid[0] * launches[at].grid[1] - given["rows"] * launches[at].grid[1]
        parts = given.get("parts", programs)
        assert 0 <= programs - parts < launches[at].grid[1]
        assert 0 < parts * AHEAD_PART <= given["ahead"].nbytes
        if name not in MIXTURES or launches[at].name != "_add_rms_norm":
            assert given["ahead"].nbytes == of_next.nbytes


def test_a_switch_has_nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an engine that is started with it: others do not share it."""
    with fake_torch():
        assert memory_of(THERE).cache
        monkeypatch.setenv(VARIABLE, "off")
        assert memory_of(THERE) == NONE
    assert fingerprint("loader", {VARIABLE: "off"}) != fingerprint("loader", {})


def test_kernels_are_compiled_as_they_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal in main memory asks for as much as the GPU's launches."""
    found: list[Memory] = []
    monkeypatch.setattr(runners, "rehearsed", lambda _: found.append(memory_of(torch.device("cpu"))))
    monkeypatch.setattr(runners, "compile_all", lambda *_: None)
    with fake_torch():
        compile_ahead(lambda: None, THERE, lambda _: None)
        assert found == [memory_of(THERE)]
    assert found[0].rate == pytest.approx(1008e3, rel=0.001)


def test_where_unpacking_is_the_bound_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class H200:
        memory_clock_rate, memory_bus_width, L2_cache_size, multi_processor_count = 3_201_000, 6144, 50 << 20, 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: H200)
    assert memory_of(torch.device("cuda", 5)) == NONE
    assert whole_memory(torch.device("cuda", 5)).rate == pytest.approx(4917e3, rel=0.001), "for those who compare"
    H200.multi_processor_count = 400
    assert memory_of(torch.device("cuda", 6)).cache == 50 << 20
    del H200.memory_clock_rate
    assert not memory_of(torch.device("cuda", 7)).rate, "torch tells no clock"
