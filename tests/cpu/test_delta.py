"""Recurrent layers compiled: the reference's logits for any shape, and the same bits for any threads and processor."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.memory.need import Model, need
from specchat.engine.memory.vectors import fits, unsupported
from specchat.engine.protocol.pair import Quant
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.cpu.test_decoder import AVX2, DIGEST, one_by_one, whole
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, checkpoint

MAMBA = FAMILIES["granitemoehybrid"]
SHAPES = {
    "several vectors and a rest": {"linear_value_head_dim": 80, "linear_key_head_dim": 32},
    "a key head for each value head": {"linear_num_key_heads": 4, "linear_value_head_dim": 16},
    "one key head": {"linear_num_key_heads": 1, "linear_value_head_dim": 64},
    "many heads": {"linear_num_key_heads": 5, "linear_num_value_heads": 20},
    "one key head of many": {"linear_num_key_heads": 1, "linear_num_value_heads": 10},
    "two taps": {"linear_conv_kernel_dim": 2},
    "Mamba 2": MAMBA,
    "parts of the heads of one group": MAMBA | {"mamba_n_groups": 1, "mamba_n_heads": 20, "mamba_expand": 5},
    "wide heads of Mamba 2": MAMBA | {"mamba_expand": 10, "mamba_conv_bias": False, "mamba_proj_bias": True},
    "all of a head turned": {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}},
}


def opened(folder: Path, **changes: object) -> Checkpoint:
    return Checkpoint.open(checkpoint(folder / "m", seed=5, **FAMILIES["qwen3_5"] | changes))


@pytest.mark.rotated(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_reference(shape: str, tmp_path: Path) -> None:
    found, ids = opened(tmp_path, **SHAPES[shape]), tokens(150)
    assert fits(found.config)
    decoder = CpuDecoder(found)
    alone, theirs = one_by_one(decoder, ids), whole(ReferenceDecoder(found), ids)
    assert theirs.std() > 0.3
    torch.testing.assert_close(alone, theirs, atol=2e-4, rtol=1e-4)
    assert torch.equal(whole(decoder, ids), alone)


def test_a_text_goes_on_from_before_its_last_pass(tmp_path: Path) -> None:
    """States are held at the start of that pass, which is too late."""
    decoder, ids = CpuDecoder(opened(tmp_path)), tokens(90)
    alone = one_by_one(decoder, ids)
    for start in (59, 41, 40, 39, 23):
        for first in range(0, 60, 20):
            decoder.forward(ids[first : first + 20], first)
        assert torch.equal(decoder.logits(decoder.forward(ids[start:], start)), alone[start:]), start


def test_strong_and_weak_decays_are_those_of_the_reference(tmp_path: Path) -> None:
    """Where softplus is its argument, and where it is next to nothing."""
    found, ids = opened(tmp_path), tokens(60)
    file = found.folder / "model.safetensors"
    shifts = torch.tensor([-30.0, -4.0, 3.0, 40.0])
    weights = load_file(file)
    weights |= {name: shifts.clone() for name in weights if name.endswith("dt_bias")}
    save_file(weights, file, metadata={"format": "pt"})
    mine, theirs = (whole(kind(Checkpoint.open(found.folder)), ids) for kind in (CpuDecoder, ReferenceDecoder))
    torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=1e-4)


def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    found, ids = opened(tmp_path), tokens(150)
    one, several = CpuDecoder(found, threads=1), CpuDecoder(found, threads=3)
    expected = whole(one, ids)
    for active in (2, 3):
        several.use_threads(active)
        assert torch.equal(whole(several, ids), expected)
        assert torch.equal(one_by_one(several, ids[:30]), expected[:30])


@pytest.mark.slow
def test_the_kind_of_processor_changes_no_bit(tmp_path: Path) -> None:
    shape = {"linear_value_head_dim": 80, "hidden_size": 128, "intermediate_size": 128}
    folder = checkpoint(tmp_path / "m", **FAMILIES["qwen3_5"] | shape)
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST, "", str(folder)],
            env=os.environ | changed,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for changed in ({}, AVX2)
    }
    assert len(digests) == 1


def test_recurrent_heads_that_fill_no_vectors_go_to_the_reference(tmp_path: Path) -> None:
    found = opened(tmp_path, linear_value_head_dim=24)
    assert "recurrent heads of 24 values, not a multiple of 16" in unsupported(found.config.recipe)
    assert isinstance(host_model(found), ReferenceDecoder)


def test_features_around_it_that_the_pass_lacks_are_told(tmp_path: Path) -> None:
    recipe = opened(tmp_path).config.recipe
    first, *others = recipe.layers
    after = replace(first, post_mixer=first.pre_mixer)
    assert "a norm after recurrent layers" in unsupported(replace(recipe, layers=(after, *others)))


@pytest.mark.parametrize("quant", ["nf4", "int8"])
def test_quantised_weights_are_what_the_reference_unpacks(quant: Quant, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    found, ids = opened(tmp_path, hidden_size=128, intermediate_size=128, linear_value_head_dim=64), tokens(90)
    decoder = CpuDecoder(found, quant=quant)
    expected = whole(ReferenceDecoder(found, quant=quant), ids)
    torch.testing.assert_close(whole(decoder, ids), expected, atol=2e-4, rtol=1e-4)
    planned, held = need(Model(found.config, "cpu", quant, threads=1), 256).weights, decoder.memory()
    assert planned == pytest.approx(held - decoder.cache.memory(), rel=0.02)
