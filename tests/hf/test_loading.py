"""Pairs that transformers runs, as they are loaded: what is told of them, and what is refused in a sentence."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from specchat.engine.errors import EngineError, ModelError
from specchat.engine.hf import proof
from specchat.engine.hf.files import HfFiles
from specchat.engine.loading import load
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.pair import ModelSource, PairSpec, Quant
from specchat.engine.reply import measure
from specchat.engine.session import Session
from tests.engine.test_lossless import SAMPLINGS, finished, reply, shown
from tests.engine.tiny import VOCAB, checkpoint, on_cpu
from tests.hf.networks import PLAIN, network, perturbed, saved

DRAFTING = ("auto", "draft", "lookup", "suffix", "ngram", "cascade")


@pytest.fixture(autouse=True, scope="module")
def _quick() -> object:
    """Little is measured at load."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proof, "POSITIONS", proof.POSITIONS[:2])
        patched.setattr(measure, "BUDGET_S", 0.05)
        yield


def pair(target: Path, draft: Path | None = None, **changes: object) -> PairSpec:
    spec = PairSpec("tiny", "Tiny", on_cpu(target), None if draft is None else on_cpu(draft), "hf")
    return replace(spec, **changes)  # type: ignore[arg-type]


def loaded(spec: PairSpec) -> Session:
    return load(spec, lambda _: None)


def refusal(spec: PairSpec) -> str:
    """The sentence that a pair is refused with, before anything is given up for it."""
    kept = True

    def make_room() -> None:
        nonlocal kept
        kept = False

    with pytest.raises(EngineError) as caught:
        load(spec, lambda _: None, make_room)
    assert kept, "the pair before is gone"
    assert caught.value.kind in ("model", "config")
    return caught.value.message


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("hf")
    made = network("stablelm")
    return saved(made, root / "target"), saved(perturbed(made), root / "draft")


@pytest.fixture(scope="module")
def session(folders: tuple[Path, Path]) -> Session:
    return loaded(pair(*folders))


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Session:
    root = tmp_path_factory.mktemp("hybrid")
    made = network("lfm2")
    return loaded(pair(saved(made, root / "target"), saved(perturbed(made), root / "draft")))


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return loaded(pair(saved(network("mamba"), tmp_path_factory.mktemp("mamba") / "target")))


# What works.


def test_what_is_told_of_a_pair(session: Session, recurrent: Session) -> None:
    told = session.info
    assert {s.name for s in told.strategies if s.available} == {"plain", *DRAFTING}
    assert told.load.device.startswith("transformers, cpu, ")
    assert told.notes.exactness.startswith(("checked: choices closer than ", "row-invariant"))
    assert told.strategy("swift").reason == "transformers runs all layers"
    assert told.notes.note == ""
    alone = recurrent.info
    assert {s.name for s in alone.strategies if s.available} == {"plain", "auto"}
    assert alone.strategy("lookup").reason.startswith("plain only: several tokens at once")
    assert alone.notes.exactness == "one token after the other: nothing is drafted"


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", ["session", "hybrid"])
@pytest.mark.parametrize("strategy", ["plain", "draft", "ngram", "auto"])
def test_stop_conditions_hold_within_a_draft(
    name: str, strategy: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Session = request.getfixturevalue(name)
    monkeypatch.setattr(session, "eos", frozenset())
    speculation = Speculation.of(strategy)
    sampling = SAMPLINGS["everything"]
    free = finished(reply(session, "abc", sampling, Limits(24), Speculation()))
    for cut in (1, 5):
        monkeypatch.setattr(session, "eos", frozenset({free.token_ids[cut]}))
        last = finished(reply(session, "abc", sampling, Limits(24), speculation))
        assert last.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[cut]) + 1]
        assert last.reason == "stop"
    monkeypatch.setattr(session, "eos", frozenset())
    events = reply(session, "abc", sampling, Limits(24, (free.text[7:10],)), speculation)
    assert finished(events).text == shown(events) == free.text[: free.text.index(free.text[7:10])]
    assert finished(reply(session, "abc", sampling, Limits(9), speculation)).token_ids == free.token_ids[:9]
    full = finished(reply(session, "ab" * 110, sampling, Limits(), speculation))
    assert full.reason == "context"
    assert full.stats.prompt_tokens + len(full.token_ids) == session.info.context == 256


def test_a_pair_without_backend_goes_to_transformers_where_our_decoder_cannot(folders: tuple[Path, Path]) -> None:
    told = loaded(pair(folders[0], backend="native")).info
    assert told.load.device.startswith("transformers")
    assert told.notes.note.startswith("transformers runs this pair: model_type 'stablelm' is not one")


FOREIGN: dict[str, tuple[dict[str, object], str]] = {
    "activation": ({"hidden_act": "gelu"}, "activation 'gelu'"),
    "dynamic": ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic'"),
}
"""Settings of a known family that our decoder lacks, and the words for them."""


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("context", [None, 128])
def test_settings_that_our_decoder_lacks_go_to_transformers(name: str, context: int | None, tmp_path: Path) -> None:
    changes, words = FOREIGN[name]
    folder = checkpoint(tmp_path / "m", seed=3, max_position_embeddings=64)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    session = loaded(pair(folder, backend="native", context=context))
    held = 64 if context is None or name == "activation" else context
    assert session.info.notes.note.startswith(f"transformers runs this pair: specchat's decoder has no {words}")
    assert session.info.context == held
    assert session.info.notes.warning.startswith("context = 128 is more than ") == (context is not None and held == 64)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.arange(held) * 7 % VOCAB
    target = session.runner.target.model  # type: ignore[attr-defined]
    target.write(ids[:-9].tolist(), 0)
    parts = [target.forward(ids[at:end].tolist(), at) for at, end in ((held - 9, held - 8), (held - 8, held))]
    with torch.no_grad():
        theirs = reference(ids[None]).logits[0, -9:]
    torch.testing.assert_close(torch.cat(parts), theirs, atol=2e-4, rtol=1e-4)


def test_a_context_that_our_decoder_cannot_have_is_told(tmp_path: Path) -> None:
    told = loaded(pair(checkpoint(tmp_path / "m"), backend="native", context=512)).info
    assert told.context == 256
    assert (
        told.notes.warning
        == f"context = 512 is more than {tmp_path}/m can hold: it is run with 256 tokens, its longest."
    )


def test_a_checkpoint_of_our_own_is_written_alike_and_drafts(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", tie_word_embeddings=False)
    by_us = loaded(pair(target, backend="native"))
    by_them = loaded(pair(target, target))
    assert "Decoder" in type(by_them.runner.draft.model).__name__  # type: ignore[union-attr]
    for sampling in (Sampling(), Sampling(seed=4, temperature=0.9, logit_bias={256: -99.0})):
        ours = finished(reply(by_us, "abcab", sampling, Limits(40), Speculation()))
        theirs = finished(reply(by_them, "abcab", sampling, Limits(40), Speculation("draft", 5)))
        assert theirs.token_ids == ours.token_ids
        assert theirs.stats.num_accepted_draft_tokens >= len(ours.token_ids) // 2
    assert by_them.eos == by_us.eos


def test_the_text_part_of_a_checkpoint_that_also_sees(tmp_path: Path) -> None:
    text = PLAIN | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 2, 2]}}
    sees = {"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": 48, "mlp_ratio": 2}
    made = network("qwen2_vl", text_config=text, vision_config=sees)
    session = loaded(pair(saved(made, tmp_path / "target")))
    plain = finished(reply(session, "abcabc", Sampling(), Limits(30), Speculation()))
    assert (
        finished(reply(session, "abcabc", Sampling(), Limits(30), Speculation("ngram", 5))).token_ids == plain.token_ids
    )


# What is refused.


def changed(folder: Path, to: Path, **changes: object) -> Path:
    """A copy of a checkpoint with other settings."""
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | changes))
    return to


def test_an_unknown_architecture(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x", model_type="gpt9\x1b[31m")
    told = refusal(pair(folder))
    assert "does not know model_type 'gpt9" in told
    assert "\x1b" not in told
    assert "does not know model_type" in refusal(pair(folder, backend="native"))


MARKER = "raise SystemExit('the checkpoint ran its program')"


def test_programs_of_a_checkpoint_run_for_no_pair_that_does_not_say_so(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    names = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.OwnModel"}
    folder = changed(folders[0], tmp_path / "x", model_type="own", auto_map=names)
    (folder / "own.py").write_text(MARKER)
    told = refusal(pair(folder))
    assert "none is run unasked" in told
    assert "trust_remote_code = true" in told
    (folder / "own.py").write_text("raise RuntimeError('it ran')")
    assert "it ran" in refusal(pair(folder, trust_remote_code=True))


def test_a_known_architecture_ignores_the_programs_beside_it(folders: tuple[Path, Path], tmp_path: Path) -> None:
    names = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.OwnModel"}
    folder = changed(folders[0], tmp_path / "x", auto_map=names)
    (folder / "own.py").write_text(MARKER)
    assert loaded(pair(folder)).info.notes.note == ""


OWN = """
from transformers import StableLmConfig, StableLmForCausalLM
class Own(StableLmConfig):
    model_type = "own"
class OwnModel(StableLmForCausalLM):
    config_class = Own
"""


def test_programs_that_are_trusted_run_and_that_is_told(
    folders: tuple[Path, Path], session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    names = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.OwnModel"}
    folder = changed(folders[0], tmp_path / "x", model_type="own", auto_map=names)
    (folder / "own.py").write_text(OWN)
    own = loaded(pair(folder, trust_remote_code=True))
    assert own.info.notes.note == "programs of the checkpoint are run (trust_remote_code)"
    texts = [finished(reply(s, "abc", Sampling(), Limits(20), Speculation())).token_ids for s in (own, session)]
    assert texts[0] == texts[1]


def test_pickled_weights(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    assert "holds pickled weights, which can run code" in refusal(pair(folder))


@pytest.mark.parametrize("quant", ["nf4", "int8"])
def test_a_package_that_is_missing(folders: tuple[Path, Path], quant: Quant, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"transformers.quantizers.quantizer_bnb_{'4' if quant == 'nf4' else '8'}bit"
    monkeypatch.setattr(f"{module}.is_accelerate_available", lambda *_: False)
    spec = replace(pair(folders[0]), target=ModelSource(str(folders[0]), quant=quant, device="cpu"))
    assert "pip install 'accelerate" in refusal(spec)


@pytest.mark.parametrize(
    ("settings", "package"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 16}, "gptqmodel"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True}, "optimum"),
        ({"quant_method": "compressed-tensors", "config_groups": {}, "format": "pack-quantized"}, "compressed-tensors"),
    ],
)
def test_a_quantisation_whose_package_is_missing(
    folders: tuple[Path, Path], tmp_path: Path, settings: dict[str, object], package: str
) -> None:
    if find_spec(package.replace("-", "_")) is not None:
        pytest.skip(f"{package} is installed")
    told = refusal(pair(changed(folders[0], tmp_path / "x", quantization_config=settings)))
    assert f"pip install {package}" in told


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "modelopt W4A8_AWQ"),
        ({"quant_method": "tomorrow\x1b"}, "tomorrow␛"),
        ("tomorrow", "tomorrow"),
    ],
)
def test_a_quantisation_that_nobody_knows(
    folders: tuple[Path, Path], tmp_path: Path, settings: object, named: str
) -> None:
    told = refusal(pair(changed(folders[0], tmp_path / "x", quantization_config=settings)))
    assert f"it is quantised with {named}, which neither specchat's decoder nor transformers" in told
    text = changed(folders[0], tmp_path / "y", text_config={"quantization_config": settings})
    assert "which neither" in refusal(pair(text))


def test_quantised_weights_without_a_method(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x")
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(weights | {name: weights[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors", {"format": "pt"})
    assert f"{name} is quantised, and config.json does not say how" in refusal(pair(folder))


def test_layers_quantised_while_they_are_read(folders: tuple[Path, Path]) -> None:
    if find_spec("accelerate") is None or find_spec("bitsandbytes") is None:
        pytest.skip("needs accelerate and bitsandbytes")
    session = loaded(replace(pair(folders[0]), target=ModelSource(str(folders[0]), quant="int8", device="cpu")))
    plain = finished(reply(session, "abcabc", Sampling(), Limits(30), Speculation()))
    drafted = finished(reply(session, "abcabc", Sampling(), Limits(30), Speculation("ngram", 5)))
    assert drafted.token_ids == plain.token_ids


def test_weights_that_are_not_there(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are missing from its files \(model.layers.1.mlp.up_proj.weight\)"):
        loaded(pair(folder))


def test_damaged_weights_and_settings(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x", num_hidden_layers="many")
    assert "config.json cannot be used" in refusal(pair(folder))
    folder = changed(folders[0], tmp_path / "y")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:999])
    assert "model.safetensors cannot be read" in refusal(pair(folder))


def test_a_model_that_writes_no_text(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x", model_type="vit")
    assert "is none that writes text" in refusal(pair(folder))


def test_programs_that_are_trusted_but_not_there(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = changed(folders[0], tmp_path / "x", model_type="own", auto_map={"AutoConfig": "own.Own"})
    assert "none is ever downloaded" in refusal(pair(folder, trust_remote_code=True))


def test_embedding_and_head_stay_as_they_are_when_the_layers_are_quantised(tmp_path: Path) -> None:
    made = network("qwen2_moe", tie_word_embeddings=False).to(torch.bfloat16)
    files = HfFiles.open(saved(made, tmp_path / "x"), trusted=False)
    every = sum(weights.numel() for weights in made.parameters())
    kept = 2 * made.config.vocab_size * made.config.hidden_size
    heads = files.size - 2 * every
    assert files.weight_bytes(True, None) == files.size
    assert files.weight_bytes(False, None) == 2 * files.size
    assert files.weight_bytes(True, "nf4") == pytest.approx((every - kept) * 5 / 8 + kept * 2, abs=heads)
    assert files.weight_bytes(False, "int8") == pytest.approx((every - kept) + kept * 4, abs=heads)
