"""Layers with a window keep the last KV entries alone, and nothing else changes, at no edge and after no rollback."""

from pathlib import Path

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.loading import load
from specchat.engine.memory import host_need
from specchat.engine.memory.need import Model, need
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.passes import Skip
from specchat.engine.model.tree_layout import depth_first
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import reference, tokens
from tests.engine.tiny import FAMILIES, checkpoint, on_cpu, perturbed
from tests.families.test_strategies import written

LONG = {"max_position_embeddings": 2048, "mm_tokens_per_image": 16}
WINDOW, BACK, ROOM = 8, 32, 192
HELD = 256
"""Positions of a layer with the window: rounded up to whole blocks."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_need, "BACK", BACK)
    monkeypatch.setattr(host_need, "ROOM", ROOM)


@pytest.fixture(scope="module", params=["gemma3", "gemma4_e", "lfm2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the second the last two layers share the entries of the first two, one of which has a window.

    The third has short convolutions, whose window is their taps.
    """
    return checkpoint(tmp_path_factory.mktemp("rings") / "m", seed=5, **FAMILIES[request.param] | LONG)


def whole(model: CachedDecoder, ids: list[int], start: int = 0, block: int = 128) -> torch.Tensor:
    blocks = range(0, len(ids), block)
    return torch.cat([model.logits(model.forward(ids[i : i + block], start + i)).clone() for i in blocks])


@pytest.mark.rotated(2)
@pytest.mark.parametrize("kind", [ReferenceDecoder, host_model])
def test_a_long_text_has_the_logits_of_transformers(kind: type[ReferenceDecoder], folder: Path) -> None:
    ids = tokens(700)
    model = kind(Checkpoint.open(folder), 1024)
    held = [HELD if layer.mixer.window else 1024 for layer in model.config.recipe.layers]
    assert [keys.shape[1] for keys in model.cache.keys] == held
    assert held.count(HELD) >= 2
    found = whole(model, ids)
    assert min(model.cache.bases[::2]) > 400
    torch.testing.assert_close(found, reference(folder, ids), atol=2e-4, rtol=1e-4)


def test_rows_and_trees_have_the_bits_of_a_cache_of_all_positions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = host_model(Checkpoint.open(folder), 1024)
    monkeypatch.setattr(host_need, "BACK", 1024)
    full = host_model(Checkpoint.open(folder), 1024)
    assert [keys.shape[1] for keys in full.cache.keys] == [1024] * 4
    ids, parents = tokens(600), [-1, 0, 0, 1, 2, 3]
    for start in range(0, 600, 37):
        block = ids[start : start + 37]
        assert torch.equal(whole(ring, block, start, 16), whole(full, block, start, 16)), start
        after = min(600, start + 37)
        nodes = tokens(6, seed=start)
        grown = [
            model.logits(model.forward(nodes, after, layout=depth_first(parents))).clone() for model in (ring, full)
        ]
        assert torch.equal(*grown), start
        for model in (ring, full):
            model.keep([0, 1, 3], after)
        more = [model.logits(model.forward([7], after + 3)).clone() for model in (ring, full)]
        assert torch.equal(*more), start
        skip = Skip(attention=frozenset({2}))
        if after > 32:
            assert ring.likeliest(ids[after - 32 : after], after - 32, skip) == full.likeliest(
                ids[after - 32 : after], after - 32, skip
            )


def test_what_it_holds_is_planned(folder: Path) -> None:
    model = host_model(Checkpoint.open(folder), 1024)
    assert need(Model(model.config, "cpu", threads=1), 1024).cache == model.cache.memory()


def test_a_text_is_rolled_back_as_far_as_its_windows_are_held_and_else_read_again(folder: Path) -> None:
    model = CachedModel(host_model(Checkpoint.open(folder), 1024))
    text = tokens(600)
    assert model.begin(text) == 0
    base = model.model.cache.bases[0]
    assert base > 0
    near = [*text[: base + WINDOW], 3, 4, 5]
    assert model.rewind(near) == base + WINDOW
    cold = CachedModel(host_model(Checkpoint.open(folder), 1024))
    assert torch.equal(model.next_logits(near), cold.next_logits(near))
    far = [*text[: base // 2], 3, 4, 5]
    assert model.rewind(far) == 0
    assert torch.equal(model.next_logits(far), cold.next_logits(far))
    model.begin(text)
    with pytest.raises(ValueError, match=r"entries before position \d+ are gone, and 9 attends to them"):
        model.model.forward([1], 9)


@pytest.mark.rotated(3, 1)
def test_every_strategy_writes_across_the_edges_what_plain_writes(folder: Path, tmp_path: Path) -> None:
    """Greedily or drawn, in turn."""
    draft = perturbed(tmp_path / "draft", folder, 0.05)
    session = load(PairSpec("p", "P", on_cpu(folder), on_cpu(draft), context=1024), lambda _: None)
    asked = (Message("user", "abc" * 60),)
    samplings = (Sampling(), Sampling(temperature=1.0, seed=3))
    plain = [written(session, sampling, Speculation(), asked, Limits(300)).token_ids for sampling in samplings]
    for at, status in enumerate(session.info.strategies):
        if status.available:
            made = written(session, samplings[at % 2], Speculation.of(status.name), asked, Limits(300)).token_ids
            assert made == plain[at % 2], status.name
