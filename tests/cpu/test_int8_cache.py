"""The entries of an int8 cache: each value the nearest of all that its block has, and the same by every executor."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.kv_entries import LEAST_PEAK, loaded, stored
from specchat.engine.recipe.mixers import KV_BLOCK
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, checkpoint


def nearest(value: np.float32, scale: np.float32) -> int:
    """Of all int8 values the one that is nearest to the float32 quotient, the even one of two."""
    quotient = Fraction(float(value / scale))
    return min(range(-127, 128), key=lambda whole: (abs(quotient - whole), whole % 2))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("block", [8, 16, 32])
def test_values_are_the_nearest_of_all(block: int) -> None:
    generator = torch.Generator().manual_seed(block)
    magnitudes = 10.0 ** torch.randint(-8, 8, (20, 1), generator=generator)
    x = magnitudes * torch.randn(20, 3 * block, generator=generator)
    x[0], x[1, :block] = 0.0, 1e-42
    x[2, : block // 2] = torch.arange(block // 2) + 0.5  # between two
    x[2, block - 1] = 127.0
    rows = stored(x, block)
    values, scales = rows[:, : 3 * block], rows[:, 3 * block :].clone().view(torch.float32)
    for row, line in enumerate(x.unflatten(-1, (3, block)).numpy()):
        for number, of_block in enumerate(line):
            scale = np.float32(max(np.abs(of_block).max(), np.float32(LEAST_PEAK))) / np.float32(127)
            assert scales[row, number].item() == scale
            wanted = [nearest(value, scale) for value in of_block]
            assert values[row, number * block : (number + 1) * block].tolist() == wanted
    read = loaded(rows, 3 * block)
    bound = scales.repeat_interleave(block, -1) * 0.5001
    assert ((read - x).abs() <= bound).all()
    assert torch.equal(read[0], torch.zeros(3 * block))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_leaves_none_in_its_block(wrong: float) -> None:
    x = torch.ones(64)
    x[3] = wrong
    read = loaded(stored(x, 32), 64)
    assert not read[:32].isfinite().any()
    assert read[32:].isfinite().all()


@pytest.mark.parametrize("size", [16, 24, 32, 48, 64, 80, 96])
def test_a_block_is_a_power_of_two_that_divides_a_head(size: int, tmp_path: Path) -> None:
    found = Checkpoint.open(checkpoint(tmp_path / "m", **FAMILIES["qwen3"] | {"head_dim": size}))
    (of, *_) = found.config.with_cache("int8").recipe.attentions
    powers = [2**n for n in range(10) if size % 2**n == 0 and 2**n <= KV_BLOCK]
    assert of.block == max(powers)
    assert of.entry_bytes(4) == 2 * of.kv_heads * (size + 4 * size // of.block)


@pytest.mark.cpu
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma4_e", "hunyuan", "olmo2", "80 a head"])
def test_the_compiled_pass_rounds_alike(family: str, tmp_path: Path) -> None:
    """In the first layer, whose keys and values depend on no attention."""
    shapes = FAMILIES | {"80 a head": FAMILIES["qwen3"] | {"head_dim": 80}}
    folder = checkpoint(tmp_path / "m", seed=2, **shapes[family])
    found, ids = Checkpoint.open(folder), tokens(50)
    whole, int8 = (CpuDecoder(replace(found, config=found.config.with_cache(cache))) for cache in (None, "int8"))  # type: ignore[arg-type]
    for model in (whole, int8):
        model.forward(ids, 0)
    block = min(KV_BLOCK, whole.cache.keys[0].shape[-1] & -whole.cache.keys[0].shape[-1])
    for mine, theirs in ((int8.cache.keys, whole.cache.keys), (int8.cache.values, whole.cache.values)):
        assert mine[0].dtype == torch.int8
        assert torch.equal(mine[0][:, :50], stored(theirs[0][:, :50], block))
        assert mine[0][:, :50].unique().numel() > 100


def test_a_broken_model_shows_as_with_a_full_cache(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", seed=2, **FAMILIES["llama"])
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.v_proj.weight"][3] = 3e38  # finite, and its products are not
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    found = Checkpoint.open(folder)
    int8 = CpuDecoder(replace(found, config=found.config.with_cache("int8")))
    assert not int8.logits(int8.forward(tokens(5), 0)).isfinite().any()
