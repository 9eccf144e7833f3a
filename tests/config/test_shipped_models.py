"""The shipped models.toml: it can be loaded, and its needs follow from the shapes in docs/models-toml.md."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specchat.config.catalog import PROGRAM_GIB, Pair, load_catalog
from specchat.config.paths import shipped
from specchat.engine.protocol.pair import DEFAULT_CONTEXT
from specchat.models.speed import estimate

CATALOG = load_catalog(None)
DOCS = Path(__file__).parents[2] / "docs" / "models-toml.md"
GIB = 1 << 30
OVERHEAD_GIB = PROGRAM_GIB
NF4_GPU_BYTES = 0.516
NF4_CPU_BYTES = 0.5625
MXFP4_BYTES = 0.53125
AWQ_BYTES = 4.625 / 8
AWQ_STORED_BYTES = (4 + (16 + 4) / 128) / 8


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
        kind = self.extra.partition(",")[0]
        sizes = {"q/k norm": 2, "norms after": 2, "q/k/v bias": self.heads + 2 * self.kv_heads, "-": 0}
        layer += sizes[kind] * self.head_size + (2 * self.hidden if kind == "norms after" else 0)
        return self.layers * layer + self.hidden + self.embedding * (1 if self.tied else 2)

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def of_images(self) -> int:
        """Parameters that are downloaded and not loaded."""
        found = re.search(r"([\d,]+) of images", self.extra)
        return _number(found[1]) if found else 0

    @property
    def windows(self) -> tuple[int, int]:
        """Number of layers with a window, and its positions."""
        found = re.search(r"(\d+) windows of (\d+)", self.extra)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    def cache(self, positions: int, size: int) -> int:
        """Bytes of so many positions of all layers together."""
        return 2 * positions * self.kv_heads * self.head_size * size

    def positions(self, context: int, beside: int) -> int:
        """Of all layers together, with so many `beside` each window."""
        few, window = self.windows
        return (self.layers - few) * context + few * min(context, window + beside)

    def on_gpu(self, context: int, quantised: bool) -> float:
        kept = self.embedding * (1 if self.tied else 2)
        weights = (self.parameters - kept) * (NF4_GPU_BYTES if quantised else 2) + self.embedding * 2
        return weights + self.cache(self.positions(context, 640), 2)

    def in_awq(self, context: int) -> tuple[float, float, float]:
        """Bytes on a GPU, on the CPU and on the disk."""
        kept = self.embedding * (1 if self.tied else 2)
        layers, dense = self.parameters - kept, 2 * kept
        gpu, cpu = self.cache(self.positions(context, 640), 2), self.cache(self.positions(context, 1024), 4)
        held = layers * AWQ_BYTES + dense
        return held - 2 * (kept - self.embedding) + gpu, held + cpu, layers * AWQ_STORED_BYTES + dense

    def drafting_on_gpu(self, context: int) -> float:
        """In int8 with its head; its embedding lies in main memory."""
        layers = self.parameters - self.embedding * (1 if self.tied else 2)
        return layers + self.embedding + self.cache(self.positions(context, 640), 2)

    def on_cpu(self, context: int, quantised: bool) -> float:
        kept = self.embedding * (1 if self.tied else 2)
        weights = (self.parameters - kept) * (NF4_CPU_BYTES if quantised else 2) + kept * 2
        return weights + self.cache(self.positions(context, 1024), 4)


@dataclass(frozen=True)
class Recurrent:
    """A model with recurrent layers, whose states take as many bytes whatever the context, or with experts."""

    parameters: int
    kept: int
    in_main: int
    cached: int
    states_on_gpu: int
    states_on_cpu: int
    beside: int

    def on_gpu(self, context: int, quantised: bool) -> float:
        layers = self.parameters - self.kept
        weights = layers * (NF4_GPU_BYTES if quantised else 2) + (self.kept - self.in_main) * 2
        return weights + self.cached * context * 2 + self.states_on_gpu

    def on_cpu(self, context: int, quantised: bool) -> float:
        layers = self.parameters - self.kept
        weights = layers * (NF4_CPU_BYTES if quantised else 2) + self.kept * 2
        return weights + self.cached * context * 4 + self.states_on_cpu


@dataclass(frozen=True)
class InMxfp4:
    """A model whose experts are published in MXFP4 and stay so."""

    parameters: int
    of_experts: int
    in_main: int
    cached: int
    windows_on_gpu: int
    windows_on_cpu: int
    bytes: int

    def held(self, context: int, bytes_a_weight: float, bytes_a_value: int, windows: int) -> float:
        weights = 2 * (self.parameters - self.of_experts) + bytes_a_weight * self.of_experts
        return weights + self.cached * context * bytes_a_value + windows

    def on_gpu(self, context: int) -> float:
        return self.held(context, MXFP4_BYTES, 2, self.windows_on_gpu) - 2 * self.in_main


@dataclass(frozen=True)
class GgufFile:
    """`like` is the model with the same keys, values and states, or the number of values that a token has."""

    bytes: int
    in_memory: float
    like: str

    def on_gpu(self, context: int) -> float:
        return self.bytes * self.in_memory + self._cache(context, 2)

    def on_cpu(self, context: int) -> float:
        return self.bytes * self.in_memory + self._cache(context, 4)

    def _cache(self, context: int, size: int) -> float:
        gpu = size == 2
        if (shape := SHAPES.get(self.like)) is not None:
            return shape.cache(shape.positions(context, 640 if gpu else 1024), size)
        if (recurrent := RECURRENT.get(self.like)) is not None:
            states = recurrent.states_on_gpu if gpu else recurrent.states_on_cpu
            return recurrent.cached * context * size + states
        if (stored := IN_MXFP4.get(self.like)) is not None:
            return stored.cached * context * size + (stored.windows_on_gpu if gpu else stored.windows_on_cpu)
        return _number(self.like) * context * size


def _rows(columns: int) -> Iterator[list[str]]:
    """The rows about models of the tables with so many columns."""
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == columns and "/" in cells[0] and " " not in cells[0]:
            yield cells


def _number(cell: str) -> int:
    return int(cell.replace(",", ""))


def _shapes() -> dict[str, Shape]:
    return {cells[0]: Shape(*map(_number, cells[1:9]), tied=cells[9] == "yes", extra=cells[10]) for cells in _rows(11)}


SHAPES = _shapes()
RECURRENT = {cells[0]: Recurrent(*map(_number, cells[1:])) for cells in _rows(8)}
IN_MXFP4 = {cells[0]: InMxfp4(*map(_number, cells[1:8])) for cells in _rows(9)}
FILES = {cells[0]: GgufFile(_number(cells[1]), float(cells[2]), cells[3]) for cells in _rows(4)}
REAL = [pair for pair in CATALOG.pairs if pair.id != "demo"]


def _tenth_up(size: float) -> float:
    return math.ceil(size * 10) / 10


@pytest.mark.parametrize("model", SHAPES)
def test_stated_parameter_counts_follow_from_the_shapes(model: str) -> None:
    assert SHAPES[model].parameters == SHAPES[model].stated_parameters


def needs(pair: Mapping[str, Any]) -> tuple[float, float, float]:
    """GiB of GPU memory, main memory and disk that a `[[pair]]` takes: those of its models together."""
    context = DEFAULT_CONTEXT if pair["context"] == "auto" else pair["context"]
    parts = [_needs(pair["target"], context), *([_needs(pair["draft"], context, True)] if "draft" in pair else [])]
    gpu, cpu, disk = (sum(column) for column in zip(*parts, strict=True))
    return _tenth_up(gpu / GIB + OVERHEAD_GIB), _tenth_up(cpu / GIB + OVERHEAD_GIB), _tenth_up(disk / GIB)


def _needs(source: Mapping[str, Any], context: int, drafts: bool = False) -> tuple[float, float, float]:
    """The same of a model in bytes, by the formula of its format."""
    repo, quantised = source["repo"], source.get("quant") == "nf4"
    if "file" in source:
        file = FILES[f"{repo}/{source['file']}"]
        return file.on_gpu(context), file.on_cpu(context), file.bytes
    if repo in RECURRENT:
        model = RECURRENT[repo]
        return model.on_gpu(context, quantised), model.on_cpu(context, quantised), 2 * (model.parameters + model.beside)
    if repo in IN_MXFP4:
        stored = IN_MXFP4[repo]
        return stored.on_gpu(context), stored.held(context, MXFP4_BYTES, 4, stored.windows_on_cpu), stored.bytes
    shape = SHAPES[repo.removesuffix("-AWQ")]
    if repo.endswith("-AWQ"):
        return shape.in_awq(context)
    gpu = shape.drafting_on_gpu(context) if drafts else shape.on_gpu(context, quantised)
    return gpu, shape.on_cpu(context, quantised), 2 * (shape.parameters + shape.of_images)


DECLARED = [pair for pair in tomllib.loads(shipped("models.toml").read_text("utf-8"))["pair"] if pair["id"] != "demo"]


@pytest.mark.parametrize("pair", DECLARED, ids=lambda pair: pair["id"])
def test_needs_follow_from_the_shapes(pair: dict[str, Any]) -> None:
    stated = pair["requires"]
    assert (stated["vram_gib"], stated["ram_gib"], stated["disk_gib"]) == needs(pair)


@pytest.mark.parametrize("pair", [pair for pair in REAL if not pair.spec.draft], ids=lambda pair: pair.id)
def test_a_step_is_taken_to_read_hardly_more_than_the_files_hold(pair: Pair) -> None:
    speed = estimate(pair, None, None, "cuda", 1e12)
    assert speed is not None
    assert 1e12 / speed.plain < 1.05 * (pair.requires.disk_gib or 0) * GIB


def test_pairs_are_ordered_by_memory() -> None:
    sizes = [pair.requires.vram_gib or 0 for pair in REAL]
    assert sizes == sorted(sizes)


def test_all_run_by_the_decoder_here_unless_loading_finds_otherwise() -> None:
    assert {pair.spec.backend for pair in REAL} == {"native"}
    assert all(pair.licence for pair in REAL)


@pytest.mark.parametrize("pair", [pair for pair in REAL if pair.variant_of], ids=lambda pair: pair.id)
def test_a_variant_is_a_smaller_download_of_the_same_model(pair: Pair) -> None:
    other = CATALOG.find(pair.variant_of)
    assert not other.variant_of
    assert (pair.requires.disk_gib or 0) < (other.requires.disk_gib or 0)
    assert (pair.licence, pair.sampling) == (other.licence, other.sampling)


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
