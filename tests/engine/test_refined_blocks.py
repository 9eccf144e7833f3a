"""DFlash2, DSpark and XPress: published files give what the formulas give, and all block drafters draft it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.dflash2 import DFlash2Head
from specchat.engine.heads.dspark import DSparkHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.recipe import need
from specchat.engine.heads.target import Target
from specchat.engine.heads.xpress import XPressHead
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.tree_layout import MAX_TREE_NODES
from specchat.engine.protocol.options import Sampling
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.session import Session
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.block_references import (
    TEXT,
    DFlash2Reference,
    DSparkReference,
    Reference,
    XPressReference,
    agree,
)
from tests.engine.published_blocks import BLOCK, dflash2, dspark, xpress
from tests.engine.test_decoder import tokens
from tests.engine.test_eagle import Spoil, change, lost, put, told
from tests.engine.tiny import VOCAB, checkpoint

SLIDES = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("m") / "target", num_hidden_layers=4, tie_word_embeddings=False)


@pytest.fixture
def target(folder: Path) -> Target:
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    return CachedModel(model)


@pytest.mark.parametrize(
    ("layout", "of", "slides", "causal"),
    [
        ("z-lab", {}, False, False),
        ("z-lab", SLIDES, True, False),
        ("z-lab", SLIDES | {"is_causal": None}, True, True),
        ("speculators", SLIDES, True, False),
        ("speculators", SLIDES | {"sliding_window_non_causal": False}, True, True),
    ],
)
def test_dflash2_is_what_the_formulas_say(
    layout: str,
    of: dict[str, Any],
    slides: bool,
    causal: bool,
    target: Target,
    folder: Path,
    tmp_path: Path,
) -> None:
    head = dflash2(tmp_path / "head", layout, **of)
    reference = DFlash2Reference(head, folder, [1, 2, 3])
    reference.window, reference.causal, reference.slides = 7, causal, [slides, False]
    agree(DFlash2Head(HeadFiles.open(head), target), target, reference)


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
@pytest.mark.parametrize(
    ("layout", "of"), [("deepspec", {}), ("speculators", {"few": 120, "sees": False, "sample_from_anchor": False})]
)
def test_dspark_is_what_the_formulas_say(
    layout: str, of: dict[str, Any], kind: str, target: Target, folder: Path, tmp_path: Path
) -> None:
    path = dspark(tmp_path / "head", layout, kind, **of)
    reference = DSparkReference(path, folder, [1, 2, 3])
    reference.first = int("sample_from_anchor" in of)
    head = DSparkHead(HeadFiles.open(path), target)
    agree(head, target, reference)
    target.begin(TEXT)
    drafted = tokens(3, seed=2)
    for at, fed in enumerate([TEXT, *([token] for token in drafted)]):
        head.logits(head.forward(fed, 0 if not at else len(TEXT) - 1 + at))
        assert head.chance == pytest.approx(reference.chance(TEXT, drafted[:at]), abs=1e-4)


@pytest.mark.parametrize(
    ("layout", "of"),
    [
        ("published", {}),
        ("speculators", {}),
        ("speculators", {"convolved": True}),
        ("speculators", {"sample_from_anchor": True}),
    ],
)
def test_xpress_is_what_the_formulas_say_and_what_its_passes_come_to(
    layout: str, of: dict[str, Any], target: Target, folder: Path, tmp_path: Path
) -> None:
    path = xpress(tmp_path / "head", layout, **of)
    reference = XPressReference(path, folder, [1, 2, 3])
    reference.first = 1 - ("sample_from_anchor" in of)
    head = XPressHead(HeadFiles.open(path), target)
    agree(head, target, reference)
    target.begin(TEXT)
    drafted: list[int] = []
    while len(drafted) < head.places:
        fed, start = (drafted[-1:], len(TEXT) - 1 + len(drafted)) if drafted else (TEXT, 0)
        drafted.append(int(head.logits(head.forward(fed, start)).argmax()))
    assert drafted == reference.jacobi(TEXT, passes=BLOCK)
    assert drafted != reference.jacobi(TEXT, passes=0)


BAD: list[tuple[Head, Spoil, str]] = [
    ("dflash2", lost("candidate_selector.successor_codebook"), "candidate_selector.successor_codebook is missing"),
    (
        "dflash2",
        put("candidate_selector.predecessor_codebook", torch.zeros(9, 8)),
        "predecessor_codebook has shape [9, 8]",
    ),
    ("dflash2", lost("layers.0.attention_conv.base_kernel"), "layers.0.attention_conv.base_kernel is missing"),
    ("dflash2", put("layers.1.mlp_conv.base_kernel", torch.zeros(2, 3, 64)), "base_kernel has shape [2, 3, 64]"),
    ("dflash2", lambda _, s: s["dflash_config"].update(conv_group_size=5), "conv_group_size 5 does not divide"),
    ("dflash2", lambda _, s: s["dflash_config"].pop("conv_kernel_size"), "conv_kernel_size is missing"),
    (
        "dflash2",
        lambda _, s: s["dflash_config"].update(selector_top_k=261),
        "selector_top_k is 261, not a number from 1",
    ),
    (
        "dflash2",
        lambda _, s: s["dflash_config"].update(selector_rank="8"),
        "selector_rank is '8', not a positive",
    ),
    ("dspark", told(markov_head_type="lstm"), "markov_head_type is lstm, not one of vanilla, gated, rnn"),
    ("dspark", told(markov_rank=9), "markov_head.markov_w1.weight has shape [260, 8]"),
    ("dspark", told(markov_rank=None), "markov_rank is missing"),
    ("dspark", told(markov_head_type="gated"), "markov_head.gate_proj.weight is missing"),
    ("dspark", lost("confidence_head.proj.bias"), "confidence_head.proj.bias is missing"),
    ("dspark", told(confidence_head_with_markov=False), "confidence_head.proj.weight has shape [1, 72]"),
    ("dspark", put("confidence_head.proj.bias", torch.tensor([float("nan")])), "values that are no numbers"),
    ("xpress", told(xpress_rank=16), "xpress_head.w1.weight has shape [260, 8]"),
    ("xpress", told(xpress_mlp_hidden=8), "mlp.gate_proj.weight has shape [16, 8]"),
    ("xpress", put("xpress_head.mix.L", torch.zeros(8, 5, 5)), "xpress_head.mix.L has shape [8, 5, 5]"),
    ("xpress", lost("xpress_head.w2.weight"), "xpress_head.w2.weight is missing"),
    ("xpress", lost("xpress_head.w1.weight"), "by its tensors this is a dflash head. Name it heads.dflash instead."),
]
WRITE = {"dflash2": dflash2, "dspark": dspark, "xpress": xpress}


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("family", "spoil", "words"), BAD, ids=[words for _, _, words in BAD])
def test_heads_that_cannot_be_used_are_told(
    family: Head, spoil: Spoil, words: str, tiny_pair: PairSpec, tmp_path: Path
) -> None:
    source = change(WRITE[family](tmp_path / "head"), spoil)
    status = load(replace(tiny_pair, draft=None, heads={family: source}), lambda _: None).info.strategy(family)
    assert not status.available
    assert words in status.reason


@pytest.mark.usefixtures("unmeasured")
def test_a_head_of_one_family_is_not_taken_for_another(tiny_pair: PairSpec) -> None:
    heads = {"dflash": tiny_pair.heads["dspark"], "dspark": tiny_pair.heads["xpress"]}
    info = load(replace(tiny_pair, draft=None, heads=heads), lambda _: None).info
    assert "by its tensors this is a dspark head. Name it heads.dspark" in info.strategy("dflash").reason
    assert "by its tensors this is a xpress head" in info.strategy("dspark").reason


@pytest.mark.parametrize("family", ["dflash", *WRITE])
def test_what_heads_take_is_known_before_they_are_read(family: Head, tiny_pair: PairSpec, target: Target) -> None:
    """Weights; for each token and tree node three states of 64, keys and values of two layers with two heads of 16."""
    files = HeadFiles.open(Path(tiny_pair.heads[family].path or ""))
    slots = 100 + MAX_TREE_NODES
    config = target.model.config
    assert need(family, files, config, 100, "cpu") == 4 * (files.values + (3 * 64 + 2 * 2 * 2 * 16) * slots)
    # On a GPU weights and states take half; keys and values do not.
    assert need(family, files, config, 100, "cuda") == 2 * (files.values + 3 * 64 * slots) + 4 * 2 * 2 * 2 * 16 * slots


REFERENCES: list[tuple[Head, type[Reference], int]] = [
    ("dflash", Reference, 1),
    ("dflash2", DFlash2Reference, 1),
    ("dspark", DSparkReference, 0),
    ("xpress", XPressReference, 1),
]


@pytest.mark.parametrize(("family", "kind", "first"), REFERENCES)
def test_a_drafter_drafts_what_the_formulas_say(
    family: Head, kind: type[Reference], first: int, session: Session, tiny_pair: PairSpec
) -> None:
    """Through steps that keep some drafts and refuse others, a step without a draft, and a text taken up again."""
    spec, runner = tiny_pair, session.runner
    head, folder = (Path(source.path or "") for source in (spec.heads[family], spec.target))
    reference = kind(head, folder, [1, 2, 3])
    reference.first = first
    if isinstance(reference, DFlash2Reference):
        reference.best = json.loads((head / "config.json").read_text())["dflash_config"]["selector_top_k"]
    runner.executor.policies.off = True
    few = Sampling(logit_bias={64: 12.0, 65: 12.0})
    bias = torch.zeros(VOCAB).index_fill_(0, torch.tensor([64, 65]), 12.0)
    accepted = refused = 0
    try:
        for prompt in (TEXT[:20], [*TEXT[:15], *tokens(8, seed=5)]):
            runner.target.begin(prompt)
            drafter = runner.drafters[family]
            drafter.begin(prompt)
            decoding = runner.reply(few, prompt, [])
            for step in range(6):
                text = list(decoding.committed)
                if step == 3:
                    decoding.step(runner.drafters["plain"], 0, "coupled")
                    continue
                # More is asked for at times than a block has.
                limit = 3 if step % 2 else 15
                outcome = decoding.step(drafter, limit, "coupled")
                expected: list[int] = []
                while len(expected) < min(limit, BLOCK - reference.first):
                    expected.append(int((reference.scores(text, expected) + bias).argmax()))
                assert outcome.drafts == tuple(expected)
                if isinstance(reference, DSparkReference):
                    chances = [reference.chance(text, expected[:at]) for at in range(len(expected))]
                    assert outcome.confidence == pytest.approx(chances, abs=1e-4)
                accepted += outcome.accepted
                refused += outcome.drafted - outcome.accepted
            decoding.close()
    finally:
        runner.executor.policies.off = False
    assert accepted
    assert refused
    # A further token costs no pass: where the draft ends is judged so.
    assert runner.executor.policies.begin(family, timed=True)._price._at_once
