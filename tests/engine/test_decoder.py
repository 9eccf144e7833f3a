"""The reference as a decoder: transformers' logits, each row as it is alone, in any company, tree or part of a pass.

The compiled decoder is held against transformers here too, which computes the logits once for both.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.memory.plan import context_of
from specchat.engine.model.passes import Skip
from specchat.engine.model.tree_layout import Layout
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.causal import AutoModelForCausalLM
from tests.engine.tiny import FAMILIES, FAMILY, MORE, VOCAB, checkpoint, mostly


def tokens(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def reference(folder: Path, ids: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def whole(decoder: ReferenceDecoder | CpuDecoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([decoder.logits(decoder.forward(ids[i : i + 128], i)).clone() for i in range(0, len(ids), 128)])


def one_by_one(decoder: ReferenceDecoder, ids: list[int]) -> torch.Tensor:
    return torch.cat([decoder.logits(decoder.forward([token], i)) for i, token in enumerate(ids)])


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(family: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", seed=3, **FAMILIES[family])
    ids = tokens(200)
    theirs, opened = reference(folder, ids), Checkpoint.open(folder)
    assert theirs.std() > 0.3  # lively logits, or agreement would mean nothing
    torch.testing.assert_close(whole(CpuDecoder(opened), ids), theirs, atol=2e-4, rtol=1e-4)
    few = 40  # each token of the reference takes as long as a pass
    torch.testing.assert_close(whole(ReferenceDecoder(opened), ids[:few]), theirs[:few], atol=2e-4, rtol=1e-4)


LONGER = {
    "yarn": ({"factor": 4.0, "original_max_position_embeddings": 64}, 256, 256),
    "linear": ({"factor": 4.0}, 64, 256),
    "llama3": (FAMILY["llama-llama3"]["rope_scaling"], 64, 512),
}
"""Scalings of a model of 64 positions, what it holds by itself, and what where it is asked for."""


@pytest.mark.parametrize("kind", LONGER)
def test_scaled_positions_reach_beyond_the_original_ones_as_in_transformers(kind: str, tmp_path: Path) -> None:
    scaling, usual, longest = LONGER[kind]
    rope = scaling | {"rope_type": kind}
    folder = checkpoint(tmp_path / "m", seed=3, max_position_embeddings=64, rope_scaling=rope)
    found = Checkpoint.open(folder)
    assert (context_of(found.config, None), context_of(found.config, 9999)) == (usual, longest)
    decoder = ReferenceDecoder(found, context_of(found.config, 200))
    ids = tokens(decoder.context)
    assert len(ids) == 200
    torch.testing.assert_close(whole(decoder, ids), reference(folder, ids), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["stories260K", "stories260K-q8"])
def test_logits_equal_transformers_on_real_weights(name: str, shared_data: Path) -> None:
    folder = shared_data / "checkpoints" / name
    ids = [1, *(t + 3 for t in tokens(250) if t < 400)]
    torch.testing.assert_close(
        whole(ReferenceDecoder(Checkpoint.open(folder)), ids), reference(folder, ids), atol=2e-4, rtol=1e-4
    )


def test_rope_parameters_of_transformers_5(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "old", **FAMILY["llama-llama3"])
    new = checkpoint(tmp_path / "new")
    config = json.loads((old / "config.json").read_text())
    config["rope_parameters"] = config.pop("rope_scaling") | {"rope_theta": config.pop("rope_theta")}
    (new / "config.json").write_text(json.dumps(config))
    ids = tokens(100)
    assert torch.equal(
        whole(ReferenceDecoder(Checkpoint.open(old)), ids), whole(ReferenceDecoder(Checkpoint.open(new)), ids)
    )


@pytest.mark.rotated(3)
@pytest.mark.cpu
@pytest.mark.parametrize("family", mostly(["llama", "qwen3", *MORE]))
def test_a_row_does_not_depend_on_its_company(family: str, tmp_path: Path) -> None:
    decoder = ReferenceDecoder(Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES[family])))
    ids = tokens(40)
    alone = one_by_one(decoder, ids)
    for start, widths in ((0, (2, 3)), (27, (2, 13))):
        for rows in widths:
            together = decoder.logits(decoder.forward(ids[start : start + rows], start))
            assert torch.equal(together, alone[start : start + rows]), (start, rows)
    # Prefill in big blocks leaves the very same keys and values.
    keys = [of.clone() for of in decoder.cache.keys]
    whole(decoder, ids)
    assert all(map(torch.equal, keys, decoder.cache.keys))


@pytest.mark.cpu
@pytest.mark.parametrize("threads", [1, 2])
def test_so_with_long_inputs_and_threads(threads: int, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        folder = checkpoint(tmp_path / "m", intermediate_size=4864, num_hidden_layers=1)
        decoder, ids = ReferenceDecoder(Checkpoint.open(folder)), tokens(16)
        alone = one_by_one(decoder, ids)
        assert torch.equal(decoder.logits(decoder.forward(ids, 0)), alone)
    finally:
        torch.set_num_threads(before)


def test_skipping_nothing_is_the_model_and_skipping_something_is_not(tmp_path: Path) -> None:
    decoder = ReferenceDecoder(Checkpoint.open(checkpoint(tmp_path / "m")))
    ids = tokens(20)
    full = whole(decoder, ids)
    for skip in (Skip(attention=frozenset({1})), Skip(mlp=frozenset({2}))):
        assert not torch.equal(decoder.logits(decoder.forward(ids, 0, skip)), full)
    assert torch.equal(whole(decoder, ids), full)


def test_the_context_is_a_limit(tmp_path: Path) -> None:
    decoder = ReferenceDecoder(Checkpoint.open(checkpoint(tmp_path / "m")), context=10)
    decoder.forward(tokens(10), 0)
    with pytest.raises(ValueError, match="do not fit"):
        decoder.forward([1], 10)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_are_multiplied_as_they_are(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, seed=4, **FAMILY["qwen2"])
    rounded = {name: t.to(dtype) for name, t in load_file(folder / "model.safetensors").items()}
    save_file(rounded, folder / "model.safetensors")
    decoder, ids = ReferenceDecoder(Checkpoint.open(folder)), tokens(40)
    torch.testing.assert_close(whole(decoder, ids), reference(folder, ids), atol=1e-4, rtol=1e-4)


def test_a_window_is_that_of_transformers(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, seed=4, **FAMILY["mistral"] | {"sliding_window": 24})
    opened = Checkpoint.open(folder)
    assert opened.config.longest == 256
    decoder, ids = ReferenceDecoder(opened), tokens(80)
    torch.testing.assert_close(whole(decoder, ids), reference(folder, ids), atol=2e-4, rtol=1e-4)


def test_a_tree_has_so_many_nodes_at_most(tmp_path: Path) -> None:
    decoder = ReferenceDecoder(Checkpoint.open(checkpoint(tmp_path / "m")))
    with pytest.raises(ValueError, match="a tree of 66 nodes"):
        decoder.forward([1, 2], 0, layout=Layout([0], [2], [[]], 64))
