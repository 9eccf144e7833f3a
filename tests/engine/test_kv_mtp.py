"""Gemma 4's assistants: what transformers' own model gives from the target's KV entries, and what cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma4AssistantConfig, Gemma4AssistantForCausalLM

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.kv_mtp import KvMtpHead, over_rings
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.test_decoder import tokens
from tests.engine.test_eagle import near
from tests.engine.test_lossless import FEW_SAMPLINGS, finished, reply
from tests.engine.tiny import FAMILIES, GEMMA4, VOCAB, checkpoint, on_cpu

HIDDEN = 64
KINDS = ["sliding_attention", "sliding_attention", "full_attention"]
TEXT = tokens(40)


def assistant(folder: Path, ordered: bool, **changes: Any) -> Path:
    """As transformers writes it, with random norms and factors."""
    family = changes.pop("of", GEMMA4)
    text = {key: value for key, value in family.items() if key not in ("model_type", "final_logit_softcapping")}
    text |= {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "layer_types": KINDS}
    text |= {"vocab_size": VOCAB, "max_position_embeddings": 256, "num_kv_shared_layers": 3, "eos_token_id": 256}
    text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "use_double_wide_mlp": False}
    more = {"use_ordered_embeddings": ordered, "num_centroids": 20, "centroid_intermediate_top_k": 6}
    torch.manual_seed(7)
    config = Gemma4AssistantConfig(text_config=text | changes, backbone_hidden_size=HIDDEN, **more)
    model = Gemma4AssistantForCausalLM(config).float()
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if "layer_scalar" in name:
            weight.data.uniform_(0.7, 1.3)
        elif "norm" in name:
            weight.data.normal_(1.0, 0.1)
        elif weight.dim() > 1:
            weight.data.normal_(std=1.6 / weight.shape[-1] ** 0.5)
    if ordered:
        model.masked_embedding.token_ordering.copy_(torch.randperm(VOCAB))
    model.save_pretrained(folder)
    return folder


class Reference:
    """transformers' loop, over the entries of the text alone."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.target = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32, attn_implementation="eager")
        self.own = Gemma4AssistantForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")

    def scores(self, text: list[int], drafted: list[int]) -> Tensor:
        """After a text, the last token of which is pending, and some drafted tokens: float32 [vocab]."""
        with torch.no_grad():
            made = self.target(
                torch.tensor([text[:-1]]), output_hidden_states=True, return_shared_kv_states=True, use_cache=False
            )
            h, at = made.hidden_states[-1][:, -1:], torch.tensor([[len(text) - 1]])
            for token in (text[-1], *drafted):
                e = self.target.get_input_embeddings()(torch.tensor([[token]]))
                found = self.own(
                    inputs_embeds=torch.cat([e, h], -1), position_ids=at, shared_kv_states=made.shared_kv_states
                )
                h = found.last_hidden_state
        return found.logits[0, -1]


TARGETS = {
    "gemma4": GEMMA4,
    "last layers without entries": FAMILIES["gemma4_e"],
    "heads that fill no vectors": GEMMA4 | {"head_dim": 24, "global_head_dim": 40},
}


@pytest.fixture(scope="module", params=TARGETS)
def family(request: pytest.FixtureRequest) -> dict[str, Any]:
    return TARGETS[request.param]


@pytest.fixture(scope="module")
def folder(family: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("m") / "target", seed=4, **family)


@pytest.mark.parametrize("ordered", [False, True])
def test_it_scores_as_transformers_does(ordered: bool, family: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    reference = Reference(assistant(tmp_path / "head", ordered, of=family), folder)
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    target = CachedModel(model)
    head = KvMtpHead(HeadFiles.open(tmp_path / "head"), target)
    own = CachedModel(head)
    for text in (TEXT[:25], [*TEXT[:25], 7], TEXT[:33], TEXT[:4], [*TEXT[:12], *tokens(9, seed=4)]):
        target.begin(text)
        own.begin(text[:-1])
        fed, drafted = text[len(own.tokens) :], tokens(3, seed=2)
        for at in range(4):
            mine = head.logits(head.forward(fed, len(text) + at - len(fed)))[0]
            theirs = reference.scores(text, drafted[:at])
            scored = mine.isfinite()
            assert int(scored.sum()) == (6 * VOCAB // 20 if ordered else VOCAB)
            near(mine[scored], theirs[scored])
            assert mine.argmax() == theirs.argmax()
            fed = drafted[at : at + 1]
        own.hold(text, len(text) - 1)


def test_a_captured_pass_sees_of_a_ring_what_the_host_does(
    family: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    """Where a window's entries lie in a ring, and passes have written after the text."""
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    target, made = CachedModel(model), torch.Generator().manual_seed(5)
    head = KvMtpHead(HeadFiles.open(assistant(tmp_path / "head", False, of=family)), target)
    assert head.capturable
    for text in (TEXT[:33], TEXT[:4]):
        target.begin(text)
        known = len(target.tokens)

        def entries(layer: int, known: int = known) -> tuple[Tensor, Tensor]:
            held = 24 if model.config.recipe.layers[layer].attention.window else 64
            found = model.kv_entries(layer, 0, known)
            rings = [torch.randn(one.shape[0], held, one.shape[2], generator=made) for one in found]
            for position in range(max(0, known - 12), known) if held == 24 else range(known):
                for ring, one in zip(rings, found, strict=True):
                    ring[:, position % held] = one[:, position]
            return rings[0], rings[1]

        state, fed = model.final_norm(model.states(model.config.layers, known - 1, known)), text[known:]
        for at, token in enumerate([*fed, *tokens(2, seed=2)]):
            at_known = torch.tensor([known])
            held = [entries(layer) for layer in head.read_layers]
            row, state = head.run([token], state, at_known, held, over_rings(at_known))
            near(row, head.forward([token], known + at))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_reply_is_that_of_plain_decoding(ordered: bool, family: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    head = assistant(tmp_path / "head", ordered, of=family)
    spec = PairSpec("g", "G", on_cpu(folder), heads={"kv-mtp": ModelSource(path=str(head))})
    session = load(spec, lambda _: None)
    assert session.info.strategy("kv-mtp").available
    drafted = 0
    for name, sampling in FEW_SAMPLINGS.items():
        plain = finished(reply(session, "abcab", sampling, Limits(30), Speculation()))
        last = finished(reply(session, "abcab", sampling, Limits(30), Speculation("kv-mtp", 3)))
        assert last.token_ids == plain.token_ids, name
        drafted += last.stats.num_draft_tokens
    assert drafted > 0


def spoilt(folder: Path, key: str, value: Any) -> None:
    """A key of config.json or, with a dot, a tensor changed; None leaves it out."""
    if "." in key:
        weights = load_file(folder / "model.safetensors")
        weights.pop(key)
        save_file(weights | ({} if value is None else {key: value}), folder / "model.safetensors")
        return
    file = folder / "config.json"
    settings = json.loads(file.read_text())
    (settings if key in settings else settings["text_config"])[key] = value
    file.write_text(json.dumps(settings))


BAD: list[tuple[str, Any, str]] = [
    ("backbone_hidden_size", 32, "for another target: backbone_hidden_size is 32, not 64"),
    ("vocab_size", 300, "for another target: vocab_size is 300, not 260"),
    ("text_config", None, "text_config is None, not an object"),
    ("num_key_value_heads", 4, "layer 2 of this one has 2 key heads of 16 values, not 4 of 16"),
    ("num_centroids", 7, "num_centroids is 7, of 260 tokens and 6 to choose"),
    ("pre_projection.weight", None, "tensor pre_projection.weight is missing"),
    ("masked_embedding.token_ordering", torch.zeros(VOCAB, dtype=torch.long), "does not hold each of 260 tokens once"),
]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("key", "value", "words"), BAD, ids=[words for *_, words in BAD])
def test_one_that_cannot_be_used_is_told_and_the_pair_runs_without(
    key: str, value: Any, words: str, tmp_path: Path
) -> None:
    target, head = checkpoint(tmp_path / "target", seed=4, **GEMMA4), assistant(tmp_path / "head", ordered=True)
    spoilt(head, key, value)
    spec = PairSpec("g", "G", on_cpu(target), heads={"kv-mtp": ModelSource(path=str(head))})
    session = load(spec, lambda _: None)
    assert words in session.info.strategy("kv-mtp").reason
    assert finished(reply(session, "ab", Sampling(), Limits(5), Speculation())).token_ids


def test_a_target_of_other_layers_has_no_use_of_it(tmp_path: Path) -> None:
    target, head = checkpoint(tmp_path / "target", seed=4), assistant(tmp_path / "head", ordered=False)
    session = load(PairSpec("l", "L", on_cpu(target), heads={"kv-mtp": ModelSource(path=str(head))}), lambda _: None)
    assert not session.info.strategy("kv-mtp").available
    assert "this head is for another target" in session.info.strategy("kv-mtp").reason
