"""The page of measurements shows the estimate of steps on GPUs, from launches and ceilings that tests hold."""

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from measure.families import LLAMA, LLAMA_GGUF, SIZES, family
from measure.gpu_estimate import (
    OWN_LAUNCHES,
    WITH_EXPERTS,
    beside_measured,
    drafted_bytes,
    of_families,
    of_gguf,
    of_own_layers,
    of_prompts,
    table,
)
from measure.gpu_steps import (
    A_PASS,
    BUSY,
    CARDS,
    FOR_FAMILIES,
    HOST_MS,
    PASS_CYCLES,
    ROWS_A_CYCLE,
    Card,
    Product,
    floor_bytes,
    floor_ms,
    launches,
    products,
    step_ms,
)
from specchat.bench.prefetch import LAYERS, MODELS
from specchat.bench.published import PUBLISHED
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.kernels.gpu_shapes import OVERHEAD, tiling
from specchat.engine.memory.need import Model
from tests.gpu_net.fake_torch import PROCESSORS, fake_torch
from tests.gpu_net.shapes import weights
from tests.gpu_net.test_captured_heads import CEILINGS, MOST_WITH_EXPERTS
from tests.kernels.test_blocks import LIMITS

PAGE = Path(__file__).parents[1] / "docs" / "measurements.md"
STEPS = PAGE.with_name("gpu-step.md")
PRODUCTS = PAGE.parent / "kernels" / "products.md"
GPU = torch.device("cuda", 0)
AFTER = 3
"""Launches after the head: scores, choose, commit."""


@pytest.mark.parametrize("made", [table, of_gguf, of_families, of_prompts, of_own_layers])
def test_the_page_shows_the_tables(made: Callable[[], str]) -> None:
    assert made() in PAGE.read_text(), "run python -m measure.gpu_estimate"


def test_a_report_of_the_doctor_stands_beside_the_estimate(tmp_path: Path) -> None:
    report, times = tmp_path / "specchat-gpu.zip", {"us": 700.0, "nothing ahead, us": 750.0}
    timed = [{"model": name, "rows": rows, **times} for name in MODELS for rows in (1, 8)]

    def told(gpu: str, rows: list[dict[str, object]]) -> str:
        with zipfile.ZipFile(report, "w") as made:
            made.writestr("environment/rows.json", json.dumps([{"gpu": gpu}]))
            made.writestr("prefetch/rows.json", json.dumps(rows))
        return beside_measured(report)

    lines = told("NVIDIA GeForce RTX 4090", timed).splitlines()
    assert len(lines) == 2 + len(timed)
    name, rows, estimated, measured, ratio, without, _ = lines[2].strip("| ").split(" | ")
    assert (name, rows, measured) == ("qwen3-8b", "1", "700")
    assert float(ratio) == pytest.approx(700 / float(estimated), abs=0.01)
    card, cut = next(card for card in CARDS if card.name == "RTX 4090"), PUBLISHED["qwen3-8b"].cut(LAYERS).target
    floor = 1e3 * floor_ms(Model(cut, "cuda", "nf4"), card)
    assert floor < float(estimated) < float(without) < 1.2 * floor
    assert "RTX 4060 is not among CARDS" in told("NVIDIA GeForce RTX 4060", timed)
    assert "prefetch has no times" in told("NVIDIA H200", [])
    report.write_bytes(b"PK")
    assert "no whole file" in beside_measured(report)


def test_a_step_takes_no_less_than_its_bytes() -> None:
    """4.65 GB of weights, and 0.07 GB of context: 4.7 ms at 1,008 GB/s."""
    card = next(card for card in CARDS if card.name == "RTX 4090")
    assert floor_ms(LLAMA, card) == pytest.approx(4.7, rel=0.01)
    assert floor_ms(LLAMA, card) < step_ms(LLAMA, card, 1, 1.0) <= step_ms(LLAMA, card, 1, 0.5)
    assert step_ms(LLAMA, card, 1, 0.5) < step_ms(LLAMA, card, 16, 0.5)


def test_the_estimate_is_what_the_h200_took() -> None:
    """docs/gpu-step.md has the times; they leave the host's part out, and rows were read in pieces."""
    card = next(card for card in CARDS if card.name == "H200")
    for rows, measured in {1: 3.49, 2: 3.56, 4: 3.70, 8: 4.11, 16: 5.22}.items():
        assert f"{measured:.2f}" in STEPS.read_text()
        step = step_ms(LLAMA, card, rows, BUSY, as_timed=True)
        estimated = step - (HOST_MS if rows > 1 else 0)
        assert estimated == pytest.approx(measured, rel=0.02 if rows < 16 else 0.07), rows


def test_rows_cost_what_those_of_int8_took() -> None:
    """Gates of Qwen3-8B, 48 rows more: the passes of the programs on the busiest multiprocessor, 256 bytes a row."""
    card, (outputs, inputs) = next(card for card in CARDS if card.name == "H200"), (24576, 4096)
    cut = tiling(outputs, inputs, 8, card.processors)
    passes = -(-outputs // cut.outputs // card.processors) * (inputs // cut.inputs + OVERHEAD[8])
    timed = next(line for line in PRODUCTS.read_text().splitlines() if line.startswith("| int8 |"))
    few, many = map(float, timed.split("|")[-3:-1])
    assert 48 * 2 * cut.inputs * passes / (1e3 * (many - few) * card.clock) == pytest.approx(ROWS_A_CYCLE, rel=0.02)


def test_what_is_wanted_of_two_cards_holds_or_is_said() -> None:
    of = {card.name: card for card in CARDS}
    (ada, ampere), page = (of["RTX 4090"], of["RTX 3090"]), PAGE.read_text()
    assert [of_floor(ada), of_floor(ada, ahead=False), several(ada)] == pytest.approx([1.15, 1.201, 1.05], abs=0.005)
    assert [of_floor(ampere), several(ampere)] == pytest.approx([1.23, 1.07], abs=0.005)
    assert "1.2 times the floor on a 4090 (estimated 1.15; 1.201 with nothing asked ahead" in page
    assert "which both keep (1.05 and 1.07)" in page


def test_a_gguf_file_is_near_its_floor() -> None:
    """Weights of 4.71 GB, which are the 4.92 GB of the file without its table of tokens."""
    assert floor_bytes(LLAMA_GGUF) == pytest.approx(4.72e9 + 2 * 32 * 8 * 128 * 2 * 500, rel=0.002)
    for name in ("RTX 4090", "RTX 3090"):
        card = next(card for card in CARDS if card.name == name)
        assert step_ms(LLAMA_GGUF, card, 1, BUSY) <= 1.25 * floor_ms(LLAMA_GGUF, card)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_blocks_take_the_cycles_that_the_compile_suite_allows(kind: str) -> None:
    """A warp of four issues an instruction a cycle; the pipe of integers is less busy."""
    *_, instructions, _, integers = LIMITS[kind]
    assert PASS_CYCLES[kind, 256] == pytest.approx(instructions * 64 * 256 / 128, abs=1)
    assert PASS_CYCLES[kind, 256] > integers


def of_floor(card: Card, ahead: bool = True) -> float:
    """Plain, of the floor."""
    return step_ms(LLAMA, card, 1, BUSY, ahead) / floor_ms(LLAMA, card)


def several(card: Card) -> float:
    """8 rows, of plain."""
    return step_ms(LLAMA, card, 8, BUSY) / step_ms(LLAMA, card, 1, BUSY)


def test_a_row_of_a_mixture_reads_its_experts_alone() -> None:
    """0.9 GB of experts in NF4, as much of attention and routers, and a head of 0.6 GB."""
    of_experts = 48 * 8 * 3 * 2048 * 768 * 0.516
    beside = 48 * ((4096 + 2 * 512) * 2048 + 2048 * 4096) * 0.516 + 48 * 128 * 2048 * 2
    assert floor_bytes(family("Qwen3-Coder-30B-A3B")) == pytest.approx(
        of_experts + beside + 2 * 2048 * 151936 + 48 * 2 * 4 * 128 * 2 * 500, rel=0.002
    )


def test_a_token_of_the_targets_own_layer_reads_that_and_the_head() -> None:
    """Qwen3.5-9B: queries with gates, keys, values, output; three matrices of an MLP; two halves joined; the head."""
    attention = (2 * 16 + 2 * 4) * 256 * 4096 + 16 * 256 * 4096
    assert drafted_bytes(family("Qwen3.5-9B").config) == 2 * (
        attention + 3 * 4096 * 12288 + 2 * 4096 * 4096 + 248320 * 4096
    )
    assert CEILINGS["mtp"] == OWN_LAUNCHES
    of_experts = family("Qwen3.6-35B-A3B").config
    attention = (2 * 16 + 2 * 2) * 256 * 2048 + 16 * 256 * 2048
    assert drafted_bytes(of_experts, 32768) == 2 * (
        attention + 9 * 3 * 2048 * 512 + 257 * 2048 + 2 * 2048 * 2048 + 32768 * 2048
    )
    assert MOST_WITH_EXPERTS == WITH_EXPERTS


def test_rows_that_choose_at_random_hit_more_experts() -> None:
    one = Product(1536, 2048, 4, 0.5, count=128, top=8)
    assert [one.hit(rows) for rows in (1, 2, 8)] == pytest.approx([8, 15.5, 51.6], rel=0.01)
    assert Product(64, 64, 16, 2).hit(8) == 1


@pytest.mark.parametrize("name", SIZES)
def test_launches_are_those_of_a_pass(name: str) -> None:
    """Captured on a GPU that is not there, with as many multiprocessors; of the first layers, of every kind."""
    assert FOR_FAMILIES.processors == PROCESSORS
    whole = family(name)
    model = replace(whole, config=whole.config.cut(6))
    assert {type(one.mixer) for one in model.config.recipe.layers} == {
        type(one.mixer) for one in whole.config.recipe.layers
    }
    with fake_torch() as fake:
        kept = weights(model.config, model.quant, GPU, packed=model.stored is not None)
        made = DeviceDecoder(model.config, kept, 64, GPU, torch.bfloat16)
        tokens, start = (torch.zeros(many, dtype=torch.int32, device=GPU) for many in (64, 1))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream(GPU)):
            graph.capture_begin()
            made.forward(tokens, start, 1)
            made.logits(0, 1)
            capture = fake.runtime.capture
            assert capture is not None
            of_torch = sum(capture.operations[one] for one in ("add_", "div_", "tanh_", "mul_"))
            found = len(capture.launches) + of_torch
            graph.capture_end()
    assert A_PASS > AFTER
    assert found + AFTER == launches(model, FOR_FAMILIES) + sum(1 for _ in products(model))
