"""DFlash heads: files in every published layout give what the formulas give."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.cache_utils import DFlashCache

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.dflash import DFlashHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.block_references import TEXT, Reference, agree
from tests.engine.causal import AutoModelForCausalLM
from tests.engine.published_blocks import BLOCK, dflash
from tests.engine.test_eagle import Spoil, change, lost, put, told
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import FAMILIES, VOCAB, checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("m") / "target", num_hidden_layers=4, tie_word_embeddings=False)


@pytest.fixture
def target(folder: Path) -> CachedModel[CachedDecoder]:
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    return CachedModel(model)


@pytest.mark.parametrize(
    ("layout", "states", "of"),
    [
        ("z-lab", [1, 3], {"states": [0, 2]}),
        ("z-lab-early", [2, 2], {"states": None}),
        ("z-lab-early", [3], {"states": None, "num_hidden_layers": 1}),
        ("deepspec", [0, 2, 3], {"states": [-1, 1, 2]}),
        ("speculators", [1, 3], {"states": [1, 3]}),
        ("speculators", [1, 2, 3], {"few": 120}),
        ("speculators", [1, 2, 3], {"sample_from_anchor": True}),
    ],
)
def test_dflash_is_what_the_formulas_say(
    layout: str, states: list[int], of: dict[str, Any], target: CachedModel[CachedDecoder], folder: Path, tmp_path: Path
) -> None:
    reference = Reference(dflash(tmp_path / "head", layout, **of), folder, states)
    reference.first = 0 if layout == "deepspec" or "sample_from_anchor" in of else 1
    head = DFlashHead(HeadFiles.open(tmp_path / "head"), target)
    assert head.places == BLOCK - reference.first
    agree(head, target, reference)


def test_muse_s_assistant_is_what_transformers_has(tmp_path: Path) -> None:
    """Over rows of the table, which the target norms and such a head does not."""
    folder = checkpoint(tmp_path / "target", seed=5, **FAMILIES["muse"])
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    heads = {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 7, "max_position_embeddings": 256}
    told = {"block_size": BLOCK, "mask_token_id": 200, "target_layer_ids": [0, 2], "rms_norm_eps": 1e-3}
    torch.manual_seed(9)
    own = MuseGlimmerAssistantModel(
        MuseGlimmerAssistantConfig(**shape | heads | told, layer_types=["sliding_attention", "full_attention"])
    ).eval()
    for name, weight in own.named_parameters():
        weight.data.normal_(1.0 if "norm" in name else 0.0, 0.1 if "norm" in name else weight.shape[-1] ** -0.5)
    own.save_pretrained(tmp_path / "head")
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    target = CachedModel(model)
    head = DFlashHead(HeadFiles.open(tmp_path / "head"), target)
    mine = CachedModel(head)
    for text in (TEXT[:25], [*TEXT[:25], 7], TEXT[:33]):
        with torch.no_grad():
            states = theirs.model(torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
            rows = theirs.model.embed_tokens.weight[[text[-1], *[200] * (BLOCK - 1)]]
            cache = DFlashCache(config=own.config)
            cache.activate_past_recording()
            cache.set_previous_accepted_tokens(len(text) - 1)
            joined = torch.cat([states[1], states[3]], -1)
            block = own(noise_embeds=rows[None], context_hidden_states=joined, cache=cache)
            scores = theirs.lm_head(block.last_hidden_state)[0, 1:]
        target.begin(text)
        mine.begin(text[:-1])
        fed = text[len(mine.tokens) :]
        for at in range(head.places):
            made = head.logits(head.forward(fed, len(text) + at - len(fed)))[0]
            # The target's own cap and factor on logits choose no other token.
            assert made.argsort(descending=True)[:9].tolist() == scores[at].argsort(descending=True)[:9].tolist()
            uncapped = 3.0 * torch.atanh(made / 3.0) / 0.7
            torch.testing.assert_close(uncapped, scores[at], atol=2e-3, rtol=2e-3)
            fed = [TEXT[at]]
        mine.hold(text, len(text) - 1)


SLIDES = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}


@pytest.mark.parametrize(
    ("layout", "of", "causal"),
    [
        ("z-lab", {}, False),
        ("z-lab", {"is_causal": False}, False),
        ("speculators", {}, True),
        ("speculators", {"sliding_window_non_causal": True}, False),
    ],
)
def test_a_layer_with_a_window_sees_so_many_places(
    layout: str, of: dict[str, Any], causal: bool, target: CachedModel[CachedDecoder], folder: Path, tmp_path: Path
) -> None:
    head = dflash(tmp_path / "head", layout, **SLIDES, **of)
    reference = Reference(head, folder, [1, 2, 3])
    reference.window, reference.causal, reference.slides = 7, causal, [True, False]
    agree(DFlashHead(HeadFiles.open(head), target), target, reference)


def nested(**values: Any) -> Spoil:
    return lambda _, settings: settings["dflash_config"].update(values)


BAD: list[tuple[Spoil, str]] = [
    (put("fc.weight", torch.zeros(64, 96)), "for another target or its config.json for another head: tensor fc.weight"),
    (told(num_target_layers=36), "for another target: num_target_layers is 36, not 4"),
    (told(vocab_size=1000), f"for another target: vocab_size is 1000, not {VOCAB}"),
    (told(hidden_size=32), "fc.weight has shape [64, 192]"),
    (told(num_hidden_layers=3), "layers.2.self_attn.q_proj.weight is missing"),
    (told(num_hidden_layers=10**9), "num_hidden_layers is 1000000000, not a number of layers up to 1024"),
    (told(num_hidden_layers=65), "num_hidden_layers is 65, and a head has 64 at most"),
    (told(model_type="stablelm"), "model_type 'stablelm'"),
    (told(model_type="gemma4"), "the head's layers are not of plain attention"),
    (told(speculators_model_type="mtp"), "speculators_model_type is 'mtp', not dflash"),
    (told(dflash_config=[1]), "dflash_config is [1], not an object"),
    (told(logit_scale=0.5), "logit_scale is 0.5, and no head with it is run"),
    (nested(target_layer_ids=[0, 1, 3]), "target_layer_ids is [0, 1, 3], and of this target it may name -1 to 2"),
    (nested(target_layer_ids=[-2, 1, 2]), "target_layer_ids is [-2, 1, 2]"),
    (nested(target_layer_ids="all"), "target_layer_ids is 'all', not a list of layers"),
    (nested(target_layer_ids=[0, 1]), "tensor fc.weight has shape [64, 192]"),
    (nested(mask_token_id=None), "mask_token_id is missing, not a number from 0 to 259"),
    (nested(mask_token_id=VOCAB), "mask_token_id is 260"),
    (nested(block_size=1), "block_size is 1, not a number from 2 to 64"),
    (nested(block_size=10**9), "block_size is 1000000000"),
    (told(layer_types=["sliding_attention"] * 2), "layer_types has sliding_attention, and sliding_window is None"),
    (told(layer_types=["linear_attention"] * 2), "layer_types is ['linear_attention'"),
    (told(draft_vocab_size=100), "tensor lm_head.weight is missing"),
    (lost("hidden_norm.weight"), "hidden_norm.weight is missing"),
    (put("layers.1.input_layernorm.weight", torch.full((64,), float("nan"))), "holds values that are no numbers"),
    (put("markov_head.markov_w1.weight", torch.zeros(VOCAB, 4)), "by its tensors this is a dspark head"),
]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("spoil", "words"), BAD, ids=[words for _, words in BAD])
def test_heads_that_cannot_be_used_are_told_and_the_pair_runs_without(
    spoil: Spoil, words: str, tiny_pair: PairSpec, tmp_path: Path
) -> None:
    source = change(dflash(tmp_path / "head"), spoil)
    session = load(replace(tiny_pair, draft=None, heads={"dflash": source}), lambda _: None)
    status = session.info.strategy("dflash")
    assert not status.available
    assert words in status.reason
    assert session.info.notes.warning.startswith("tiny drafts without dflash heads: ")
    assert finished(reply(session, "ab", Sampling(), Limits(5), Speculation())).token_ids
