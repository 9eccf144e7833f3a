"""The shipped models.toml: it can be loaded, and its needs follow from the shapes in docs/models-toml.md."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from specchat.config.catalog import Pair, load_catalog
from specchat.config.paths import shipped

CATALOG = load_catalog(None)
DOCS = Path(__file__).parents[2] / "docs" / "models-toml.md"
GIB = 1 << 30
OVERHEAD_GIB = 0.8
NF4_GPU_BYTES = 0.516
NF4_CPU_BYTES = 0.5625


@dataclass(frozen=True)
class Shape:
    stated_parameters: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    tied: bool
    extra: str

    @property
    def parameters(self) -> int:
        layer = self.hidden * self.head_size * 2 * (self.heads + self.kv_heads) + 3 * self.hidden * self.ffn
        layer += 2 * self.hidden
        layer += {"q/k norm": 2, "q/k/v bias": self.heads + 2 * self.kv_heads, "-": 0}[self.extra] * self.head_size
        return self.layers * layer + self.hidden + self.embedding * (1 if self.tied else 2)

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    def cache(self, context: int, size: int) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * context * size

    def on_gpu(self, context: int, quantised: bool) -> float:
        kept = self.embedding * (1 if self.tied else 2)
        weights = (self.parameters - kept) * (NF4_GPU_BYTES if quantised else 2) + kept * 2
        return weights + self.cache(context, 2)

    def drafting_on_gpu(self, context: int) -> float:
        """In int8 with its head, beside an embedding of 16 bits."""
        layers = self.parameters - self.embedding * (1 if self.tied else 2)
        return layers + 3 * self.embedding + self.cache(context, 2)

    def on_cpu(self, context: int, quantised: bool) -> float:
        layers = self.parameters - self.embedding * (1 if self.tied else 2)
        weights = layers * (NF4_CPU_BYTES if quantised else 2) + self.embedding * (4 + 2)
        return weights + self.cache(context, 4)


def _shapes() -> dict[str, Shape]:
    shapes = {}
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 11 and "/" in cells[0]:
            stated, hidden, layers, heads, kv_heads, head_size, ffn, vocabulary = (
                int(cell.replace(",", "")) for cell in cells[1:9]
            )
            shapes[cells[0]] = Shape(
                stated, hidden, layers, heads, kv_heads, head_size, ffn, vocabulary, cells[9] == "yes", cells[10]
            )
    return shapes


SHAPES = _shapes()
REAL = [pair for pair in CATALOG.pairs if pair.id != "demo"]


def _tenth_up(size: float) -> float:
    return math.ceil(size * 10) / 10


@pytest.mark.parametrize("model", SHAPES)
def test_stated_parameter_counts_follow_from_the_shapes(model: str) -> None:
    assert SHAPES[model].parameters == SHAPES[model].stated_parameters


@pytest.mark.parametrize("pair", REAL, ids=lambda pair: pair.id)
def test_needs_follow_from_the_shapes(pair: Pair) -> None:
    assert pair.spec.draft is not None
    assert pair.spec.context is not None
    target, draft = (SHAPES[source.repo or ""] for source in (pair.spec.target, pair.spec.draft))
    quantised, context = pair.spec.target.quant == "nf4", pair.spec.context
    gpu = (target.on_gpu(context, quantised) + draft.drafting_on_gpu(context)) / GIB + OVERHEAD_GIB
    cpu = (target.on_cpu(context, quantised) + draft.on_cpu(context, False)) / GIB + OVERHEAD_GIB
    assert pair.requires.vram_gib == _tenth_up(gpu)
    assert pair.requires.ram_gib == _tenth_up(cpu)
    assert pair.requires.disk_gib == _tenth_up(2 * (target.parameters + draft.parameters) / GIB)


def test_the_demo_pair_comes_first_and_is_the_default() -> None:
    assert CATALOG.pairs[0].id == CATALOG.default == "demo"
    assert CATALOG.pairs[0].unsupported == ""
    assert CATALOG.pairs[0].spec.target.path is not None
    assert CATALOG.pairs[0].spec.target.path.endswith("demo/target")


@pytest.mark.parametrize(("card", "least"), [(8, 4), (12, 3), (16, 2), (24, 2)])
def test_there_are_pairs_for_every_card(card: int, least: int) -> None:
    smaller = {8: 0, 12: 8, 16: 12, 24: 16}[card]
    fitting = [pair for pair in REAL if smaller * 0.95 < (pair.requires.vram_gib or 0) < card * 0.95]
    assert len(fitting) >= least


def test_every_pair_can_be_chosen() -> None:
    assert {pair.unsupported for pair in CATALOG.pairs} == {""}
    quants = {pair.id: pair.spec.target.quant for pair in REAL}
    assert (quants["qwen3-8b"], quants["qwen3-8b-bf16"]) == ("nf4", None)


def test_the_shipped_file_is_the_one_in_the_checkout() -> None:
    assert shipped("models.toml") == Path(__file__).parents[2] / "models.toml"
