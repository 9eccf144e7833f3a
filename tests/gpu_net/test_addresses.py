"""Where launches of large pairs read and write: within bounds, by numbers that 32 bits hold, no two programs alike."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from specchat.bench.published import PUBLISHED, Shapes, experts, shaped
from specchat.engine.device.executor import DeviceExecutor
from specchat.engine.device.graphs import current
from specchat.engine.kernels.attention import attend
from specchat.engine.kernels.gpu_shapes import attention_splits
from specchat.engine.kernels.keep import keep
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.workspace import workspace
from specchat.engine.weights.config import ModelConfig, parse_config
from tests.device.conftest import ON_GPU
from tests.gpu_net.addresses import Addresses, look
from tests.gpu_net.fake_torch import fake_torch
from tests.gpu_net.rivals import APART as TILES
from tests.gpu_net.rivals import Rivals
from tests.gpu_net.runtime import Launch
from tests.gpu_net.shapes import LAYERS, pair, prepared
from tests.gpu_net.worst import worst

pytestmark = pytest.mark.skipif(ON_GPU, reason="stands for a GPU where there is none")

THERE = torch.device("cuda", 0)
SEVENTY = shaped("llama", 8192, 28672, 80, 64, 8, 128, 128256, 131072, 5e5, tied=False)
"""Llama-3.1-70B."""


MANY = shaped("qwen3_moe", 5120, 12288, 92, 96, 8, 128, 151552, 131072, 1e6, False, **experts(160, 8, 1536))
"""Experts as those of GLM-4.5, of which a layer has 2.5e9 values of gates."""


def windowed(c: ModelConfig) -> ModelConfig:
    """Every other layer has a window, as five of six have it in Gemma 3."""
    layers = (replace(one, mixer=replace(one.mixer, window=i % 2 and 1024)) for i, one in enumerate(c.recipe.layers))
    return replace(c, recipe=replace(c.recipe, layers=tuple(layers)))


GEMMA = Shapes(
    "gemma",
    "Gemma 3 12B",
    "Gemma 3 1B",
    windowed(shaped("qwen3", 3840, 15360, 48, 16, 8, 256, 262208, 131072, 1e6, tied=True)),
    windowed(shaped("qwen3", 1152, 6912, 26, 4, 1, 256, 262208, 32768, 1e6, tied=True)),
)
SMALL_GEMMA = windowed(shaped("qwen3", 1152, 6912, 26, 4, 1, 256, 262144, 32768, 1e6, tied=True))


def with_inputs() -> ModelConfig:
    """Gemma 4 E4B, of whose layers those stay that differ: a window or none, entries of their own or of others."""
    more = {"num_kv_shared_layers": 18, "sliding_window": 512}
    whole = shaped("gemma4_text", 2560, 10240, 42, 8, 2, 256, 262144, 131072, 1e6, tied=True, **more)
    layers = whole.recipe.layers
    sharing = [replace(layers[i], mixer=replace(layers[i].attention, share=share)) for i, share in ((-2, 4), (-1, 5))]
    return replace(whole, recipe=replace(whole.recipe, layers=(*layers[:6], *sharing)))


def qwen35(hidden: int, intermediate: int, layers: int, value_heads: int, context: int) -> ModelConfig:
    """Qwen3.5 in these sizes."""
    shape = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers}
    heads = {"num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256}
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    linear = {"linear_num_value_heads": value_heads, "linear_num_key_heads": 16}
    rest = {"vocab_size": 248320, "max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_parameters": rope}
    given = shape | heads | linear | rest | {"hidden_act": "silu", "tie_word_embeddings": False}
    return parse_config(Path(), {"model_type": "qwen3_5_text"} | given)


QWEN35 = Shapes(
    "qwen3.5",
    "Qwen3.5-27B",
    "Qwen3.5-2B",
    qwen35(5120, 17408, 64, 48, 262144),
    qwen35(2048, 6144, 24, 16, 262144),
)
LARGE = {
    "recurrent layers at 65,536 tokens": (QWEN35, 65536),
    "8B at 8,192 tokens": (PUBLISHED["llama-3.1-8b"], 8192),
    "windows and heads of 256 at 32,768 tokens": (GEMMA, 32768),
    "experts": (PUBLISHED["qwen3-30b-a3b"], 8192),
    "experts of more values than 32 bits count": (
        Shapes("many", "355B", "0.6B", MANY, PUBLISHED["qwen3-8b"].draft),
        4096,
    ),
    "70B at 131,072 tokens": (Shapes("70b", "70B", "1B", SEVENTY, PUBLISHED["llama-3.1-8b"].draft), 131072),
}
OTHERS = (
    "experts",
    "8B at 8,192 tokens",
    "windows and heads of 256 at 32,768 tokens",
    "70B at 131,072 tokens",
)
"""Whose kernels another pair of LARGE has, at as large addresses."""


@pytest.mark.slow
def test_inputs_of_layers_stay_in_bounds() -> None:
    """Whose table has more values than 32 bits count."""
    shapes = Shapes("e4b", "Gemma 4 E4B", "Gemma 3 1B", with_inputs(), SMALL_GEMMA.cut(1))
    with fake_torch() as fake:
        prepared(pair(shapes, 8192, THERE))
        assert not fake.runtime.problems
    assert {"_make_inputs", "_gate_input"} <= {launch.name for launch in fake.launches}
    found = look(fake.launches, worst)
    assert not found.faults
    assert found.looked_at > 300


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow if one in OTHERS else ()) for one in LARGE])
def test_launches_of_a_large_pair_stay_in_bounds_and_their_programs_apart(name: str) -> None:
    shapes, context = LARGE[name]
    with fake_torch() as fake:
        runner = prepared(pair(shapes.cut(LAYERS), context, THERE))
        # The one kernel that sees the caches of all layers.
        executor = runner.executor
        assert isinstance(executor, DeviceExecutor)
        target = executor.drafts._models["target"]
        for part in target.caches.by_shape.values():
            cache = torch.empty(shapes.target.layers, *part.shape[2:], dtype=torch.bfloat16, device=THERE)
            with current(THERE):
                keep(cache, cache, executor._state, None)
        assert not fake.runtime.problems
    found = look(fake.launches, worst, Rivals)
    assert not found.faults
    assert found.looked_at > 300
    # To keep tiles apart, rivals put them elsewhere than at the end.
    tiled = [one for one in fake.launches if any(one.leaves.get(name) is not None for name in TILES)]
    found = look(tiled, worst)
    assert not found.faults
    assert bool(found.looked_at) == bool(shapes.target.recipe.mixtures)


@pytest.mark.parametrize("tree", [False, True])
def test_sums_of_half_a_million_positions_are_counted_in_64_bits(tree: bool) -> None:
    """64 rows of the 32 heads of 512 that Gemma 4 31B has; of a chain there are none, in one launch."""
    rows, heads, dim, positions = 64, 32, 512, 1 << 19
    with fake_torch() as fake:
        query, out = (torch.empty(rows, heads, dim, dtype=torch.bfloat16, device=THERE) for _ in range(2))
        cache = torch.empty(4, positions, dim, dtype=torch.bfloat16, device=THERE)
        path = torch.empty(rows, dtype=torch.int64, device=THERE) if tree else None
        sums = workspace(rows, heads, dim, attention_splits(positions), THERE)
        attend(query, KvEntries(cache, cache), RowPlaces(many(1), path), sums, out.flatten(1), rows)
    found = look(fake.launches, worst)
    assert not found.faults
    assert found.looked_at == (4 if tree else 2)


# Planted faults


@triton.jit
def _copy(source: tl.tensor, to: tl.tensor, size: int, shift: int, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + i, tl.load(source + i + shift, mask=i < size), mask=i < size)


@triton.jit
def _unmasked(source: tl.tensor, to: tl.tensor, size: int, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + i, tl.load(source + i, mask=i < size))


@triton.jit
def _gathered(source: tl.tensor, to: tl.tensor, size: int) -> None:
    tl.store(to, tl.load(source + tl.load(size)))


@triton.jit
def _in_pairs(source: tl.tensor, to: tl.tensor, shift: int) -> None:
    pairs = (source + shift).to(tl.pointer_type(tl.int64))
    tl.store(to, tl.load(pairs).to(tl.int32))


@triton.jit
def _from_a_number(to: tl.tensor, number: int) -> None:
    tl.store(to, tl.load(tl.cast(number, tl.int64).to(tl.pointer_type(tl.int32))))


@triton.jit
def _row(source: tl.tensor, to: tl.tensor, row: int, stride: int) -> None:
    tl.store(to, tl.load(source + row * stride))


@triton.jit
def _row_in_64_bits(source: tl.tensor, to: tl.tensor, row: int, stride: int) -> None:
    tl.store(to, tl.load(source + tl.cast(row, tl.int64) * stride))


@triton.jit
def _doubled(source: tl.tensor, to: tl.tensor, stride: int, row: int, BLOCK: tl.constexpr) -> None:
    """Programs of `BLOCK` elements, `stride` apart, in rows that are `row` apart."""
    i = tl.program_id(1).to(tl.int64) * row + tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(to + i, tl.load(source + i) * 2)


@triton.jit
def _of_the_next(to: tl.tensor, shift: int, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + i, tl.load(to + i + shift))


@triton.jit
def _narrow_and_wide(to: tl.tensor, shift: int) -> None:
    """Two programs write a pair, and a number after it, or half of it."""
    program = tl.program_id(0)
    if program == 0:
        tl.store(to.to(tl.pointer_type(tl.int64)), tl.full((), 1, tl.int64))
    else:
        tl.store(to + shift, 1)


def many(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.int32, device=THERE)


PLANTED: dict[str, tuple[Callable[[], object], str]] = {
    "an element too far": (lambda: _copy[(4,)](many(64), many(64), 64, 1, BLOCK=16), "out of the bounds of source"),
    "an element before": (lambda: _copy[(4,)](many(64), many(64), 64, -1, BLOCK=16), "out of the bounds of source"),
    "a result that is too short": (lambda: _copy[(4,)](many(64), many(63), 64, 0, BLOCK=16), "out of the bounds of to"),
    "a mask that is missing": (lambda: _unmasked[(4,)](many(60), many(60), 60, BLOCK=16), "out of the bounds of to"),
    "a place that is read": (lambda: _gathered[(1,)](many(9), many(1), many(1)), "out of the bounds of source"),
    "half a pair": (lambda: _in_pairs[(1,)](many(64), many(1), 1), "not aligned in source"),
    "a pointer from nowhere": (lambda: _from_a_number[(1,)](many(1), 4096), "a pointer to nothing"),
    "32 bits": (lambda: _row[(1,)](many(1 << 33), many(1), 1 << 17, 1 << 15), "int32 wraps"),
}
WRITE, READ = "two programs write to", "a program writes what another reads to"
RIVALS: dict[str, tuple[Callable[[], object], str]] = {
    "blocks that overlap": (lambda: _doubled[(4, 1)](many(64), many(64), 15, 0, BLOCK=16), WRITE),
    "rows that overlap": (lambda: _doubled[(4, 3)](many(192), many(192), 16, 48, BLOCK=16), WRITE),
    "an axis that is left out": (lambda: _doubled[(4, 9)](many(64), many(64), 16, 0, BLOCK=16), WRITE),
    "half a pair that another writes": (lambda: _narrow_and_wide[(2,)](many(2), 1), WRITE),
    "the next one's block": (lambda: _of_the_next[(4,)](many(80), 16, BLOCK=16), READ),
    "one element of the next one's block": (lambda: _of_the_next[(4,)](many(80), 1, BLOCK=16), READ),
}
APART: dict[str, Callable[[], object]] = {
    "blocks beside each other": lambda: _doubled[(4, 1)](many(64), many(64), 16, 0, BLOCK=16),
    "rows beside each other": lambda: _doubled[(4, 3)](many(192), many(192), 16, 64, BLOCK=16),
    "rows of more than 2**32 elements": lambda: _doubled[(4, 3)](many(3 << 32), many(3 << 32), 16, 1 << 32, BLOCK=16),
    "a number after a pair": lambda: _narrow_and_wide[(2,)](many(3), 2),
    "a block of its own": lambda: _of_the_next[(4,)](many(64), 0, BLOCK=16),
}
SOUND: dict[str, Callable[[], object]] = {
    "a mask": lambda: _copy[(4,)](many(60), many(60), 60, 0, BLOCK=16),
    "a pair": lambda: _in_pairs[(1,)](many(64), many(1), 2),
    "64 bits": lambda: _row_in_64_bits[(1,)](many(1 << 33), many(1), 1 << 17, 1 << 15),
}


def nine(launch: Launch, name: str) -> float:
    del launch, name
    return 9


def launched(launch: Callable[[], object], kind: type[Addresses] = Addresses) -> set[str]:
    """The faults of what a function launches."""
    with fake_torch() as fake:
        launch()
    assert len(fake.launches) == 1
    return look(fake.launches, nine, kind).faults


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    launch, words = PLANTED[fault]
    assert any(words in one for one in launched(launch))


@pytest.mark.parametrize("launch", SOUND.values(), ids=SOUND.keys())
def test_a_sound_kernel_has_no_fault(launch: Callable[[], object]) -> None:
    assert launched(launch) == set()


@pytest.mark.parametrize("fault", RIVALS)
def test_programs_that_get_in_each_others_way_are_found(fault: str) -> None:
    launch, words = RIVALS[fault]
    found = launched(launch, Rivals)
    assert found
    assert all(words in one for one in found)


@pytest.mark.parametrize("launch", APART.values(), ids=APART.keys())
def test_programs_that_keep_apart_have_no_fault(launch: Callable[[], object]) -> None:
    assert launched(launch, Rivals) == set()
