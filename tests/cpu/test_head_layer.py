"""A head's compiled layer is its layer in plain torch, up to rounding, in one cache."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import HeadLayer, Places
from specchat.engine.heads.settings import layer_of
from specchat.engine.model.weights import Weights
from tests.engine.published_heads import HIDDEN, layer, settings, written

pytestmark = pytest.mark.cpu
PREFIX = "layers.0."


@dataclass
class Target:
    compiled: bool
    context: int = 50


def made(folder: Path, compiled: bool, inputs: int) -> HeadLayer:
    files = HeadFiles.open(folder)
    with Weights(files) as weights:
        found = HeadLayer(weights, PREFIX, layer_of(files, files.settings), inputs, Target(compiled))  # type: ignore[arg-type]
    assert (found.compiled is not None) is compiled
    return found


@pytest.mark.parametrize("inputs", [HIDDEN, 2 * HIDDEN])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("told", [{}, {"model_type": "qwen3", "head_dim": 32}, {"intermediate_size": 112}])
def test_rows_come_out_as_in_plain_torch(tmp_path: Path, told: dict[str, Any], bias: bool, inputs: int) -> None:
    g, c = torch.Generator().manual_seed(3), settings(**told)
    tensors = layer(g, c, PREFIX, inputs)
    if bias:
        for name, weight in list(tensors.items()):
            if weight.dim() == 2:
                tensors[name.replace(".weight", ".bias")] = torch.randn(len(weight), generator=g)
    written(tmp_path, c, tensors)
    compiled, plain = (made(tmp_path, which, inputs) for which in (True, False))
    at = 0
    for rows in (1, 16, 1, 5, 20, 3):  # 20 rows are more than the compiled one takes at a time
        x, residual = torch.randn(rows, inputs, generator=g), torch.randn(rows, HIDDEN, generator=g)
        kept = residual.clone()
        found = compiled(x, residual, Places(at))
        assert torch.equal(residual, kept)
        assert torch.allclose(found, plain(x, residual, Places(at)), rtol=1e-4, atol=1e-4), (rows, at)
        at += rows
    # Nodes of a tree see the same cache.
    seen = torch.tensor([True] * at + [True, False] + [True] * at + [False, True]).view(2, -1)
    x, residual = torch.randn(2, inputs, generator=g), torch.randn(2, HIDDEN, generator=g)
    tree = Places(at, torch.tensor([at, at]), seen)
    assert torch.allclose(compiled(x, residual, tree), plain(x, residual, tree), rtol=1e-4, atol=1e-4)


def test_a_shape_without_whole_vectors_is_left_to_torch(tmp_path: Path) -> None:
    c = settings(intermediate_size=100)
    written(tmp_path, c, layer(torch.Generator().manual_seed(3), c, PREFIX, HIDDEN))
    files = HeadFiles.open(tmp_path)
    with Weights(files) as weights:
        assert HeadLayer(weights, PREFIX, layer_of(files, c), HIDDEN, Target(True)).compiled is None  # type: ignore[arg-type]


def test_a_norm_of_queries_alone_is_left_to_torch(tmp_path: Path) -> None:
    c = settings(model_type="qwen3")
    written(tmp_path, c, layer(torch.Generator().manual_seed(3), c, PREFIX, HIDDEN))
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[f"{PREFIX}self_attn.k_norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    assert made(tmp_path, False, HIDDEN) is not None
    files = HeadFiles.open(tmp_path)
    with Weights(files) as weights:
        assert HeadLayer(weights, PREFIX, layer_of(files, c), HIDDEN, Target(True)).compiled is None  # type: ignore[arg-type]
