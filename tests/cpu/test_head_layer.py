"""A head's compiled layer is its layer by the reference, up to rounding, in one cache."""

from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.layer import HeadLayer
from specchat.engine.heads.recipe import compiles, joined, layers, shape_of
from specchat.engine.heads.rows import chain, nodes
from specchat.engine.heads.tensors import HeadTensors, as_stored
from specchat.engine.weights.weights import Weights
from tests.engine.published_heads import HIDDEN, layer, settings, written

pytestmark = pytest.mark.cpu
PREFIX = "layers.0."
WITHOUT_GATE = {"model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh"}


def made(folder: Path, compiled: bool, inputs: int) -> HeadLayer:
    files = HeadFiles.open(folder)
    shape = shape_of(files, files.settings)
    of = joined(layers(shape.recipe)[0], inputs)
    with Weights(files) as weights:
        return HeadLayer(weights, HeadTensors(), as_stored(weights, of), 64, compiled and compiles(shape))


@pytest.mark.parametrize("inputs", [HIDDEN, 2 * HIDDEN])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "told", [{}, {"model_type": "qwen3", "head_dim": 32}, {"intermediate_size": 112}, WITHOUT_GATE], ids=str
)
@pytest.mark.parametrize("queries_alone", [False, True])
def test_rows_come_out_as_in_the_reference(
    tmp_path: Path, told: dict[str, Any], bias: bool, inputs: int, queries_alone: bool
) -> None:
    g, c = torch.Generator().manual_seed(3), settings(**told)
    tensors = layer(g, c, PREFIX, inputs)
    if bias:
        for name, weight in list(tensors.items()):
            if weight.dim() == 2:
                tensors[name.replace(".weight", ".bias")] = torch.randn(len(weight), generator=g)
    if queries_alone:
        tensors.pop(f"{PREFIX}self_attn.k_norm.weight", None)
    written(tmp_path, c, tensors)
    compiled, plain = (made(tmp_path, which, inputs) for which in (True, False))
    assert compiled.compiled is not None
    at = 0
    for rows in (1, 16, 1, 5, 20, 3):  # 20 rows are more than the compiled one takes at a time
        x, residual = torch.randn(rows, inputs, generator=g), torch.randn(rows, HIDDEN, generator=g)
        kept = residual.clone()
        following = chain(at, rows)
        found = compiled(residual, following, x)
        assert torch.equal(residual, kept)
        assert torch.allclose(found, plain(residual, following, x), rtol=1e-4, atol=1e-4), (rows, at)
        at += rows
    # Nodes of a tree see the same cache.
    seen = torch.tensor([True] * at + [True, False] + [True] * at + [False, True]).view(2, -1)
    x, residual = torch.randn(2, inputs, generator=g), torch.randn(2, HIDDEN, generator=g)
    tree = nodes(at, torch.tensor([at, at]), seen)
    assert torch.allclose(compiled(residual, tree, x), plain(residual, tree, x), rtol=1e-4, atol=1e-4)


def test_a_shape_without_whole_vectors_is_left_to_torch(tmp_path: Path) -> None:
    c = settings(head_dim=24)
    written(tmp_path, c, layer(torch.Generator().manual_seed(3), c, PREFIX, HIDDEN))
    assert made(tmp_path, True, HIDDEN).compiled is None


def test_a_learned_activation_is_read_and_left_to_torch(tmp_path: Path) -> None:
    g, c = torch.Generator().manual_seed(3), settings(model_type="apertus", hidden_act="xielu")
    tensors = layer(g, c, PREFIX, HIDDEN)
    tensors[f"{PREFIX}feedforward_layernorm.weight"] = tensors.pop(f"{PREFIX}post_attention_layernorm.weight")
    curve = {"alpha_p": torch.tensor([0.3]), "alpha_n": torch.tensor([0.1])}
    curve |= {"beta": torch.tensor(0.5), "eps": torch.tensor(-1e-6)}
    x, found = torch.randn(1, HIDDEN, generator=g), []
    for name, changed in (("as it is", {}), ("changed", {"beta": torch.tensor(0.9)})):
        of_curve = {f"{PREFIX}mlp.act_fn.{end}": one for end, one in (curve | changed).items()}
        written(tmp_path / name, c, tensors | of_curve)
        head = made(tmp_path / name, True, HIDDEN)
        assert head.compiled is None
        found.append(head(x, chain(0, 1), x))
    assert not torch.allclose(*found)
