"""What people download runs in the native decoder: counted by family, and the most downloaded at their own sizes."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from measure import downloads
from measure.downloads import DOWNLOADS, share
from measure.families import SIZES
from measure.families import config as published
from specchat.bench.published import PUBLISHED, shaped
from specchat.engine import families
from specchat.engine.memory import gpu_need, vectors
from specchat.engine.weights.config import ModelConfig

FIELD = Path(__file__).parents[2] / "shared" / "reference" / "field.md"
WANTED = 0.8
"""Part of the downloads that runs natively at least."""
MOST = 10

OTHERS: Mapping[str, ModelConfig] = {
    "Qwen3-0.6B": PUBLISHED["qwen3-8b"].draft,
    "Qwen3-8B": PUBLISHED["qwen3-8b"].target,
    "Llama-3.1-8B": PUBLISHED["llama-3.1-8b"].target,
    "Qwen2.5-7B": shaped("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, 32768, 1e6, tied=False),
}
"""Sizes beside those of `measure.families`."""


def test_most_downloads_are_of_families_that_run_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WANTED <= share() <= 1
    known = families.known()
    monkeypatch.setattr(downloads.families, "known", lambda: {k: v for k, v in known.items() if k != "qwen3"})
    assert share() == pytest.approx(1 - (15.4 + 6.1 + 3.1) / sum(millions for _, millions in DOWNLOADS.values()))


@pytest.mark.parametrize("name", sorted(DOWNLOADS, key=lambda one: -DOWNLOADS[one][1])[:MOST])
def test_the_most_downloaded_run_on_processors_and_gpus(name: str) -> None:
    config = OTHERS[name] if name in OTHERS else published(name)
    kind, _ = DOWNLOADS[name]
    assert kind == (SIZES[name]["model_type"] if name in SIZES else config.family)
    assert not vectors.unsupported(config.recipe)
    assert not gpu_need.unsupported(config)


@pytest.mark.skipif(not FIELD.exists(), reason="needs the notes on the field beside the checkout")
def test_the_table_is_that_of_the_field() -> None:
    """As it was read in autumn 2026, in millions and thousands of downloads."""
    page = FIELD.read_text("utf-8").partition("## 1. ")[2].partition("\n|")[0]
    figures = [float(number) / (1000 if unit == "k" else 1) for number, unit in re.findall(r"([\d.]+)([Mk])\b", page)]
    for name, (_, millions) in DOWNLOADS.items():
        assert min(abs(figure - millions) for figure in figures) <= 0.05, name
