"""What is claimed of rows at load: that they are alike bit for bit, or how far they are apart."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specchat.config.paths import demo_model
from specchat.engine.decoding import row_invariance
from specchat.engine.decoding.row_invariance import MOST_ROWS, SAFETY
from specchat.engine.errors import ModelError
from specchat.engine.llama_cpp import lone as proof_of_one
from specchat.engine.llama_cpp import proof
from specchat.engine.llama_cpp.context import GgufSettings
from specchat.engine.llama_cpp.export import Kind, export
from specchat.engine.llama_cpp.file import GgufFile
from specchat.engine.llama_cpp.model import GgufModel
from specchat.engine.llama_cpp.trial import try_file
from specchat.engine.model.passes import Skip
from specchat.engine.model.tree_layout import chain
from specchat.engine.weights.checkpoint import Checkpoint

pytestmark = pytest.mark.needs_llama


def opened(file: Path, context: int = 1024, cache: str = "f32", repack: bool = True) -> GgufModel:
    assert cache in ("f32", "f16")
    settings = GgufSettings(context, 1, "f32" if cache == "f32" else "f16", False)
    return GgufModel(GgufFile(file, 0, lambda _: None, repack), settings)


@pytest.fixture(scope="module")
def model(demo_files: tuple[Path, Path]) -> GgufModel:
    made = opened(demo_files[0])
    made.padding = proof.prove(made).padding
    return made


def text(length: int) -> list[int]:
    return [int(t) for t in torch.randint(6, 3000, (length,), generator=torch.Generator().manual_seed(3))]


def one_by_one(model: GgufModel, tokens: list[int], start: int) -> Tensor:
    return torch.stack([model.forward([t], start + i)[0].clone() for i, t in enumerate(tokens)])


@pytest.mark.cpu
@pytest.mark.parametrize("start", [0, 11, 300])
def test_rows_of_any_pass_are_those_of_one_row_alone(model: GgufModel, start: int) -> None:
    tokens = text(start + MOST_ROWS)
    model.write(tokens[:start] or tokens[:1], 0)
    alone = one_by_one(model, tokens[start:], start)
    for rows in range(1, MOST_ROWS + 1):
        assert torch.equal(model.forward(tokens[start : start + rows], start), alone[:rows]), rows


@pytest.mark.cpu
def test_entries_of_the_cache_are_the_same_however_they_were_written(model: GgufModel) -> None:
    tokens = text(200)
    model.write(tokens, 0)
    whole = model.next_logits(7, 200)
    one_by_one(model, tokens, 0)
    assert torch.equal(model.next_logits(7, 200), whole)
    for at in range(0, 200, 9):
        model.forward([*tokens[at : min(at + 9, 200)], 5, 6], at)  # as if the last two were refused
    assert torch.equal(model.next_logits(7, 200), whole)


@pytest.mark.cpu
@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_what_is_claimed_of_other_kinds_holds(tmp_path: Path, folders: tuple[Path, Path], kind: str) -> None:
    export(Checkpoint.open(folders[0]), tmp_path / "x.gguf", kind)  # type: ignore[arg-type]
    made = opened(tmp_path / "x.gguf", 256, "f16", try_file(tmp_path / "x.gguf"))
    found = proof.prove(made)
    made.padding = found.padding
    tokens = text(40)
    bounded = [t % made.vocab for t in tokens]
    alone = one_by_one(made, bounded, 0)
    for rows in (1, 2, 3, 5, 8, 13, 16):
        rest = made.forward(bounded[20 : 20 + rows], 20)
        assert float((rest - alone[20 : 20 + rows]).abs().max()) <= found.error
        made.write(bounded[:20], 0)


def test_a_pass_does_not_read_what_was_padded(model: GgufModel) -> None:
    kept = model.padding
    tokens = text(30)
    try:
        model.padding = tuple(range(MOST_ROWS + 1))
        plain = [model.forward(tokens[:2], 0).clone(), model.forward(tokens[2:4], 2).clone()]
        model.padding = (0, 8, 8, 8, 8, *range(5, MOST_ROWS + 1))
        padded = [model.forward(tokens[:2], 0).clone(), model.forward(tokens[2:4], 2).clone()]
    finally:
        model.padding = kept
    assert all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(plain, padded, strict=True))


def test_a_context_is_filled_to_its_last_token(files: tuple[Path, Path]) -> None:
    small = opened(files[0], 256)  # what llama.cpp rounds a cache up to
    small.padding = (0, 4, 4, 4, *range(4, MOST_ROWS + 1))
    small.write([1] * 255, 0)
    assert small.forward([2], 255).shape == (1, small.vocab)
    with pytest.raises(ValueError, match="2 tokens do not fit after 255 of 256"):
        small.forward([2, 3], 255)


def test_a_context_that_is_too_short_to_compare_in_is_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(ModelError, match=r"context = 32 is too short\. Set context = 61 or more .* models\.toml"):
        proof.prove(opened(files[0], 32))


def test_a_file_that_states_too_short_a_context_is_not_to_be_set(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    short = shutil.copytree(folders[0], tmp_path / "short")
    config = short / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 32}))
    export(Checkpoint.open(short), tmp_path / "short.gguf", "f16")
    with pytest.raises(ModelError, match=r"states a context of 32, and a chat needs 61 tokens\."):
        proof.prove(opened(tmp_path / "short.gguf"))


def test_trees_and_skipped_layers_are_refused(model: GgufModel) -> None:
    for call in (
        lambda: model.forward([1], 0, Skip(frozenset({1}))),
        lambda: model.forward([1, 2], 0, layout=chain(2)),
        lambda: model.keep([0], 0),
        lambda: model.likeliest([1], 0, Skip()),
    ):
        with pytest.raises(ValueError, match=r"llama\.cpp"):
            call()


def lone(model: GgufModel, tokens: list[int], start: int) -> Tensor:
    """Logits of rows that went alone."""
    model.alone = True
    made = one_by_one(model, tokens, start)
    model.alone = False
    return made


@pytest.mark.cpu
def test_what_lone_rows_read_is_rough_until_it_is_read_again(model: GgufModel) -> None:
    tokens = text(60)
    model.write(tokens[:20], 0)
    exact = model.forward(tokens[20:36], 20).clone()
    assert not model.rough
    lone(model, tokens[20:30], 20)
    assert model.rough
    model.forward(tokens[30:33], 30)
    assert model.rough
    assert torch.equal(model.exact(tokens[33:36], 33), exact[13:])
    assert not model.rough
    lone(model, tokens[20:30], 20)
    assert torch.equal(model.next_logits(tokens[25], 25), exact[5])
    lone(model, tokens[20:30], 20)
    model.forward(tokens[20:22], 20)
    assert not model.rough
    lone(model, tokens[20:30], 20)
    model.write(tokens[30:32], 30)
    assert not model.rough
    assert torch.equal(model.forward(tokens[32:36], 32), exact[12:])


def timed(monkeypatch: pytest.MonkeyPatch, one: float, padded: float) -> None:
    monkeypatch.setattr(proof_of_one, "_milliseconds", lambda *_: (one, padded))


@pytest.mark.cpu
def test_one_row_goes_alone_where_that_is_worth_it(model: GgufModel, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = model.padding
    try:
        timed(monkeypatch, 1.0, 1.05)
        assert not proof.prove(model).alone
        timed(monkeypatch, 1.0, 3.0)
        found = proof.prove(model)
        model.padding = found.padding
        tokens = text(80)
        model.write(tokens[:30], 0)
        exact = torch.cat([model.forward(tokens[at : at + 10], at).clone() for at in range(30, 80, 10)])
        off = float((lone(model, tokens[30:], 30) - exact).abs().max())
    finally:
        model.padding = kept
    if found.padding[1] == 1:
        pytest.skip("one row is as several are on this processor")
    assert found.alone
    assert 0 < off <= found.error < 1e-3
    assert "passes of 2 to 16 rows compared bit for bit; one row goes alone, and choices closer" in found.exactness


def test_one_row_is_padded_where_many_choices_would_be_close(model: GgufModel, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = model.padding
    try:
        model.padding = (0, 2, *range(2, MOST_ROWS + 1))
        timed(monkeypatch, 1.0, 3.0)
        assert proof_of_one.lone_error(model, 0.01) == pytest.approx(0.04, rel=1e-3)
        assert proof_of_one.lone_error(model, 100.0) is None
    finally:
        model.padding = kept


@pytest.mark.cpu
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_one_row_of_rounded_products_is_padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """Of several hundred rows one may differ, much: what was not seen says nothing."""
    export(Checkpoint.open(demo_model("target")), tmp_path / "x.gguf", kind)
    timed(monkeypatch, 1.0, 3.0)
    repack = try_file(tmp_path / "x.gguf")
    for cache in ("f32", "f16"):
        found = proof.prove(opened(tmp_path / "x.gguf", cache=cache, repack=repack))
        assert (found.padding[1], found.error, found.alone) == (2, 0.0, False)


class Apart:
    """Rows of a pass of several are off by a little, as with kernels that depend on the number of rows."""

    def __init__(self, model: GgufModel, off: float) -> None:
        self.model = model
        self.off = off

    def forward(self, tokens: list[int], start: int, **_: object) -> Tensor:
        made = self.model.forward(tokens, start)
        if len(tokens) == 1:
            return made
        noise = torch.rand(made.shape, generator=torch.Generator().manual_seed(start + len(tokens)))
        return made + self.off * (2 * noise - 1)

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)


def test_rows_that_differ_are_measured_and_said(model: GgufModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_invariance, "BUDGET_S", 0.0)
    found = proof.prove(Apart(model, 0.01))  # type: ignore[arg-type]
    assert found.padding == tuple(range(MOST_ROWS + 1))
    assert 0.01 <= found.error / SAFETY <= 0.02 + 1e-3
    assert found.exactness.startswith("checked: choices closer than 0.0")


def test_slow_models_are_compared_at_few_counts_and_the_others_padded(
    model: GgufModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "SLOW_S", 0.0)
    monkeypatch.setattr(row_invariance, "BUDGET_S", 0.0)
    padding = proof.prove(model).padding
    assert padding[2:] == (2, 4, 4, 8, 8, 8, 8, *[16] * 8)
    assert padding[1] in (1, 2)
