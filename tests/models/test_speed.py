"""Estimated speeds: bytes of a step by files and by names, and drafting by the cost model."""

from pathlib import Path

import pytest

from specchat.config.catalog import Pair, Requires, load_catalog
from specchat.config.paths import shipped
from specchat.engine.protocol.pair import ModelSource, PairSpec
from specchat.models.about import about_folder
from specchat.models.speed import SpeedEstimate, estimate, step_bytes
from tests.engine.tiny import checkpoint


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ModelSource(repo="Qwen/Qwen3-8B"), 8e9 * 2),
        (ModelSource(repo="Qwen/Qwen3-0.6B", quant="int8"), 0.6e9),
        (ModelSource(repo="Qwen/Qwen3-4B", quant="nf4"), 4e9 * 5 / 8),
        (ModelSource(repo="google/gemma-3-270m-it"), 270e6 * 2),
        (ModelSource(repo="Qwen/Qwen3-Coder-30B-A3B-Instruct", quant="nf4"), 3e9 * 5 / 8),
        (ModelSource(repo="a/Llama-3.2-1B-GGUF", file="Llama-3.2-1B-Q4_K_M.gguf"), 1e9 * 4.75 / 8),
        (ModelSource(repo="a/gemma-4-E4B-it-GGUF", file="gemma-4-E4B-it-Q8_0.gguf"), 4e9 * 8.75 / 8),
        (ModelSource(repo="a/model-of-no-size"), None),
        (ModelSource(path="/somewhere/Qwen3-8B"), None),
    ],
)
def test_names_tell_the_bytes_of_a_step(source: ModelSource, expected: float | None) -> None:
    assert step_bytes(source, None) == (None if expected is None else pytest.approx(expected))


def test_files_tell_them_better(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "Tiny-70B", tie_word_embeddings=False)
    about = about_folder(folder, "tiny")
    source = ModelSource(path=str(folder))
    found = step_bytes(source, about)
    assert found is not None
    embedding = about.config.vocab * about.config.hidden if about.config else 0
    # Of float32, and a step reads one row of the table.
    assert found == pytest.approx(about.size - 4 * embedding, rel=0.02)


def test_drafting_follows_the_cost_model() -> None:
    pair = Pair(PairSpec("p", "P", ModelSource(repo="a/b-8B"), ModelSource(repo="a/b-0.8B")))
    alone = Pair(PairSpec("p", "P", ModelSource(repo="a/b-8B")))
    assert estimate(alone, None, None, "cuda", 160e9) == SpeedEstimate(pytest.approx(10.0), None)
    found = estimate(pair, None, None, "cuda", 160e9)
    assert found is not None
    # Best with four tokens: (1 - 0.7^5) / 0.3 over 4 * 0.1 + 1.08.
    assert (found.plain, found.drafted) == (pytest.approx(10.0), pytest.approx(10 * 2.773 / 1.48, rel=0.01))
    on_cpu = estimate(pair, None, None, "cpu", 160e9)
    assert on_cpu is not None
    assert on_cpu.drafted is not None
    assert 10 < on_cpu.drafted < (found.drafted or 0)
    useless = Pair(PairSpec("p", "P", ModelSource(repo="a/b-8B"), ModelSource(repo="a/c-8B")))
    assert estimate(useless, None, None, "cpu", 160e9) == SpeedEstimate(pytest.approx(10.0), pytest.approx(10.0))
    stated = Pair(PairSpec("p", "P", ModelSource(repo="a/b-8B")), requires=Requires(step_gib=1.0))
    assert estimate(stated, None, None, "cpu", 1 << 30) == SpeedEstimate(pytest.approx(1.0), None)
    assert estimate(Pair(PairSpec("p", "P", ModelSource(repo="a/b"))), None, None, "cpu", 1e9) is None


def test_every_shipped_pair_has_an_estimate() -> None:
    pairs = load_catalog(shipped("models.toml")).pairs
    speeds = {pair.id: estimate(pair, None, None, "cpu", 20e9) for pair in pairs if pair.spec.target.repo}
    assert [id_ for id_, speed in speeds.items() if speed is None] == []
    assert all(0.2 < speed.plain < 60 for speed in speeds.values() if speed)
