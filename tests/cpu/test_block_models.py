"""Whole models whose matrices lie in blocks: the compiled pass beside the reference, which dequantises them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specchat.engine.cpu import packed
from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.cpu.products import columns, products
from specchat.engine.formats.gguf import TYPES
from specchat.engine.formats.layout import Blocks, Weight
from specchat.engine.formats.quantise import dequantised
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.engine.weights.weights import Weights
from tests.engine.test_gguf_types import matrix
from tests.engine.tiny import FAMILIES, checkpoint

gguf = pytest.importorskip("gguf")
SHAPE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 260}
MIXED = {"v_proj": "Q6_K", "down_proj": "Q6_K", "embed_tokens": "Q6_K", "up_proj": "Q4_K"}
"""As the mixture "Q4_K_M" has them."""

KERNELS = cache(products.kernels.__wrapped__)
"""Products by format: matrices have their addresses."""


@pytest.fixture(autouse=True)
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of one row, of two and of many: the 34 rows here need no others, which take seconds to compile."""
    monkeypatch.setattr(columns, "WIDE", {rows: columns.WIDE[rows] for rows in (1, 2)})
    monkeypatch.setattr(packed, "kernels", KERNELS)


def random_blocks(kind: str, outputs: int, inputs: int, seed: int) -> Blocks:
    """Random bytes that stand for numbers of the size of weights."""
    found = matrix(kind, outputs, inputs, seed)
    size = float(dequantised(found, torch.float32).std()) * inputs**0.5

    def less(scales: Tensor | None) -> Tensor | None:
        return None if scales is None else (scales / size).half()

    if found.supers is None:
        scales = less(found.scales)
        assert scales is not None
        return replace(found, scales=scales, minimums=less(found.minimums))
    return replace(found, supers=less(found.supers), minimum_supers=less(found.minimum_supers))


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], str]], None]:
    """Let matrices be read in the type that a function gives for their names; an empty one leaves them."""
    read = Weights.linear

    def stored_as(kind_of: Callable[[str], str]) -> None:
        def linear(self: Weights, name: str, outputs: int, inputs: int) -> Weight:
            dense, kind = read(self, name, outputs, inputs), kind_of(name)
            if not kind or inputs % TYPES[kind].size:
                return dense
            assert isinstance(dense, Tensor)
            if kind[-2:] in ("_0", "_1"):
                raw = gguf.quants.quantize(dense.float().numpy(), gguf.GGMLQuantizationType[kind])
                return TYPES[kind].read(torch.from_numpy(raw), inputs)
            return random_blocks(kind, outputs, inputs, sum(map(ord, name)))

        monkeypatch.setattr(Weights, "linear", linear)

    return stored_as


def agree(opened: Checkpoint) -> CpuDecoder:
    """Compare the logits of the compiled pass with the reference's, and each of its rows with the row alone."""
    compiled, reference = CpuDecoder(opened, 64, threads=1), ReferenceDecoder(opened, 64)
    tokens = list(range(3, 37))
    found = compiled.logits(compiled.forward(tokens, 0)).clone()
    expected = reference.logits(reference.forward(tokens, 0))
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)
    alone = torch.cat([compiled.logits_after([token], place).clone() for place, token in enumerate(tokens)])
    assert torch.equal(found, alone)
    return compiled


def mixed(name: str) -> str:
    return next((kind for part, kind in MIXED.items() if name.endswith(part)), "Q4_K")


@pytest.mark.parametrize("tied", [True, pytest.param(False, marks=pytest.mark.cpu)], ids=["tied", "untied"])
def test_a_mixture_of_types_is_the_model_that_it_stands_for(tied: bool, blocks: Any, tmp_path: Path) -> None:
    blocks(mixed)
    opened = Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE, tie_word_embeddings=tied))
    agree(opened)


@pytest.mark.rotated(3)
@pytest.mark.cpu
@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "Q2_K", "IQ2_XS"])
def test_a_model_of_one_type_is_the_model_that_it_stands_for(kind: str, blocks: Any, tmp_path: Path) -> None:
    blocks(lambda _: kind)
    agree(Checkpoint.open(checkpoint(tmp_path / "m", **SHAPE, attention_bias=True)))


@pytest.mark.rotated(3, 1)
@pytest.mark.parametrize("family", ["qwen3_moe", "gemma4_e", "qwen3_5", "glm4_moe_lite", "lfm2"])
def test_experts_inputs_of_layers_and_recurrent_layers_lie_in_blocks(family: str, blocks: Any, tmp_path: Path) -> None:
    blocks(lambda name: "Q6_K" if name.endswith(("v_proj", "down_proj")) else "Q4_0")
    more = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256}
    agree(Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family] | more)))
