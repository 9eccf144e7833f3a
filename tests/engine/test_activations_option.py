"""`activations` and `head` of a pair: defaults, what refuses them and in which words, and what plans count."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.config.catalog import Pair
from specchat.engine.backends import GGUF_BACKEND, HF_BACKEND
from specchat.engine.errors import ModelError
from specchat.engine.formats import by_quant
from specchat.engine.formats.activations import HeldFormats, Rounding, rounding_of
from specchat.engine.formats.gguf import Gguf
from specchat.engine.formats.mxfp4 import Mxfp4
from specchat.engine.loading import drafting, load
from specchat.engine.memory.devices import Machine, place
from specchat.engine.memory.need import Model, need
from specchat.engine.protocol.options import Limits, Speculation
from specchat.engine.protocol.pair import Activations, ModelSource, PairSpec, Quant, QuantisedHead
from specchat.engine.reference.decoder import ReferenceDecoder
from specchat.engine.runners.host import host_model
from specchat.engine.weights.checkpoint import Checkpoint
from specchat.models.about import about_folder
from specchat.models.fit import fit
from specchat.models.machine import FreeMemory
from tests.engine.packed import packed
from tests.engine.test_lossless import SAMPLINGS, finished, reply
from tests.engine.test_packed import INT4, SHAPE
from tests.engine.tiny import FAMILIES, checkpoint, on_cpu

SOURCE = ModelSource(path="m", device="cpu")
PAIR = PairSpec("p", "P", SOURCE, ModelSource(path="d"))
DENSE = HeldFormats(None, None, ("lm_head", 256))


def held(quant: Quant | None) -> HeldFormats:
    return replace(DENSE, quant=quant, stored=by_quant(quant) if quant in ("int4", "gguf") else None)


@pytest.mark.parametrize(
    ("quant", "target", "draft"),
    [
        (None, "float32", "float32"),
        ("nf4", "float32", "float32"),
        ("fp4", "float32", "float32"),
        ("int4", "float32", "int8"),
        ("int8", "float32", "int8"),
        ("gguf", "int8", "int8"),
    ],
)
def test_defaults_follow_the_weights(quant: Quant | None, target: str, draft: str) -> None:
    assert rounding_of(PAIR, PAIR.target, held(quant)) == Rounding(target)  # type: ignore[arg-type]
    assert rounding_of(PAIR, PAIR.target, held(quant), drafts=True) == Rounding(draft)  # type: ignore[arg-type]
    on_gpu = replace(held(quant), on_cpu=False)
    for drafts in (False, True):
        assert rounding_of(PAIR, PAIR.target, on_gpu, drafts) == Rounding("float32")


def test_experts_alone_in_whole_numbers_count() -> None:
    assert rounding_of(PAIR, SOURCE, replace(DENSE, stored=Mxfp4()), drafts=True).activations == "int8"
    assert rounding_of(PAIR, replace(SOURCE, activations="int8"), replace(DENSE, stored=Mxfp4())).activations == "int8"


def test_what_is_asked_counts_more_and_the_model_s_own_most() -> None:
    asked = replace(PAIR, activations="int8")
    assert rounding_of(asked, SOURCE, held("int4")).activations == "int8"
    assert rounding_of(asked, replace(SOURCE, activations="float32"), held("int4")).activations == "float32"
    assert rounding_of(PAIR, replace(SOURCE, activations="float32"), held("gguf")).activations == "float32"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            held("nf4"),
            r'^m: activations = "int8" is for matrices of whole numbers .* has none\. Leave activations out\.$',
        ),
        (DENSE, "and this model has none"),
        (
            replace(held("int4"), on_cpu=False),
            r'is of a processor, and the GPU runs this model\. Say device = "cpu", or leave activations out',
        ),
    ],
)
def test_a_model_that_cannot_have_it_is_refused_but_for_a_pair_s_draft(made: HeldFormats, words: str) -> None:
    own, of_pair = replace(SOURCE, activations="int8"), replace(PAIR, activations="int8")
    for pair, source, drafts in ((PAIR, own, False), (PAIR, own, True), (of_pair, SOURCE, False)):
        with pytest.raises(ModelError, match=words):
            rounding_of(pair, source, made, drafts)  # type: ignore[arg-type]
    assert rounding_of(of_pair, SOURCE, made, drafts=True) == Rounding()


@pytest.mark.parametrize(
    ("made", "head", "forms"),
    [
        (DENSE, None, ("float32", "bfloat16")),
        (DENSE, "int8", ("float32", "int8", "bfloat16")),
        (held("nf4"), None, ("float32", "bfloat16")),
        (held("int4"), None, ("float32", "int8", "bfloat16")),
        (held("int4"), "int8", ("float32", "int8")),
        (replace(DENSE, quant="gguf", stored=Gguf({"lm_head": "Q6_K"})), None, ("float32", "int8")),
        (replace(DENSE, quant="gguf", stored=Gguf({"lm_head": "BF16"})), None, ("float32", "int8", "bfloat16")),
        (replace(DENSE, on_cpu=False), None, ("float32",)),
    ],
)
def test_forms_of_rows_follow_the_weights(
    made: HeldFormats, head: QuantisedHead | None, forms: tuple[Activations, ...]
) -> None:
    assert made.forms(head) == forms
    for form in ("int8", "bfloat16"):
        source = replace(SOURCE, activations=form, head=head)
        if form in forms:
            assert rounding_of(PAIR, source, made) == Rounding(form, head)
        elif made.on_cpu:
            with pytest.raises(ModelError, match=rf'activations = "{form}" is for .* has none\. Leave activations out'):
                rounding_of(PAIR, source, made)


def test_a_head_is_rounded_where_it_is_dense() -> None:
    own, of_pair = replace(SOURCE, head="int8"), replace(PAIR, head="int8")
    stored = HeldFormats(Gguf({"lm_head": "Q6_K"}), "gguf", ("lm_head", 256))
    assert rounding_of(of_pair, SOURCE, DENSE) == Rounding("float32", "int8")
    assert rounding_of(of_pair, SOURCE, DENSE, drafts=True) == Rounding("int8", "int8")
    assert rounding_of(replace(of_pair, activations="int8"), SOURCE, DENSE) == Rounding("int8", "int8")
    assert rounding_of(of_pair, SOURCE, replace(stored, stored=Gguf({"lm_head": "F16"}))).head == "int8"
    with pytest.raises(ModelError, match=r'head = "int8" is for a dense head, and this file .* Leave head out\.'):
        rounding_of(PAIR, own, stored)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="of a processor"):
        rounding_of(PAIR, own, replace(DENSE, on_cpu=False))  # type: ignore[arg-type]
    assert rounding_of(of_pair, SOURCE, stored, drafts=True) == Rounding("int8")


@pytest.mark.parametrize("backend", [HF_BACKEND, GGUF_BACKEND])
@pytest.mark.parametrize("key", ["activations", "head"])
def test_other_decoders_refuse_them(backend: str, key: str, tmp_path: Path) -> None:
    pair = PairSpec("p", "P", on_cpu(tmp_path), backend=backend)
    of_pair, own = replace(pair, **{key: "int8"}), replace(pair, target=replace(pair.target, **{key: "int8"}))  # type: ignore[arg-type]
    for one in (of_pair, own):
        with pytest.raises(ModelError, match=f'p: {key} = "int8" is of specchat\'s own decoder, but backend'):
            load(one, lambda _: None)
        found = fit(Pair(one), None, None, FreeMemory(None, None))
        assert (found.verdict, found.words[: len(key)]) == ("no", key)


def test_a_loaded_pair_says_what_it_rounds(tmp_path: Path) -> None:
    folder, _ = packed(tmp_path, *INT4["compressed-tensors, 32"], **SHAPE)
    plain = load(PairSpec("p", "P", on_cpu(folder)), lambda _: None).info.notes.exactness
    assert "8 bits" not in plain
    asked = PairSpec("p", "P", on_cpu(folder), activations="int8", head="int8")
    words = rf"{plain}(, whole numbers by [A-Za-z0-9 -]+)?; activations and the head in 8 bits"
    assert re.fullmatch(words, load(asked, lambda _: None).info.notes.exactness)


def test_a_draft_for_another_program_s_target_has_a_draft_s_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Checkpoint] = []
    monkeypatch.setattr(drafting, "host_model", lambda checkpoint, *_: found.append(checkpoint))
    stored, dense = packed(tmp_path, *INT4["awq"], **SHAPE)
    for folder in (stored, dense):
        drafting.host_draft(PAIR, on_cpu(folder), Checkpoint.open(folder), 64)
    assert [one.activations for one in found] == ["int8", "float32"]


def test_strategies_write_what_plain_writes_with_both(tmp_path: Path) -> None:
    stored, _ = packed(tmp_path, *INT4["awq"], **SHAPE)
    session = load(PairSpec("p", "P", on_cpu(stored), on_cpu(stored), activations="int8", head="int8"), lambda _: None)
    for sampling in SAMPLINGS.values():
        plain, *others = (
            finished(reply(session, "abcab", sampling, Limits(24), Speculation.of(name))).token_ids
            for name in ("plain", "draft", "draft-tree", "lookup", "early-exit")
        )
        assert plain
        assert all(other == plain for other in others)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("tied", [True, False])
def test_dense_weights_become_bfloat16_with_their_rows(dtype: str, tied: bool, tmp_path: Path) -> None:
    more = {"tie_word_embeddings": tied, "hidden_size": 128, "num_hidden_layers": 1, "dtype": dtype}
    folder = checkpoint(tmp_path / "m", **FAMILIES["llama"] | more)
    file = folder / "model.safetensors"
    save_file({name: one.to(getattr(torch, dtype)) for name, one in load_file(file).items()}, file)
    found = replace(Checkpoint.open(folder), activations="bfloat16")
    compiled, reference = host_model(found, 64), ReferenceDecoder(found, 64)
    tokens = list(range(20))
    expected = reference.logits(reference.forward(tokens, 0))
    whole = host_model(replace(found, activations="float32"), 64)
    far = (whole.logits(whole.forward(tokens, 0)) - expected).abs().mean()
    near = (compiled.logits(compiled.forward(tokens, 0)) - expected).abs().mean()
    # Some values are rounded to the next number.
    assert near < far / 2
    planned = place(
        PairSpec("p", "P", on_cpu(folder), activations="bfloat16"), found, None, 64, Machine("no GPU", None), 1
    ).plan.need("cpu")
    assert planned.weights + planned.cache == pytest.approx(compiled.memory(), rel=0.01)


def test_strategies_write_what_plain_writes_in_bfloat16(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    session = load(PairSpec("p", "P", on_cpu(folder), on_cpu(folder), activations="bfloat16"), lambda _: None)
    words = r"row-invariant by construction, bfloat16 by [A-Za-z0-9 -]+; activations and dense weights in bfloat16"
    assert re.fullmatch(words, session.info.notes.exactness)
    for sampling in SAMPLINGS.values():
        plain, *others = (
            finished(reply(session, "abcab", sampling, Limits(24), Speculation.of(name))).token_ids
            for name in ("plain", "draft", "draft-tree", "lookup", "early-exit")
        )
        assert plain
        assert all(other == plain for other in others)


def test_lists_of_models_refuse_what_loading_refuses(tmp_path: Path) -> None:
    about = about_folder(checkpoint(tmp_path / "m"), "m")
    pair = Pair(PairSpec("p", "P", on_cpu(about.place), activations="int8"))
    found = fit(pair, about, None, FreeMemory(None, None, threads=1))
    assert found.verdict == "no"
    assert 'activations = "int8" is for matrices of whole numbers' in found.words
    with pytest.raises(ModelError, match="for matrices of whole numbers"):
        load(pair.spec, lambda _: None)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("drafts", [None, tuple(range(100))])
@pytest.mark.parametrize("threads", [0, 1])
def test_plans_count_a_head_in_8_bits(tied: bool, drafts: tuple[int, ...] | None, threads: int, tmp_path: Path) -> None:
    more = {"tie_word_embeddings": tied, "hidden_size": 128, "num_hidden_layers": 1}
    folder = checkpoint(tmp_path / "m", **FAMILIES["llama"] | more)
    found = replace(Checkpoint.open(folder), drafts=drafts)
    made = []
    for head in (None, "int8"):
        pair = PairSpec("p", "P", on_cpu(folder), head=head)  # type: ignore[arg-type]
        planned = place(pair, found, None, 64, Machine("no GPU", None), threads).plan.need("cpu")
        made.append(planned)
        if threads:
            held_bytes = host_model(replace(found, head=head), 64).memory()  # type: ignore[arg-type]
            assert planned.weights + planned.cache == pytest.approx(held_bytes, rel=0.01)
    assert made[0].weights != made[1].weights


def test_plans_count_the_head_of_a_file_that_names_its_layouts(tmp_path: Path) -> None:
    config = Checkpoint.open(checkpoint(tmp_path / "m")).config
    dense, file = (Model(config, "cpu", stored=one, half=True, int8_head=True) for one in (None, Gguf({})))
    assert need(file, 64).weights == need(dense, 64).weights != need(replace(file, int8_head=False), 64).weights
