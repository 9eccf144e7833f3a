"""Models whose heads and hidden states fill no whole vectors: the compiled pass fills them with zeros."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.hardware.threads import CORES
from specchat.engine.memory.vectors import filled, unsupported
from specchat.engine.model.tree_layout import depth_first
from specchat.engine.protocol.pair import Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.cpu.test_decoder import one_by_one, whole
from tests.cpu.test_memory import held, own, planned
from tests.engine.test_decoder import reference, tokens
from tests.engine.test_trees import PARENTS, path_to
from tests.engine.tiny import FAMILIES, checkpoint

ODD: dict[str, Any] = {
    "hidden_size": 40,
    "head_dim": 12,
    "global_head_dim": 20,
    "intermediate_size": 36,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 20,
}
KINDS = [
    "llama-bias",
    "qwen3",
    "olmo2",
    "smollm3",
    "gemma2",
    "gemma4_e",
    "cohere2",
    "nemotron",
    "qwen3_5_moe",
    "gpt_oss",
]
"""Biases, norms of heads and over all heads, no rope, norms of values and shared entries, LayerNorm, gates, sinks."""


def odd(folder: Path, family: str, **changes: Any) -> Checkpoint:
    return Checkpoint.open(checkpoint(folder / "m", **FAMILIES[family] | ODD | changes, seed=3))


@pytest.mark.cpu
@pytest.mark.parametrize("family", KINDS)
def test_logits_equal_transformers_and_a_row_is_what_it_is_alone(family: str, tmp_path: Path) -> None:
    opened, ids = odd(tmp_path, family), tokens(60)
    assert not unsupported(opened.config.recipe)
    decoder = CpuDecoder(opened)
    found, theirs = whole(decoder, ids), reference(opened.folder, ids)
    assert theirs.std() > 0.3
    torch.testing.assert_close(found, theirs, atol=3e-4, rtol=3e-4)
    assert torch.equal(one_by_one(decoder, ids), found)
    whole(decoder, ids[:40])
    nodes = tokens(11, seed=1)
    rows = decoder.logits(decoder.forward(nodes, 40, layout=depth_first(PARENTS))).clone()
    decoder.keep(path_to(9), 41)
    after = decoder.logits(decoder.forward([5], 41 + len(path_to(9)))).clone()
    whole(decoder, ids[:40])
    chained = decoder.logits(decoder.forward([nodes[i] for i in (0, *path_to(9))], 40))
    assert torch.equal(rows[9], chained[-1])
    assert torch.equal(decoder.logits(decoder.forward([5], 41 + len(path_to(9)))), after)


@pytest.mark.parametrize("size", [2, 8, 100])
def test_any_head(size: int, tmp_path: Path) -> None:
    opened, ids = odd(tmp_path, "qwen3", head_dim=size, hidden_size=8, intermediate_size=37), tokens(30)
    found, theirs = whole(CpuDecoder(opened), ids), whole(ReferenceDecoder(opened), ids)
    torch.testing.assert_close(found, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("quant", ["nf4", "int8"])
def test_quantised_weights_are_what_the_reference_unpacks(quant: Quant, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    opened = odd(tmp_path, "qwen2", hidden_size=64, head_dim=None, num_attention_heads=8, num_key_value_heads=4)
    assert filled(opened.config.recipe).deepest == 2 * opened.config.recipe.deepest == 16
    ids, theirs = tokens(30), ReferenceDecoder(opened, quant=quant)
    torch.testing.assert_close(whole(CpuDecoder(opened, quant=quant), ids), whole(theirs, ids), atol=1e-4, rtol=1e-4)


def test_hidden_states_are_the_models_own(tmp_path: Path) -> None:
    opened, ids = odd(tmp_path, "qwen3", tie_word_embeddings=True), tokens(20)
    config = replace(opened.config, recipe=replace(opened.config.recipe, cap=3.0))
    mine, theirs = (of(replace(opened, config=config)) for of in (CpuDecoder, ReferenceDecoder))
    for one in (mine, theirs):
        one.record_states([0, 2, 4])
    found, expected = (one.forward(ids, 0) for one in (mine, theirs))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(mine.final_norm(found), theirs.final_norm(expected), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        mine.project(mine.final_norm(found)), theirs.project(theirs.final_norm(expected)), atol=1e-4, rtol=1e-4
    )
    for layer in (0, 2, 4):
        torch.testing.assert_close(mine.states(layer, 0, 20), theirs.states(layer, 0, 20), atol=1e-4, rtol=1e-4)


def test_plans_count_the_zeros(tmp_path: Path) -> None:
    opened = odd(tmp_path, "llama", hidden_size=136, head_dim=24, num_key_value_heads=2)
    assert own(planned(opened, None, CORES)) == pytest.approx(held(CpuDecoder(opened, 200)), rel=0.01)
