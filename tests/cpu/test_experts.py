"""Experts in the compiled pass: the choice, and rows that are what they are alone, by any number of threads."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specchat.engine.cpu.decoder import CpuDecoder
from specchat.engine.model.passes import PassRows
from specchat.engine.protocol.pair import Quant
from specchat.engine.recipe import Experts, Layer
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.cpu.test_decoder import one_by_one, whole
from tests.engine.test_decoder import tokens
from tests.engine.tiny import FAMILIES, checkpoint

pytestmark = pytest.mark.cpu

MANY = FAMILIES["qwen3_moe"] | {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "moe_intermediate_size": 192,
    "num_experts": 37,
    "num_experts_per_tok": 8,
}
"""Experts that threads share, and that 4 bits hold."""
BESIDE = FAMILIES["gemma4_moe"] | {
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "layer_types": None,
    "moe_intermediate_size": 192,
    "num_experts": 37,
    "top_k_experts": 8,
}
"""The same beside an MLP of more pieces."""
GROUPED = FAMILIES["glm4_moe"] | {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "moe_intermediate_size": 192,
    "n_routed_experts": 36,
    "num_experts_per_tok": 8,
}
"""The same in groups."""


SHAPES = {"alone": MANY, "beside an MLP": BESIDE, "in groups": GROUPED}
OFTEN = [("alone", None), ("alone", "nf4"), ("beside an MLP", "int8"), ("in groups", "nf4")]


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("kind", "quant"),
    [
        pytest.param(kind, quant, marks=() if (kind, quant) in OFTEN else pytest.mark.slow)
        for kind in SHAPES
        for quant in (None, "int8", "nf4")
    ],
)
def test_a_row_is_what_it_is_alone_by_any_number_of_threads(kind: str, quant: Quant | None, tmp_path: Path) -> None:
    if quant:
        pytest.importorskip("bitsandbytes")
    opened, ids = Checkpoint.open(checkpoint(tmp_path / "m", seed=3, **SHAPES[kind])), tokens(170)
    alone = one_by_one(CpuDecoder(opened, quant=quant, threads=1), ids)
    expected = whole(ReferenceDecoder(opened, quant=quant), ids[:24])
    torch.testing.assert_close(alone[:24], expected, atol=2e-4, rtol=1e-4)
    for threads in (2, 3):
        decoder = CpuDecoder(opened, quant=quant, threads=threads)
        decoder.use_threads(threads)
        assert torch.equal(whole(decoder, ids), alone)
        for rows in (1, 2, 3, 5, 8, 16, 40):
            decoder.forward(tokens(rows, seed=9), 100)  # which are refused
            assert torch.equal(decoder.logits(decoder.forward(ids[100 : 100 + rows], 100)), alone[100 : 100 + rows])


def test_experts_between_norms_and_with_gelu_are_the_reference(tmp_path: Path) -> None:
    """In a layer without a norm before them, too."""
    opened, ids = (
        Checkpoint.open(checkpoint(tmp_path / "m", seed=3, hidden_act="gelu_pytorch_tanh", **MANY)),
        tokens(40),
    )

    def after(layer: Layer) -> Layer:
        return replace(layer, pre_feed=None, post_feed=layer.pre_feed, residual=0.7)

    first, second, *others = opened.config.recipe.layers
    layers = (after(first), replace(second, post_feed=second.pre_feed), *others)
    changed = replace(opened, config=replace(opened.config, recipe=replace(opened.config.recipe, layers=layers)))
    plain = whole(ReferenceDecoder(changed), ids)
    for threads in (1, 3):
        decoder = CpuDecoder(changed, threads=threads)
        decoder.use_threads(threads)
        found = whole(decoder, ids)
        torch.testing.assert_close(found, plain, atol=3e-4, rtol=1e-4)
        assert torch.equal(found, one_by_one(decoder, ids))


def routed(folder: Path, scale: float) -> Checkpoint:
    """A model whose routers are scaled."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    save_file({name: one * scale if name.endswith(".gate.weight") else one for name, one in weights.items()}, file)
    return Checkpoint.open(folder)


def test_of_equal_experts_the_lower_ones_are_chosen(tmp_path: Path) -> None:
    opened, ids = routed(checkpoint(tmp_path / "m", seed=3, **FAMILIES["qwen3_moe"]), 0.0), tokens(20)
    found = whole(CpuDecoder(opened), ids)
    torch.testing.assert_close(found, whole(ReferenceDecoder(opened), ids), atol=2e-4, rtol=1e-4)
    wanted = opened.config.recipe

    def first_alone(layer: Layer) -> Layer:
        """Of as many experts as are chosen there is no choice."""
        if not isinstance(layer.feed, Experts):
            return layer
        router = replace(layer.feed.router, outputs=(layer.feed.top,))
        return replace(layer, feed=replace(layer.feed, router=router, count=layer.feed.top))

    few = replace(wanted, layers=tuple(map(first_alone, wanted.layers)))
    file = opened.folder / "model.safetensors"
    save_file({name: one[:2] if name.endswith(".gate.weight") else one for name, one in load_file(file).items()}, file)
    assert torch.equal(whole(CpuDecoder(replace(opened, config=replace(opened.config, recipe=few))), ids), found)


def test_a_correction_is_added_to_the_share_of_a_softmax_too(tmp_path: Path) -> None:
    opened, ids = Checkpoint.open(checkpoint(tmp_path / "m", seed=3, **FAMILIES["glm4_moe"])), tokens(20)

    def softmax(layer: Layer) -> Layer:
        return replace(layer, feed=replace(layer.feed, sigmoid=False)) if isinstance(layer.feed, Experts) else layer

    recipe = replace(opened.config.recipe, layers=tuple(map(softmax, opened.config.recipe.layers)))
    changed = replace(opened, config=replace(opened.config, recipe=recipe))
    found = whole(CpuDecoder(changed), ids)
    torch.testing.assert_close(found, whole(ReferenceDecoder(changed), ids), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_scores_far_apart_have_their_shares(scale: float, tmp_path: Path) -> None:
    opened, ids = routed(checkpoint(tmp_path / "m", seed=3, **MANY), scale), tokens(24)
    found = whole(CpuDecoder(opened), ids)
    assert found.isfinite().all()
    torch.testing.assert_close(found, whole(ReferenceDecoder(opened), ids), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_of_no_numbers_changes_no_other(bad: float, tmp_path: Path) -> None:
    """Whatever it chooses, there is room for it."""
    decoder, ids = CpuDecoder(Checkpoint.open(checkpoint(tmp_path / "m", **MANY)), threads=2), tokens(128)
    decoder.use_threads(2)
    x = decoder.embed(ids)

    def through(rows: Tensor) -> Tensor:
        return decoder.run_layers(rows, range(1), PassRows((), 0))

    expected = through(x)
    x[64:] = bad
    assert torch.equal(through(x)[:64], expected[:64])
