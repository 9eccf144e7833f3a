"""With an int8 cache: rows and trees have the bits of chains in every family; strategies write plain's text."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specchat.engine.loading import load
from specchat.engine.memory import host_need
from specchat.engine.memory.need import Model, need
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.tree_layout import depth_first
from specchat.engine.protocol.options import Limits, Message, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.recipe import Delta
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.reference.layer import hidden_states
from specchat.engine.reference.tensors import CheckpointTensors
from specchat.engine.runners.host import host_model
from specchat.engine.session import Session
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.test_trees import PARENTS, path_to
from tests.engine.tiny import FAMILIES, MORE, checkpoint, mostly, on_cpu, perturbed
from tests.families.test_strategies import written

SHAPES = MORE | {name: FAMILIES[name] for name in ("llama", "qwen3")}
ODD = SHAPES["qwen3"] | {"head_dim": 24}
"""Heads that the compiled pass fills up to whole vectors."""


def opened(folder: Path) -> Checkpoint:
    found = Checkpoint.open(folder)
    return replace(found, config=found.config.with_cache("int8"))


def logits(model: CachedDecoder, ids: list[int], start: int = 0) -> torch.Tensor:
    return model.logits(model.forward(ids, start)).clone()


@pytest.mark.rotated(3)
@pytest.mark.parametrize("family", mostly([*SHAPES, "filled up"]))
def test_rows_and_trees_have_the_bits_of_chains(family: str, tmp_path: Path) -> None:
    found = opened(checkpoint(tmp_path / "m", seed=5, **SHAPES.get(family, ODD)))
    model, alone, ids, nodes = host_model(found, 128), host_model(found, 128), tokens(70), tokens(11, seed=1)
    assert isinstance(model, CachedDecoder)
    assert isinstance(alone, CachedDecoder)
    one_by_one = torch.cat([logits(alone, [token], at) for at, token in enumerate(ids)])
    assert torch.equal(logits(model, ids), one_by_one)
    assert torch.equal(logits(model, ids[60:67], 60), one_by_one[60:67])
    rows = model.logits(model.forward(nodes, 62, layout=depth_first(PARENTS))).clone()
    for node in (2, 5, 9):
        chained = [nodes[i] for i in (0, *path_to(node))]
        assert torch.equal(rows[node], logits(alone, chained, 62)[-1]), node
    model.keep(path_to(9), 63)
    end = 63 + len(path_to(9))
    assert torch.equal(logits(model, [7], end), logits(alone, [7], end)), "what was accepted is not what a chain writes"


@pytest.mark.parametrize("family", ["llama", "gemma4_e", "gemma2", "lfm2", "deepseek_v3"])
def test_the_compiled_pass_and_whole_texts_compute_what_the_reference_does(family: str, tmp_path: Path) -> None:
    """Up to values that lie between two int8 ones."""
    found = opened(checkpoint(tmp_path / "m", seed=5, **SHAPES[family]))
    ids, full = tokens(40), Checkpoint.open(tmp_path / "m")
    reference, whole = ReferenceDecoder(found, 128), ReferenceDecoder(full, 128)
    wanted, others = logits(reference, ids), logits(whole, ids)
    far = (wanted - others).abs().mean()
    assert far > 0
    compiled = host_model(found, 128)
    assert isinstance(compiled, CachedDecoder)
    recipe, tensors = found.config.recipe, CheckpointTensors(found)
    together = reference.logits(hidden_states(recipe, torch.tensor(ids), tensors)[-1])
    for made in (logits(compiled, ids), together):
        assert (made - wanted).abs().mean() < far / 4


@pytest.mark.parametrize("family", ["gemma3", "gemma4_e", "qwen3_5"])
def test_what_it_holds_is_planned(family: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", seed=5, **SHAPES[family])
    found, full = opened(folder), Checkpoint.open(folder)
    planned = [need(Model(one.config, "cpu", threads=1), 256).cache for one in (found, full)]
    models = [host_model(one, 256) for one in (found, full)]
    held = [model.cache.memory() for model in models if isinstance(model, CachedDecoder)]
    # States have room for checkpoints that only long texts make.
    assert planned[0] - held[0] == planned[1] - held[1]
    assert (planned == held) != bool(full.config.recipe.recurrent)
    stored = [layer.mixer for layer in full.config.recipe.layers if not isinstance(layer.mixer, Delta)]
    saved = sum(of.entry * host_need.positions(of, 256) * (4 - 1 - 4 / min(32, of.head_dim)) for of in stored)
    assert held[1] - held[0] == saved


@pytest.fixture(scope="module", params=["gemma3", "gemma4_e"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A pair with rings that texts go beyond, of the second family with shared entries too."""
    root = tmp_path_factory.mktemp(request.param)
    long = SHAPES[request.param] | {"max_position_embeddings": 2048}
    target = checkpoint(root / "target", seed=5, **long)
    pair = PairSpec(
        "p", "P", on_cpu(target), on_cpu(perturbed(root / "draft", target, 0.05)), context=1024, cache="int8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_need, "BACK", 32)
        patch.setattr(host_need, "ROOM", 192)
        patch.setattr(Session, "_measure", lambda _: None)
        return load(pair, lambda _: None)


@pytest.mark.rotated(2, 1)
def test_every_strategy_writes_across_the_edges_what_plain_writes(session: Session) -> None:
    """Greedily or drawn, in turn."""
    asked = (Message("user", "abc" * 60),)
    samplings = (Sampling(), Sampling(temperature=1.0, seed=3))
    plain = [written(session, sampling, Speculation(), asked, Limits(120)).token_ids for sampling in samplings]
    for at, status in enumerate(session.info.strategies):
        if status.available:
            made = written(session, samplings[at % 2], Speculation.of(status.name), asked, Limits(120)).token_ids
            assert made == plain[at % 2], status.name
