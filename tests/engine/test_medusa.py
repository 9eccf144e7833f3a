"""Medusa heads: published files give the paper's scores, and what is wrong with them is told and stops no pair."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.hardware.gpu import Gpu
from specchat.engine.heads.files import MEDUSA, HeadFiles
from specchat.engine.heads.medusa import MedusaHeads
from specchat.engine.heads.recipe import need
from specchat.engine.loading import heads as loading
from specchat.engine.loading import load
from specchat.engine.memory.cut import ON_TWO_GPUS
from specchat.engine.memory.need import Model, Place
from specchat.engine.memory.plan import plan
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.tree_layout import MAX_TREE_NODES, Levels
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.strategies import HEADED, HEADS, STRATEGIES
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.published_heads import medusa
from tests.engine.test_decoder import tokens
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import VOCAB, checkpoint, on_cpu

TEXT = tokens(20)


@pytest.fixture
def target(tmp_path: Path) -> CachedModel[CachedDecoder]:
    model = host_model(Checkpoint.open(checkpoint(tmp_path / "target", tie_word_embeddings=False)))
    assert isinstance(model, CachedDecoder)
    return CachedModel(model)


def reference(folder: Path, head: int, blocks: int, hidden: torch.Tensor) -> torch.Tensor:
    weights = load_file(folder / MEDUSA)
    for block in range(blocks):
        name = f"{head}.{block}.linear." if f"{head}.{block}.linear.weight" in weights else f"{head}.0.linear."
        inner = hidden @ weights[name + "weight"].T + weights[name + "bias"]
        hidden = hidden + inner * torch.sigmoid(inner)
    return hidden @ weights[f"{head}.{blocks}.weight"].T


@pytest.mark.parametrize(("blocks", "stored"), [(1, 1), (2, 2), (3, 1)])
def test_each_head_scores_as_the_paper_says(
    blocks: int, stored: int, target: CachedModel[CachedDecoder], tmp_path: Path
) -> None:
    folder = medusa(tmp_path / "heads", blocks=blocks, stored=stored)
    heads = MedusaHeads(HeadFiles.open(folder), target)
    assert heads.places == 5  # and not the two that the settings tell of
    target.begin(TEXT)
    states = target.model.final_norm(target.model.states(4, 18, 19))
    for head in range(5):
        fed = [*TEXT[-1:], *tokens(head, seed=1)]
        scores = heads.logits(heads.forward(fed[-1:], len(TEXT) - 1 + head))
        torch.testing.assert_close(scores, reference(folder, head, blocks, states), atol=1e-4, rtol=1e-4)


def test_nodes_of_a_level_have_the_scores_of_their_place(target: CachedModel[CachedDecoder], tmp_path: Path) -> None:
    folder = medusa(tmp_path / "heads")
    heads = MedusaHeads(HeadFiles.open(folder), target)
    target.begin(TEXT)
    states = target.model.final_norm(target.model.states(4, 18, 19))
    levels = Levels()
    heads.forward(TEXT[-1:], len(TEXT) - 1)
    for place in (1, 2):
        layout = levels.layout([list(range(place - 1)), list(range(place - 1))])
        scores = heads.logits(heads.forward([1, 2], len(TEXT) - 1, layout=layout))
        expected = reference(folder, place, 1, states).expand(2, -1)
        torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


def spoilt(tmp_path: Path, case: str) -> Path:
    folder = tmp_path / "heads"
    if case == "hidden":
        return medusa(folder, hidden=32)
    if case == "vocab":
        return medusa(folder, vocab=VOCAB + 5)
    medusa(folder)
    weights = load_file(folder / MEDUSA)
    if case == "nan":
        weights["1.0.linear.weight"][3, 4] = float("nan")
    if case == "bias":
        weights["2.0.linear.bias"] = torch.zeros(3)
    if case == "missing":
        del weights["2.0.linear.bias"]
    save_file(weights, folder / MEDUSA)
    if case == "blocks":
        (folder / "config.json").write_text(json.dumps({"medusa_num_layers": 2}))
    if case == "many":
        (folder / "config.json").write_text(json.dumps({"medusa_num_layers": 10**9}))
    if case == "cut":
        (folder / MEDUSA).write_bytes((folder / MEDUSA).read_bytes()[:1000])
    if case == "pickled":
        (folder / MEDUSA).rename(folder / "medusa_lm_head.pt")
    if case == "gone":
        (folder / MEDUSA).unlink()
    return folder


CASES = {
    "hidden": "for another target: tensor 0.1.weight has shape [260, 32], and this target has 260 tokens",
    "vocab": "for another target: tensor 0.1.weight has shape [265, 64]",
    "nan": "tensor 1.0.linear.weight holds values that are no numbers",
    "bias": "tensor 2.0.linear.bias has shape [3]",
    "missing": "tensor 2.0.linear.bias is missing",
    "blocks": "holds no Medusa heads with 2 blocks each: tensor 0.2.weight is missing",
    "many": "medusa_num_layers is 1000000000, not a number up to 16",
    "cut": "is damaged or cut short",
    "pickled": "medusa_lm_head.pt holds pickled weights",
    "gone": "holds no model.safetensors",
}


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("case", CASES)
def test_heads_that_cannot_be_used_are_told_and_the_pair_runs_without(
    case: str, tiny_pair: PairSpec, tmp_path: Path
) -> None:
    source = ModelSource(path=str(spoilt(tmp_path, case)))
    session = load(replace(tiny_pair, heads={"medusa": source}), lambda _: None)
    status = session.info.strategy("medusa")
    assert not status.available
    assert CASES[case] in status.reason
    assert session.info.notes.warning.startswith("tiny drafts without medusa heads: ")
    assert CASES[case] in session.info.notes.warning
    assert finished(reply(session, "ab", Sampling(), Limits(10), Speculation("draft", 4))).stats.num_draft_tokens


def test_a_pair_without_heads_says_so(tiny_pair: PairSpec) -> None:
    session = load(replace(tiny_pair, heads={}), lambda _: None)
    reasons = {
        session.info.strategy(name).reason for name in HEADED if not HEADS[STRATEGIES[name].needs_head or ""].in_target
    }
    assert reasons == {"this pair has no such heads; [pair.heads] in models.toml names them"}
    assert session.info.notes.warning == ""
    assert session.runner.target.model.aux_states is None  # type: ignore[attr-defined]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("head", HEADS)
def test_heads_count_as_memory(head: Head, tiny_pair: PairSpec) -> None:
    pair = replace(tiny_pair, draft=None, heads={head: tiny_pair.heads[head]})
    bare, headed = (load(one, lambda _: None) for one in (replace(pair, heads={}), pair))
    config = Checkpoint.open(Path(pair.target.path or "")).config
    needed = need(head, HeadFiles.open(Path(pair.heads[head].path or "")), config, 256, "cpu")
    # Slots for the nodes of a tree and maps of tokens are of a size that only counts here.
    assert 0.8 * needed < headed.info.load.memory - bare.info.load.memory < 1.2 * needed


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_heads_that_do_not_fit_beside_the_models_are_refused(
    place: Place, tiny_pair: PairSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = medusa(tmp_path / "heads")
    sources = {"medusa": ModelSource(path=str(folder)), "eagle": tiny_pair.heads["eagle"]}
    pair = replace(tiny_pair, draft=None, heads=sources)
    target = Checkpoint.open(Path(pair.target.path or ""))
    found = loading.found(pair, target, lambda _: None)
    alone = plan(Model(target.config, place), None, 256)
    kept, with_heads = loading.fitting(found, alone)
    more = with_heads.need(place).total - alone.need(place).total
    assert kept.files.keys() == {"medusa", "eagle"}
    needed = [need(head, files, alone.target.config, 256, place) for head, files in found.files.items()]
    assert more == sum(needed)
    width = 4 if place == "cpu" else 2
    values = sum(tensor.numel() for tensor in load_file(folder / MEDUSA).values())
    assert needed[0] == width * (values + 64 * (256 + MAX_TREE_NODES))
    least, smaller = min(zip(needed, found.files, strict=True))
    for room, left in ((0, set()), (least, {smaller}), (sum(needed), {"medusa", "eagle"})):
        free = int((alone.need(place).total + room) / 0.95) + 1000
        monkeypatch.setattr(loading, "free_memory", lambda free=free: free if place == "cpu" else 0)
        monkeypatch.setattr(loading, "find_gpu", lambda free=free: Gpu("RTX 4090", free if place == "cuda" else 0))
        refused, planned = loading.fitting(found, alone)
        assert refused.files.keys() == left
        words = f"GiB of {'memory' if place == 'cpu' else 'GPU memory'} beside the models"
        assert (words in refused.unsupported.get("medusa", "")) == ("medusa" not in left)
        assert (planned == alone) == (not left)
    if place == "cuda":
        cut = replace(alone, target=replace(alone.target, first=1))
        refused, planned = loading.fitting(found, cut)
        assert (refused.files, planned, refused.unsupported["medusa"]) == ({}, cut, ON_TWO_GPUS)


def test_a_repository_that_is_not_to_be_had_stops_no_pair(tiny_pair: PairSpec, tmp_path: Path) -> None:
    session = load(replace(tiny_pair, heads={"medusa": on_cpu(tmp_path / "nowhere")}), lambda _: None)
    assert "nowhere is not there" in session.info.strategy("medusa").reason
