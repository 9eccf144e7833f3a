"""Layers for multi-token prediction, as targets bring them along: what the formulas give, found without being named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.modeling_layers import MtpModel

from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.mtp import MtpHead
from specchat.engine.heads.recipe import need
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.reference.layer import run
from specchat.engine.runners.host import host_model
from specchat.engine.session import Session
from specchat.engine.text.draft_vocabulary import write
from specchat.engine.text.tokenizer import Tokenizer
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.conftest import EVEN
from tests.engine.layouts import stacked
from tests.engine.published_heads import glm_mtp, mtp, qwen_layer, qwen_mtp, written
from tests.engine.test_decoder import reference, tokens
from tests.engine.test_eagle import Reference, Spoil, agree, change, drafts_as, greedy, lost, put, rms, told
from tests.engine.test_lossless import FEW_SAMPLINGS, finished, reply
from tests.engine.tiny import checkpoint as checkpoint_of
from tests.engine.tiny import on_cpu

LAYER = "model.mtp_layers.0."


def as_qwen2(folder: Path, made: Path) -> Path:
    """What transformers knows: MiMo's own tensors by the name of the family that it has its shape from."""
    settings = json.loads((folder / "config.json").read_text()) | {"model_type": "qwen2"}
    weights = load_file(folder / "model.safetensors")
    return written(made, settings, {name: weight for name, weight in weights.items() if ".mtp_layers." not in name})


class MtpReference(Reference):
    """The layer from the formulas: the whole text each time, no cache."""

    def __init__(self, folder: Path, target: Path, normed: bool) -> None:
        super().__init__(folder, target, LAYER, [])
        self.normed = normed
        self.decoder = self.model.model
        self.before_norm: Tensor = torch.zeros(0)
        self.decoder.norm.register_forward_pre_hook(self.kept)

    def kept(self, norm: object, inputs: tuple[Tensor, ...]) -> None:
        self.before_norm = inputs[0][0]

    def made(self, text: list[int]) -> Tensor:
        with torch.no_grad():
            after = self.decoder(torch.tensor([text])).last_hidden_state[0]
        return after if self.normed else self.before_norm

    def embed(self, ids: list[int]) -> Tensor:
        return self.target["model.embed_tokens.weight"][ids]

    def step(self, ids: list[int], features: Tensor) -> Tensor:
        w, p = self.w, self.prefix
        e, h = rms(self.embed(ids), w[f"{p}token_layernorm.weight"]), rms(features, w[f"{p}hidden_layernorm.weight"])
        x = torch.cat([h, e], -1) @ w[f"{p}input_proj.weight"].T
        hidden = self.layer(rms(x, w[f"{p}input_layernorm.weight"]), x)
        return rms(hidden, w[f"{p}final_layernorm.weight"]) if self.normed else hidden

    def scored(self, hidden: Tensor) -> Tensor:
        hidden = hidden if self.normed else rms(hidden, self.w[f"{self.prefix}final_layernorm.weight"])
        return hidden @ self.target["lm_head.weight"].T


def test_the_target_is_qwen2_whatever_stands_beside_it(tmp_path: Path) -> None:
    folder, ids = mtp(tmp_path / "mimo"), tokens(100)
    mine = host_model(Checkpoint.open(folder))
    assert isinstance(mine, CachedDecoder)
    logits = torch.cat([mine.logits(mine.forward(ids[i : i + 10], i)).clone() for i in range(0, 100, 10)])
    theirs = reference(as_qwen2(folder, tmp_path / "qwen2"), ids)
    torch.testing.assert_close(logits, theirs, atol=3e-4, rtol=1e-4)


@pytest.mark.parametrize("normed", [False, True])
def test_the_layer_is_what_the_formulas_say(normed: bool, tmp_path: Path) -> None:
    fast = {"num_speculative_steps": 3, "mtp_loss_step_weights": [0.51, 0.31, 0.18]} if normed else {}
    folder = mtp(tmp_path / "mimo", **fast)
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    target = CachedModel(model)
    head = MtpHead(HeadFiles.open(folder), target)
    agree(head, target, MtpReference(folder, as_qwen2(folder, tmp_path / "qwen2"), normed))
    own = {name: w for name, w in load_file(folder / "model.safetensors").items() if name.startswith(LAYER)}
    assert head.parameters() == sum(weight.numel() for weight in own.values())


class QwenReference(MtpReference):
    """Qwen3.5's layer: transformers' own between the norms and the product that go before it, whole texts each time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder, normed=True)
        self.own = qwen_layer(json.loads((folder / "config.json").read_text()))
        first = "mtp.layers.0."
        self.own.load_state_dict({n.removeprefix(first): w for n, w in self.w.items() if n.startswith(first)})

    def step(self, ids: list[int], features: Tensor) -> Tensor:
        def normed(x: Tensor, name: str) -> Tensor:
            scaled = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            return scaled * (1 + self.w[f"mtp.{name}.weight"])

        both = normed(self.embed(ids), "pre_fc_norm_embedding"), normed(features, "pre_fc_norm_hidden")
        x = (torch.cat(both, -1) @ self.w["mtp.fc.weight"].T)[None]
        places = torch.arange(len(ids))[None]
        mask = torch.full((len(ids), len(ids)), float("-inf")).triu(1)[None, None]
        with torch.no_grad():
            rotations = self.decoder.rotary_emb(x, places)
            hidden = self.own(x, position_embeddings=rotations, attention_mask=mask, position_ids=places)
        return normed(hidden[0], "norm")


@pytest.mark.rotated(2, 1)
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_qwen_s_layer_is_what_transformers_own_layer_gives(family: str, tmp_path: Path) -> None:
    folder = qwen_mtp(tmp_path / "qwen", family)
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    target = CachedModel(model)
    head = MtpHead(HeadFiles.open(folder), target)
    agree(head, target, QwenReference(folder))
    own = {name: w for name, w in load_file(folder / "model.safetensors").items() if name.startswith("mtp.")}
    assert head.parameters() == sum(weight.numel() for weight in own.values())
    assert head.capturable == (family == "qwen3_5")
    check_write(head, target)


def check_write(head: MtpHead, target: CachedModel[Any]) -> None:
    """Writing leaves out most rows of the layer's second half, and the next row is what it is after all of them."""
    text = tokens(30)
    target.begin(text)
    whole = head.forward(text, 0)[-1].clone()
    head.write(text[:11], 0)
    head.write(text[11:-1], 11)
    with patch("specchat.engine.heads.layer.run", side_effect=run) as runs:
        head.write(text[11:-1], 11)
    assert [len(call.args[1].residual) for call in runs.call_args_list if "feed" in call.args] == [1]
    torch.testing.assert_close(head.forward(text[-1:], len(text) - 1)[0], whole)


class GlmReference(MtpReference):
    """GLM-4.5's layer as transformers has it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder, normed=True)
        self.own = MtpModel(self.model, 1).eval()
        prefix = f"model.layers.{self.model.config.num_hidden_layers}."
        given = {name.removeprefix(prefix): one for name, one in stacked(self.w).items() if name.startswith(prefix)}
        outer = {"enorm", "hnorm", "eh_proj", "post_norm"}
        given = {name.replace("shared_head.norm", "post_norm"): one for name, one in given.items()}
        named = {name if name.split(".")[0] in outer else f"mtp_block.{name}": one for name, one in given.items()}
        wanted = self.own.layers[0].state_dict().keys()
        self.own.layers[0].load_state_dict({name: one for name, one in named.items() if name in wanted})

    def step(self, ids: list[int], features: Tensor) -> Tensor:
        x, places = self.embed(ids)[None], torch.arange(len(ids))[None]
        mask = torch.full((len(ids), len(ids)), float("-inf")).triu(1)[None, None]
        with torch.no_grad():
            rotations = self.decoder.rotary_emb(x, places)
            hidden = self.own.layers[0](x, features[None], rotations, mask, places, None)
        return hidden[0]


def test_glm_s_layer_is_what_transformers_has(tmp_path: Path) -> None:
    folder = glm_mtp(tmp_path / "glm")
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    target = CachedModel(model)
    head = MtpHead(HeadFiles.open(folder), target)
    agree(head, target, GlmReference(folder))
    tables = ("shared_head.head", "embed_tokens")
    own = {name: w for name, w in load_file(folder / "model.safetensors").items() if name.startswith("model.layers.4.")}
    assert head.parameters() == sum(w.numel() for name, w in own.items() if not any(one in name for one in tables))


def check_drafts(session: Session) -> None:
    """Replies are plain's, and some drafts are accepted, others rejected."""
    assert session.info.strategy("mtp").available
    drafted = accepted = 0
    for name, sampling in FEW_SAMPLINGS.items():
        plain = finished(reply(session, "abcab", replace(sampling, seed=5), Limits(40), Speculation()))
        last = finished(reply(session, "abcab", replace(sampling, seed=5), Limits(40), Speculation("mtp", 3)))
        assert last.token_ids == plain.token_ids, name
        drafted += last.stats.num_draft_tokens
        accepted += last.stats.num_accepted_draft_tokens
    assert 0 < accepted < drafted


def test_glm_s_layer_drafts_unasked(tmp_path: Path) -> None:
    session = load(PairSpec("g", "G", on_cpu(glm_mtp(tmp_path / "glm"))), lambda _: None)
    check_drafts(session)


def test_a_copy_of_glm_that_lost_the_layer_says_so(tmp_path: Path) -> None:
    """As transformers writes it."""
    folder = glm_mtp(tmp_path / "glm")
    change(folder, lambda tensors, _: [tensors.pop(name) for name in list(tensors) if ".layers.4." in name])
    session = load(PairSpec("g", "G", on_cpu(folder)), lambda _: None)
    words = "holds no layer for multi-token prediction (model.layers.4.*): this copy was made without it"
    assert words in session.info.strategy("mtp").reason
    assert session.info.notes.warning == ""


@pytest.mark.rotated(2)
@pytest.mark.parametrize("told", [{}, {"mtp_num_hidden_layers": None}])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_qwen_s_layer_drafts_unasked_whether_the_key_is_there_or_not(
    family: str, told: dict[str, None], tmp_path: Path
) -> None:
    session = load(PairSpec("q", "Q", on_cpu(qwen_mtp(tmp_path / "qwen", family, **told))), lambda _: None)
    check_drafts(session)


def test_a_copy_of_qwen_that_lost_the_layer_says_so(tmp_path: Path) -> None:
    """Repacked, or written by transformers, which drops it."""
    folder = qwen_mtp(tmp_path / "qwen")
    tensors = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in tensors.items() if not name.startswith("mtp.")}
    written(folder, json.loads((folder / "config.json").read_text()), kept)
    write(path := tmp_path / "few.json", Tokenizer.read(folder), EVEN)
    session = load(PairSpec("q", "Q", on_cpu(folder), draft_vocabulary=str(path)), lambda _: None)
    status = session.info.strategy("mtp")
    assert not status.available
    assert "holds no layer for multi-token prediction (mtp.*): this copy was made without it" in status.reason
    assert (session.info.notes.warning, session.info.draft.tokens) == ("", None)


@pytest.mark.parametrize("tied", [False, True])
def test_a_draft_vocabulary_leaves_the_layer_few_rows_of_the_target_s_head(tied: bool, tmp_path: Path) -> None:
    folder = qwen_mtp(tmp_path / "qwen", tie_word_embeddings=tied)
    model = host_model(checkpoint := Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    few, target = [0, 3, 64, 65, 66, 90], CachedModel(model)
    files = HeadFiles.open(folder)
    restricted = replace(files, frequent=replace(checkpoint, drafts=tuple(few)))
    heads = MtpHead(files, target), MtpHead(restricted, target)
    target.begin(text := tokens(30))
    whole, rows = (head.logits(head.forward(text, 0)[-3:]).clone() for head in heads)
    torch.testing.assert_close(rows[:, few], whole[:, few], atol=1e-3, rtol=1e-3)
    others = torch.ones(rows.shape[1], dtype=torch.bool)
    others[few] = False
    assert torch.isneginf(rows[:, others]).all()
    more = need("mtp", restricted, model.config, 64, "cpu") - need("mtp", files, model.config, 64, "cpu")
    assert more == 4 * len(few) * model.config.hidden >= heads[1].memory() - heads[0].memory() > 0


def test_a_draft_vocabulary_changes_no_text_of_the_layer(tmp_path: Path) -> None:
    pair = PairSpec("q", "Q", on_cpu(folder := qwen_mtp(tmp_path / "qwen")))
    path = tmp_path / "few.json"
    tokenizer = Tokenizer.read(folder)
    write(path, tokenizer, EVEN)
    session = load(replace(pair, draft_vocabulary=str(path)), lambda _: None)
    assert (session.info.draft.tokens, session.info.notes.warning) == (len(EVEN), "")
    check_drafts(session)
    steps = reply(session, "abcab", Sampling(), Limits(40), Speculation("mtp", 3))
    texts = {tokenizer.text_of(token) for token in EVEN}
    assert {draft.text for step in steps if isinstance(step, Step) for draft in step.drafts} <= texts


def test_a_draft_vocabulary_that_nothing_uses_is_told(tmp_path: Path) -> None:
    folder = checkpoint_of(tmp_path / "m")
    write(path := tmp_path / "few.json", Tokenizer.read(folder), EVEN)
    session = load(PairSpec("p", "P", on_cpu(folder), draft_vocabulary=str(path)), lambda _: None)
    assert session.info.notes.warning == (
        "p has neither a draft model nor a layer of its target that draft_vocabulary would restrict."
    )
    assert session.info.draft.tokens is None


@pytest.fixture(scope="module")
def mimo(tmp_path_factory: pytest.TempPathFactory) -> PairSpec:
    """A target with the layer, in a pair that names no heads."""
    return PairSpec("mimo", "MiMo", on_cpu(mtp(tmp_path_factory.mktemp("mtp") / "mimo")))


@pytest.fixture(scope="module")
def loaded(mimo: PairSpec) -> Session:
    return load(mimo, lambda _: None)


def test_a_target_drafts_by_its_own_layer_unasked(loaded: Session) -> None:
    assert loaded.info.notes.warning == ""
    check_drafts(loaded)


def test_a_reply_drafts_what_the_formulas_draft(mimo: PairSpec, loaded: Session, tmp_path: Path) -> None:
    folder = Path(mimo.target.path or "")
    layer = MtpReference(folder, as_qwen2(folder, tmp_path / "qwen2"), normed=False)
    drafts_as(loaded, "mtp", lambda text, bias: greedy(layer, text, bias))


def test_the_layer_s_memory_is_counted_apart_from_the_target_s(mimo: PairSpec, loaded: Session, tmp_path: Path) -> None:
    folder = Path(mimo.target.path or "")
    change(copied(folder, tmp_path / "bare"), told(num_nextn_predict_layers=0))
    bare = load(replace(mimo, target=on_cpu(tmp_path / "bare")), lambda _: None)
    config = Checkpoint.open(folder).config
    needed = need("mtp", HeadFiles.open(folder), config, loaded.info.context, "cpu")
    assert 0.8 * needed < loaded.info.load.memory - bare.info.load.memory < 1.2 * needed


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


@pytest.mark.parametrize("named", [False, True])
def test_a_target_without_the_layer_says_so_and_may_be_given_one(named: bool, tiny_pair: PairSpec) -> None:
    heads = {"mtp": tiny_pair.heads["mtp"]} if named else {}
    session = load(replace(tiny_pair, draft=None, heads=heads), lambda _: None)
    status = session.info.strategy("mtp")
    assert status.available == named
    words = "the target has no layer for it, and [pair.heads] in models.toml names none"
    assert status.reason == ("" if named else words)
    assert session.info.notes.warning == ""


def without_layer(tensors: dict[str, Tensor], _: object) -> None:
    for name in [name for name in tensors if ".mtp_layers." in name]:
        del tensors[name]


NAN = torch.full((64,), float("nan"))
BAD: list[tuple[Spoil, str]] = [
    (without_layer, "holds no layer for multi-token prediction"),
    (lost(f"{LAYER}mlp.up_proj.weight"), f"{LAYER}mlp.up_proj.weight is missing"),
    (lost(f"{LAYER}self_attn.k_proj.bias"), f"{LAYER}self_attn.k_proj.bias is missing"),
    (lost(f"{LAYER}final_layernorm.weight"), f"{LAYER}final_layernorm.weight is missing"),
    (put(f"{LAYER}token_layernorm.weight", NAN), "token_layernorm.weight holds values that are no numbers"),
    (put(f"{LAYER}input_proj.weight", torch.zeros(64, 96)), "has shape [64, 96], config.json asks for [64, 128]"),
    (put("model.mtp_layers.1.input_proj.weight", torch.zeros(64, 128)), "more layers for multi-token prediction than"),
    (told(num_nextn_predict_layers=3), "num_nextn_predict_layers is 3, and only one such layer is run"),
    (told(num_nextn_predict_layers="many"), "num_nextn_predict_layers is 'many', not a number"),
]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("spoil", "words"), BAD, ids=[words for _, words in BAD])
def test_a_layer_that_cannot_be_used_is_told_and_the_target_runs_without(
    spoil: Spoil, words: str, tmp_path: Path
) -> None:
    folder = mtp(tmp_path / "mimo")
    change(folder, spoil)
    session = load(PairSpec("m", "M", on_cpu(folder)), lambda _: None)
    status = session.info.strategy("mtp")
    assert not status.available
    assert words in status.reason
    assert session.info.notes.warning == ""  # nobody asked for it
    assert finished(reply(session, "ab", Sampling(), Limits(5), Speculation())).token_ids


OTHERS: list[tuple[Callable[[Path], Path], str]] = [
    (
        lambda folder: mtp(folder, hidden_size=32, head_dim=8),
        "another target, of 260 tokens and a hidden size of 32",
    ),
    (lambda folder: mtp(folder, vocab_size=300), "another target, of 300 tokens and a hidden size of 64"),
    (lambda folder: mtp(folder, speculators_model_type="mtp"), "is of speculators, whose MTP layers are not run"),
    (lambda folder: mtp(folder, layers=0), "num_nextn_predict_layers is 0, and only one such layer is run"),
    (
        lambda folder: Path(change(mtp(folder), told(model_type="stablelm")).path or ""),
        "model_type 'stablelm' is not one that",
    ),
]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("write", "words"), OTHERS, ids=[words for _, words in OTHERS])
def test_a_folder_that_is_named_and_of_no_use_is_told_in_the_note(
    write: Callable[[Path], Path], words: str, mimo: PairSpec, tmp_path: Path
) -> None:
    """Though the target has a layer of its own: the pair asks for another one."""
    heads = {"mtp": ModelSource(path=str(write(tmp_path / "other")))}
    session = load(replace(mimo, heads=heads), lambda _: None)
    assert not session.info.strategy("mtp").available
    assert words in session.info.strategy("mtp").reason
    assert session.info.notes.warning.startswith("mimo drafts without mtp heads: ")


def test_the_layer_of_the_folder_that_is_named_drafts(mimo: PairSpec, loaded: Session, tmp_path: Path) -> None:
    folder = mtp(tmp_path / "other")
    change(folder, lambda tensors, _: tensors.update({name: -tensors[name] for name in tensors if LAYER in name}))
    session = load(replace(mimo, heads={"mtp": ModelSource(path=str(folder))}), lambda _: None)
    own, other = (
        finished(reply(one, "abcab", Sampling(), Limits(40), Speculation("mtp", 3))) for one in (loaded, session)
    )
    assert own.token_ids == other.token_ids
    assert own.stats.num_accepted_draft_tokens != other.stats.num_accepted_draft_tokens
