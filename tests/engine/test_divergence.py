"""Divergences of the next token's distributions, by their definition."""

from math import exp, log
from pathlib import Path

import pytest
import torch

from measure.activations import plant_outliers
from specchat.engine.check_activations import run
from specchat.engine.divergence import Divergence
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.packed import packed
from tests.engine.test_packed import INT4, SHAPE
from tests.engine.tiny import checkpoint


def test_figures_are_those_of_the_definition() -> None:
    made = torch.Generator().manual_seed(1)
    p, q = (torch.randn(150, 7, generator=made).log_softmax(-1) for _ in range(2))
    found = Divergence.of([(p[:100], q[:100]), (p[100:], q[100:])])
    each = [
        sum(exp(a) * (a - b) for a, b in zip(one, other, strict=True))
        for one, other in zip(p.tolist(), q.tolist(), strict=True)
    ]
    assert found.tokens == 150
    assert found.mean == pytest.approx(sum(each) / 150)
    assert found.largest == pytest.approx(max(each))
    assert sorted(each)[147] <= found.most <= sorted(each)[149]
    assert (
        found.alike
        == sum(a.index(max(a)) == b.index(max(b)) for a, b in zip(p.tolist(), q.tolist(), strict=True)) / 150
    )
    half = Divergence.of([(torch.tensor([[log(0.5), log(0.5)]]), torch.tensor([[log(0.75), log(0.25)]]))])
    assert half.mean == pytest.approx(0.5 * log(0.5 / 0.75) + 0.5 * log(0.5 / 0.25))


def test_a_pair_is_measured_over_its_prompts(tmp_path: Path) -> None:
    folder, _ = packed(tmp_path, *INT4["compressed-tensors, 32"], **SHAPE)
    pair = PairSpec("p", "P", ModelSource(path=str(folder)))
    chats = [(Message("user", "abc" * 30),)] * 3
    found = run(pair, chats, lambda _: None)
    assert [*found] == ["int8", "bfloat16"]
    for one in found.values():
        assert one.tokens > 256
        assert 0 < one.mean < 0.05


def test_outliers_are_planted_in_the_same_model(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", hidden_size=128)
    text, found = list(range(3, 30)), []
    for one in (folder, plant_outliers(folder, 16.0, tmp_path / "planted")):
        model = ReferenceDecoder(Checkpoint.open(one), 64)
        found.append(model.logits(model.forward(text, 0)))
        norm = model._tensors.norm(model.config.recipe.layers[0].norms[0]).weight
        assert bool(norm.max() > 8 * norm.median()) == (one is not folder)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
