"""EAGLE heads: files in every published layout give what the formulas give, along chains and in trees."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from specchat.engine.bandit import exploration
from specchat.engine.bandit.drafter import AutoDrafter
from specchat.engine.bandit.exploration import Exploration
from specchat.engine.decoding.cached import CachedModel
from specchat.engine.heads.eagle import EagleHead
from specchat.engine.heads.eagle3 import Eagle3Head
from specchat.engine.heads.feature import FeatureHead
from specchat.engine.heads.files import HeadFiles
from specchat.engine.heads.peagle import PEagleHead
from specchat.engine.loading import load
from specchat.engine.model.decoder import CachedDecoder
from specchat.engine.model.tree_layout import Levels
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Acceptance, Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.engine.runners.host import host_model
from specchat.engine.session import Session
from specchat.engine.strategies import HEADED
from specchat.engine.strategy import Head
from specchat.engine.weights.checkpoint import Checkpoint
from tests.engine.published_heads import eagle, eagle3, peagle
from tests.engine.test_decoder import tokens
from tests.engine.test_lossless import finished, reply
from tests.engine.tiny import VOCAB, checkpoint

TEXT = tokens(40)
LAYERS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("m") / "target", num_hidden_layers=LAYERS, num_key_value_heads=2)


@pytest.fixture
def target(folder: Path) -> CachedModel[CachedDecoder]:
    model = host_model(Checkpoint.open(folder))
    assert isinstance(model, CachedDecoder)
    return CachedModel(model)


@cache
def theirs(target: Path) -> Any:
    """A target as transformers reads it."""
    return AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


class Reference:
    """A head from the formulas: the whole text for each token, one after the other, no cache of keys and values."""

    def __init__(self, folder: Path, target: Path, prefix: str, states: list[int]) -> None:
        self.w = load_file(folder / "model.safetensors")
        self.target, self.prefix, self.states = load_file(target / "model.safetensors"), prefix, states
        self.model = theirs(target)
        self.three = "lm_head.weight" in self.w
        self.before = self.output = False
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.drafted: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    def embed(self, ids: list[int]) -> Tensor:
        return self.w.get("embed_tokens.weight", self.target["model.embed_tokens.weight"])[ids]

    def given(self, text: list[int]) -> Tensor:
        """The features of a text."""
        if tuple(text) not in self.known:
            self.known[tuple(text)] = self.made(text)
        return self.known[tuple(text)]

    def made(self, text: list[int]) -> Tensor:
        with torch.no_grad():
            states = self.model(torch.tensor([text]), output_hidden_states=True).hidden_states
        if not self.three:
            return states[-1][0]  # transformers' last one is normed
        return self.feature(torch.cat([states[i][0] for i in self.states], -1))

    def feature(self, joined: Tensor) -> Tensor:
        w = self.w
        joined = rms(joined, w["input_norm.weight"]) if "input_norm.weight" in w else joined
        if "fc_norm.0.weight" in w:
            each = joined.chunk(len(self.states), -1)
            joined = torch.cat([rms(one, w[f"fc_norm.{i}.weight"]) for i, one in enumerate(each)], -1)
        return joined @ w["fc.weight"].T

    def layer(self, x: Tensor, onto: Tensor, prefix: str = "") -> Tensor:
        w, p, rows, dim = self.w, prefix or self.prefix, len(x), 16

        def heads(name: str) -> Tensor:
            made = x @ w[f"{p}self_attn.{name}_proj.weight"].T + w.get(f"{p}self_attn.{name}_proj.bias", torch.zeros(1))
            made = made.view(rows, -1, dim)
            return rms(made, w[f"{p}self_attn.{name}_norm.weight"]) if f"{p}self_attn.{name}_norm.weight" in w else made

        def turned(y: Tensor) -> Tensor:
            angle = torch.outer(torch.arange(rows).float(), 5000.0 ** -(torch.arange(0, dim, 2) / dim)).unsqueeze(1)
            a, b = y.chunk(2, -1)
            return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

        q, k, v = turned(heads("q")), turned(heads("k")), heads("v")
        mixed = torch.zeros(rows, 4, dim)
        later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        for head in range(4):
            scores = (q[:, head] @ k[:, head // 2].T / dim**0.5).masked_fill(later, float("-inf"))
            mixed[:, head] = scores.softmax(-1) @ v[:, head // 2]
        hidden = onto + mixed.view(rows, -1) @ w[f"{p}self_attn.o_proj.weight"].T
        normed = rms(hidden, w[f"{p}post_attention_layernorm.weight"])
        gate, up = (normed @ w[f"{p}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return hidden + (gate * torch.sigmoid(gate) * up) @ w[f"{p}mlp.down_proj.weight"].T

    def scores(self, text: list[int], drafted: list[int]) -> Tensor:
        """After a text and some drafted tokens: float32 [vocab]."""
        return self.scored(self.after(tuple(text), tuple(drafted))[1][-1])

    def after(self, text: tuple[int, ...], drafted: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Features of a text and some drafted tokens, and what the layers make of them."""
        if (text, drafted) not in self.drafted:
            if drafted:
                features, made = self.after(text, drafted[:-1])
                last = rms(made[-1:], self.w["norm.weight"]) if self.output else made[-1:]
                features = torch.cat([features, last])
            else:
                features = self.given(list(text))[:-1]
            self.drafted[text, drafted] = features, self.step([*text, *drafted][1:], features)
        return self.drafted[text, drafted]

    def step(self, ids: list[int], features: Tensor) -> Tensor:
        e, w, p = self.embed(ids), self.w, self.prefix
        if not self.three:
            x = torch.cat([e, features], -1) @ w["fc.weight"].T + w.get("fc.bias", torch.zeros(1))
            return self.layer(x, x)
        normed = rms(features, w[f"{p}hidden_norm.weight"])
        x = torch.cat([rms(e, w[f"{p}input_layernorm.weight"]), normed], -1)
        hidden, further = self.layer(x, normed if self.before else features), 1
        while f"layers.{further}.input_layernorm.weight" in w:
            normed = rms(hidden, w[f"layers.{further}.input_layernorm.weight"])
            hidden = self.layer(normed, hidden, f"layers.{further}.")
            further += 1
        return hidden

    def parallel(self, text: list[int], mask: int, places: int) -> Tensor:
        """What P-EAGLE guesses for so many places after a text: float32 [places, vocab]."""
        unknown = self.feature(self.w["mask_hidden"].view(1, -1)).expand(places - 1, -1)
        made = self.step([*text[1:], *[mask] * (places - 1)], torch.cat([self.given(text)[:-1], unknown]))
        return torch.stack([self.scored(row) for row in made[-places:]])

    def scored(self, hidden: Tensor) -> Tensor:
        if not self.three:
            return hidden @ self.target.get("lm_head.weight", self.target["model.embed_tokens.weight"]).T
        few = self.w["lm_head.weight"] @ rms(hidden, self.w["norm.weight"])
        whole = torch.full((VOCAB,), float("-inf"))
        whole[torch.arange(len(few)) + self.w.get("d2t", torch.tensor(0))] = few
        return whole


def agree(head: FeatureHead, target: CachedModel[CachedDecoder], reference: Reference) -> None:
    """Read a text in blocks, draft a chain and a tree, go on with other tokens, and draft again."""
    own = CachedModel(head)
    for text in (TEXT[:25], [*TEXT[:25], 7], TEXT[:33], [*TEXT[:12], *tokens(9, seed=4)]):
        target.begin(text)
        own.begin(text[:-1])
        lacking = text[len(own.tokens) :]
        rows = head.forward(lacking, len(own.tokens))
        near(head.logits(rows[-1:])[0], reference.scores(text, []))
        drafted = tokens(3, seed=2)
        for at, token in enumerate(drafted):
            row = head.forward([token], len(text) + at)
            near(head.logits(row)[0], reference.scores(text, drafted[: at + 1]))
        rows = head.forward(text[-1:], len(text) - 1)
        nodes: dict[tuple[int, ...], int] = {}
        levels = Levels()
        for level in ([(5,), (9,)], [(5, 1), (9, 2), (5, 3)], [(9, 2, 8), (5, 3, 8), (5, 1, 6)]):
            layout = levels.layout([[nodes[path[: i + 1]] for i in range(len(path) - 1)] for path in level])
            nodes |= {path: row for row, path in enumerate(level, layout.scratch_row)}
            made = head.logits(head.forward([path[-1] for path in level], len(text) - 1, layout=layout))
            for row, path in zip(made, level, strict=True):
                near(row, reference.scores(text, list(path)))
        own.hold(text, len(text))


def near(mine: Tensor, theirs: Tensor) -> None:
    spread = float(theirs[theirs.isfinite()].std())
    assert spread > 0.3  # lively scores, or agreement would mean nothing
    torch.testing.assert_close(mine, theirs, atol=5e-4 * spread, rtol=1e-3)


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_eagle_is_what_the_formulas_say(
    bias: bool, embeddings: bool, target: CachedModel[CachedDecoder], folder: Path, tmp_path: Path
) -> None:
    head = eagle(tmp_path / "head", bias=bias, embeddings=embeddings)
    agree(EagleHead(HeadFiles.open(head), target), target, Reference(head, folder, "layers.0.", []))


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("layout", "told", "states"),
    [
        ("safeailab", {}, [2, 3, 3]),
        ("safeailab", {"few": None}, [2, 3, 3]),
        ("modelopt", {"states": [1, 2, 5]}, [1, 2, 5]),
        ("modelopt", {}, [2, 3, 3]),
        ("speculators", {"norm_before_residual": True}, [2, 3, 3]),
        ("speculators", {"norm_before_residual": False, "states": [0, 4]}, [0, 4]),
        ("speculators", {"norm_before_fc": True, "norm_output": True}, [2, 3, 3]),
        ("speculators", {"model_type": "qwen3"}, [2, 3, 3]),
        ("speculators", {"fc_norm": True, "norm_output": True}, [2, 3, 3]),
        ("safeailab", {"fc_norm": True, "norm_before_fc": True, "states": [1, 4]}, [1, 4]),
        ("speculators", {"layers": 3}, [2, 3, 3]),
        ("modelopt", {"layers": 2}, [2, 3, 3]),
    ],
)
def test_eagle3_is_what_the_formulas_say(
    layout: str,
    told: dict[str, Any],
    states: list[int],
    target: CachedModel[CachedDecoder],
    folder: Path,
    tmp_path: Path,
) -> None:
    head = eagle3(tmp_path / "head", layout, **told)
    reference = Reference(head, folder, "layers.0." if layout == "speculators" else "midlayer.", states)
    reference.before = bool(told.get("norm_before_residual", layout == "speculators"))
    reference.output = "norm_output" in told
    agree(Eagle3Head(HeadFiles.open(head), target), target, reference)


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("speculators", {}),
        ("speculators", {"norm_before_residual": True, "fc_norm": True, "layers": 1}),
        ("safeailab", {"layers": 4, "norm_before_fc": True}),
        ("safeailab", {"ptd_token_id": None, "pard_token": 200}),
    ],
)
def test_p_eagle_is_what_the_formulas_say(
    layout: str, told: dict[str, Any], target: CachedModel[CachedDecoder], folder: Path, tmp_path: Path
) -> None:
    """Guess places after texts, of which the next has some of the guesses and other tokens."""
    files = HeadFiles.open(peagle(tmp_path / "head", layout, **told))
    reference = Reference(files.folder, folder, "layers.0." if layout == "speculators" else "midlayer.", [2, 3, 3])
    reference.before = bool(told.get("norm_before_residual"))
    head = PEagleHead(files, target)
    own = CachedModel(head)
    for text, places in ((TEXT[:25], 5), ([*TEXT[:25], 7], 1), (TEXT[:33], 7), ([*TEXT[:12], *tokens(9, seed=4)], 3)):
        target.begin(text)
        own.begin(text[:-1])
        head.wanted = places
        rows = head.forward(text[len(own.tokens) :], len(own.tokens))
        guessed = [head.logits(rows[-1:])[0]]
        for place, token in enumerate(tokens(places - 1, seed=2)):  # whatever was drafted
            guessed.append(head.logits(head.forward([token], len(text) + place))[0])
        for mine, theirs in zip(guessed, reference.parallel(text, 200, places), strict=True):
            near(mine, theirs)
        own.hold(text, len(text))


Spoil = Callable[[dict[str, Tensor], dict[str, Any]], None]


def change(folder: Path, spoil: Spoil) -> ModelSource:
    file, settings = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    tensors = load_file(file)
    spoil(tensors, settings)
    save_file(tensors, file)
    (folder / "config.json").write_text(json.dumps(settings))
    return ModelSource(path=str(folder))


def put(name: str, value: Tensor) -> Spoil:
    return lambda tensors, _: tensors.update({name: value})


def told(**values: Any) -> Spoil:
    return lambda _, settings: settings.update(values)


def lost(name: str) -> Spoil:
    return lambda tensors, _: tensors.__delitem__(name)


WRITE: dict[Head, Callable[[Path], Path]] = {"eagle": eagle, "eagle3": eagle3, "peagle": peagle}
BAD: list[tuple[Head, Spoil, str]] = [
    ("eagle", put("fc.weight", torch.zeros(64, 96)), "fc.weight has shape [64, 96], and with this target"),
    ("eagle", told(hidden_size=32), "fc.weight has shape [64, 128]"),
    ("eagle", told(num_hidden_layers=2), "the head has 2 layers (num_hidden_layers)"),
    ("eagle", told(num_attention_heads=3), "num_attention_heads 3 is not a multiple"),
    ("eagle", told(intermediate_size=40), "mlp.gate_proj.weight has shape [96, 64], config.json asks for [40, 64]"),
    ("eagle", lost("layers.0.self_attn.k_proj.weight"), "layers.0.self_attn.k_proj.weight is missing"),
    ("eagle", put("fc.bias", torch.full((64,), float("nan"))), "fc.bias holds values that are no numbers"),
    ("eagle3", put("fc.weight", torch.zeros(64, 128)), "fc.weight has shape [64, 128], and with this target"),
    ("eagle3", put("d2t", torch.full((120,), VOCAB)), f"d2t leads to token {119 + VOCAB}, and the target has {VOCAB}"),
    ("eagle3", put("d2t", torch.full((120,), -5)), "d2t leads to token -5"),
    ("eagle3", put("d2t", -torch.arange(120)), "d2t leads to a token twice"),
    ("eagle3", put("d2t", torch.zeros(120)), "d2t is torch.float32"),
    ("eagle3", put("t2d", torch.ones(VOCAB, dtype=torch.bool)), "d2t and t2d are about different tokens"),
    ("eagle3", lost("d2t"), "proposes 120 of 260 tokens, and tensor d2t is missing"),
    ("eagle3", lost("lm_head.weight"), "lm_head.weight is missing"),
    ("eagle3", told(draft_vocab_size=100), "tensor d2t is torch.int64 [120], not whole numbers [100]"),
    ("eagle3", told(draft_vocab_size=VOCAB + 1), f"draft_vocab_size is {VOCAB + 1}, not a number from 1 to {VOCAB}"),
    ("eagle3", told(eagle_aux_hidden_state_layer_ids=[1, 2, 9]), "layer_ids is [1, 2, 9], and the target has 4 layers"),
    ("eagle3", told(eagle_aux_hidden_state_layer_ids="x"), "layer_ids is 'x', not a list of layers"),
    ("eagle3", told(eagle_config={"use_last_layernorm": False}), "use_last_layernorm is not true"),
    ("eagle3", told(eagle_config=[1]), "eagle_config is [1], not an object"),
    ("eagle3", told(fc_norm=True), "fc_norm.0.weight is missing"),
    ("eagle3", told(num_hidden_layers=2), "layers.1.self_attn.q_proj.weight is missing"),
    ("eagle3", put("fc_norm.0.weight", torch.ones(64)), "fc_norm.0.weight is there, and config.json does not ask"),
    ("eagle3", put("input_norm.weight", torch.ones(192)), "input_norm.weight is there, and config.json does not ask"),
    ("eagle3", put("mask_hidden", torch.ones(192)), "holds P-EAGLE, as its tensor mask_hidden tells"),
    ("peagle", lost("mask_hidden"), "mask_hidden is missing, and P-EAGLE needs it"),
    ("peagle", put("mask_hidden", torch.ones(1, 64)), "mask_hidden has shape [1, 64], not 192 values"),
    ("peagle", told(mask_token_id=None), "names no mask_token_id"),
    ("peagle", told(mask_token_id=VOCAB), f"mask_token_id is {VOCAB}, not a number from 0 to {VOCAB - 1}"),
    ("peagle", told(speculators_model_type="eagle3"), "'eagle3', not peagle"),
    ("peagle", told(transformer_layer_config={}), "hidden_size' is missing"),
    ("eagle3", told(speculators_model_type="peagle"), "speculators_model_type is 'peagle'"),
]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("head", "spoil", "words"), BAD, ids=[words for _, _, words in BAD])
def test_heads_that_cannot_be_used_are_told_and_the_pair_runs_without(
    head: Head, spoil: Spoil, words: str, tiny_pair: PairSpec, tmp_path: Path
) -> None:
    source = change(WRITE[head](tmp_path / "head"), spoil)
    session = load(replace(tiny_pair, draft=None, heads={head: source}), lambda _: None)
    status = session.info.strategy("eagle2" if head == "eagle" else head)
    assert not status.available
    assert words in status.reason
    assert session.info.notes.warning.startswith(f"tiny drafts without {head} heads: ")
    assert finished(reply(session, "ab", Sampling(), Limits(5), Speculation())).token_ids


STRATEGY_OF: list[tuple[str, Head]] = [("eagle", "eagle"), ("eagle3", "eagle3"), ("peagle", "peagle")]


@pytest.mark.parametrize(("strategy", "head"), STRATEGY_OF)
def test_a_reply_drafts_what_the_formulas_draft(
    strategy: str, head: Head, session: Session, tiny_pair: PairSpec
) -> None:
    folder, target = (Path(source.path or "") for source in (tiny_pair.heads[head], tiny_pair.target))
    reference = Reference(folder, target, "midlayer." if head == "eagle3" else "layers.0.", [2, 2, 1])
    if head == "peagle":
        drafts_as(session, strategy, lambda text, bias: (reference.parallel(text, 200, 3) + bias).argmax(-1).tolist())
    else:
        drafts_as(session, strategy, lambda text, bias: greedy(reference, text, bias))


def greedy(reference: Reference, text: list[int], bias: Tensor) -> list[int]:
    """The likeliest three tokens, each after those before it."""
    drafted: list[int] = []
    while len(drafted) < 3:
        drafted.append(int((reference.scores(text, drafted) + bias).argmax()))
    return drafted


def drafts_as(session: Session, strategy: str, expected: Callable[[list[int], Tensor], list[int]]) -> None:
    """Through steps that keep some drafts and refuse others, a step without a draft, and a text taken up again."""
    runner = session.runner
    runner.executor.policies.off = True
    few = Sampling(logit_bias={64: 12.0, 65: 12.0, 66: 12.0, 67: 12.0})
    bias = torch.zeros(VOCAB).index_fill_(0, torch.tensor([64, 65, 66, 67]), 12.0)
    accepted = refused = 0
    try:
        for prompt in (TEXT[:20], [*TEXT[:15], *tokens(8, seed=5)]):
            runner.target.begin(prompt)
            drafter = runner.drafters[strategy]
            drafter.begin(prompt)
            decoding = runner.reply(few, prompt, [])
            for step in range(8):
                text = list(decoding.committed)
                if step == 3:
                    decoding.step(runner.drafters["plain"], 0, "coupled")
                    continue
                outcome = decoding.step(drafter, 3, "coupled")
                assert outcome.drafts == tuple(expected(text, bias))
                accepted += outcome.accepted
                refused += outcome.drafted - outcome.accepted
            decoding.close()
    finally:
        runner.executor.policies.off = False
    assert accepted
    assert refused


@pytest.mark.rotated(4)
@pytest.mark.parametrize("acceptance", ["ratio", "block"])
@pytest.mark.parametrize("strategy", HEADED)
def test_greedy_text_is_plain_text_whatever_the_test(strategy: str, acceptance: Acceptance, session: Session) -> None:
    few = Sampling(logit_bias={64: 9.0, 65: 9.0, 66: 9.0})
    plain = finished(reply(session, "abcab", few, Limits(40), Speculation()))
    last = finished(reply(session, "abcab", few, Limits(40), Speculation(strategy, 12, acceptance)))
    assert last.token_ids == plain.token_ids
    assert 0 < last.stats.num_accepted_draft_tokens < last.stats.num_draft_tokens


@pytest.mark.parametrize("draft", [True, False])
def test_auto_chooses_among_the_heads_too(draft: bool, tiny_pair: PairSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that might pay is tried as when a pair is loaded; with a head the target need not leave out layers."""
    monkeypatch.setattr(Exploration, "_could_pay", lambda *_: True)
    monkeypatch.setattr(exploration, "ENOUGH", 1 << 30)
    heads = {head: tiny_pair.heads[head] for head in ("medusa", "eagle", "eagle3", "peagle")}
    session = load(replace(tiny_pair, heads=heads, draft=tiny_pair.draft if draft else None), lambda _: None)
    auto = session.drafters["auto"]
    assert isinstance(auto, AutoDrafter)
    auto.tries = True
    few = Sampling(logit_bias={64: 9.0, 65: 9.0, 66: 9.0})
    plain = finished(reply(session, "abcab", few, Limits(150), Speculation()))
    families: set[str] = set()
    wanted = {"medusa", "eagle", "eagle3", "peagle"} | ({"draft"} if draft else set())
    for _ in range(30):
        events = reply(session, "abcab", few, Limits(150), Speculation.of("auto"))
        assert finished(events).token_ids == plain.token_ids
        families |= {event.strategy for event in events if isinstance(event, Step)}
        if wanted <= families:
            break
    assert wanted <= families
    assert families <= wanted | {"plain", "lookup", "suffix", "auto", "eagle2", "eagle3-tree", "draft-tree"}
