"""Times products beside bitsandbytes and cuBLAS on the same weights, and attention with several split lengths.

The shapes are Qwen3-8B's. `steps trace` gives each kernel's share of a step; the checks of `specchat doctor --gpu`
cover row invariance and memory bandwidth.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from measure.gpu.checks import Check, command
from specchat.bench.published import QWEN3_8B
from specchat.engine.formats.format import NESTED_BLOCK
from specchat.engine.formats.layout import EightBit, FourBit, Nested, Weight
from specchat.engine.formats.quantise import block_scales, dequantised, quantise
from specchat.engine.hardware.gpu_failure import first_line
from specchat.engine.kernels.attention import attend
from specchat.engine.kernels.gpu_shapes import (
    PASS_ROWS,
    SPLIT,
    TILE_ROWS,
    VERIFY_ROWS,
    attention_splits,
    tiling,
    widened,
)
from specchat.engine.kernels.kv_entries import KvEntries
from specchat.engine.kernels.paths import RowPlaces
from specchat.engine.kernels.processors import processors
from specchat.engine.kernels.products import RowTiles, launch, multiply, splits
from specchat.engine.kernels.stored import bits_of, stored
from specchat.engine.kernels.workspace import workspace
from specchat.engine.protocol.pair import Quant
from specchat.engine.weights.config import ModelConfig

ROWS = (1, 2, 4, 8, 16, 32, PASS_ROWS)
CONTEXTS = (256, 1024, 4096, 8192)
SPLITS = (256, SPLIT, 64)
CYCLED = 1 << 30
"""Total bytes of the copies of a kernel's input: several times any L2 cache, so that each comes from memory."""
WARM_UP, RUNS = 10, 50
FORMATS: Mapping[str, tuple[Quant, bool]] = {
    "nf4 nested": ("nf4", True),
    "nf4": ("nf4", False),
    "fp4": ("fp4", False),
    "int8": ("int8", False),
}
"""Formats by name; "nested" quantises the scales too, as specchat does at load."""

Call = Callable[[int], object]
"""Launches the work once on copy 0, 1, ... of its input."""
Timer = Callable[[Call, int], list[float]]
"""Times a call over a number of copies; returns microseconds of a call by run.

Raises:
    RuntimeError: the work cannot be launched or captured.
"""
Rows = list[dict[str, Any]]


def replayed(call: Call, copies: int) -> list[float]:
    """A run is the replay of one captured graph over all copies: no launch from Python is in it."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # Kernels compile and load at their first launch, which a capture does not allow.
    with torch.cuda.stream(stream):
        for copy in range(min(copies, 2)):
            call(copy)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for copy in range(copies):
            call(copy)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(RUNS + 1)]
    for _ in range(WARM_UP):
        graph.replay()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    events[-1].synchronize()
    return [1e3 * a.elapsed_time(b) / copies for a, b in pairwise(events)]


def timed(timer: Timer, call: Call, copies: int, read: int) -> dict[str, Any]:
    """Median and quartiles of a call that reads `read` bytes of weights or cache."""
    low, median, high = quantiles(timer(call, copies), n=4, method="inclusive")
    return {"us": median, "low": low, "high": high, "GB/s": read / median / 1e3}


def matrices(c: ModelConfig) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a layer's products."""
    parts = zip(("qkv", "out", "gate_up", "down"), c.recipe.layers[0].products, strict=True)
    return {name: (sum(matrix.outputs), matrix.inputs) for name, matrix in parts}


def products(c: ModelConfig, device: torch.device, dtype: torch.dtype, timer: Timer, cycled: int) -> Rows:
    """Every matrix in every format, then the unquantised head, by number of rows."""
    found: Rows = []
    for name, shape in (*matrices(c).items(), ("head", (c.vocab, c.hidden))):
        dense = (torch.randn(shape, device=device) / shape[1] ** 0.5).to(dtype)
        if name == "head":
            found += product(f"head {shape[0]}x{shape[1]}", dense, None, dtype, timer, cycled)
            continue
        for label, (quant, nested) in FORMATS.items():
            weight = quantised(dense, quant, nested)
            found += product(f"{name} {shape[0]}x{shape[1]} {label}", weight, quant, dtype, timer, cycled)
    return found


def product(
    what: str, weight: Weight, quant: Quant | None, dtype: torch.dtype, timer: Timer, cycled: int
) -> Iterator[dict[str, Any]]:
    """One matrix: ours, bitsandbytes if quantised and installed, and unquantised cuBLAS.

    Where programs for few rows are wider than those for one row, the latter are timed too: estimates alone speak
    against them.
    """
    outputs, inputs = weight.shape
    size, dense = held(weight), dequantised(weight, dtype)
    device = dense.device
    x = torch.randn(PASS_ROWS, inputs, device=device).to(dtype)
    sums = torch.empty(splits(weight), PASS_ROWS, outputs, device=device, dtype=torch.float32)
    whole = torch.empty(PASS_ROWS, outputs, device=device, dtype=dtype)
    copies = [weight, *(deepcopy(weight) for _ in range(cycled // size))]
    rivals: dict[str, tuple[int, Sequence[Any], Callable[[Any, int], object]]] = {
        "specchat": (size, copies, lambda one, rows: multiply(x, one, None, sums, rows))
    }
    bits, cut = max(bits_of(weight)), tiling(outputs, inputs, max(bits_of(weight)), processors(device))
    if widened(cut, outputs, bits, TILE_ROWS, processors(device)) != cut:
        rivals["specchat, programs as for one row"] = (
            size,
            copies,
            lambda one, rows: launch(x, stored(one, None), sums, rows, cut, RowTiles(rows)),
        )
    if quant is not None and find_spec("bitsandbytes") is not None:
        calls = [bitsandbytes_call(one, quant, dtype) for one in copies]
        rivals["bitsandbytes"] = size, calls, lambda call, rows: call(x[:rows])
    denses = [dense, *(dense.clone() for _ in range(cycled // held(dense)))]
    rivals["cuBLAS"] = held(dense), denses, lambda one, rows: torch.mm(x[:rows], one.t(), out=whole[:rows])
    for by, (read, of, run) in rivals.items():
        for rows in ROWS:
            row = {"product": what, "by": by, "rows": rows}
            try:
                yield row | timed(timer, partial(launched, run, of, rows), len(of), read)
            except RuntimeError as error:
                if by == "specchat":
                    raise
                yield row | {"us": first_line(error), "low": "", "high": "", "GB/s": ""}


def launched(launch: Callable[[Any, int], object], of: Sequence[Any], rows: int, copy: int) -> None:
    launch(of[copy], rows)


def bitsandbytes_call(weight: Weight, quant: Quant, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """x [rows, inputs] -> x @ weight^T by bitsandbytes on the same memory."""
    library: Any = import_module("bitsandbytes")
    if isinstance(weight, EightBit):
        state: Any = library.MatmulLtState()
        state.CB, state.SCB = weight.values, 127 * weight.scales
        state.has_fp16_weights = state.is_training = False
        eight = weight.values
        return lambda x: library.matmul(x, eight, state=state)
    assert isinstance(weight, FourBit)
    make: Any = import_module("bitsandbytes.functional").QuantState
    inner = offset = None
    if (nested := weight.nested) is not None and nested.offset is not None:
        inner = make(absmax=nested.absmax, blocksize=NESTED_BLOCK, code=nested.code, dtype=torch.float32)
        offset = nested.offset[0]
    state = make(
        absmax=weight.scales.flatten(),
        shape=torch.Size(weight.shape),
        code=weight.code,
        blocksize=weight.block,
        quant_type=quant,
        dtype=dtype,
        offset=offset,
        state2=inner,
    )
    packed = weight.packed.view(-1, 1)
    return lambda x: library.matmul_4bit(x, packed, state)


def quantised(dense: Tensor, quant: Quant, nested: bool) -> Weight:
    """`dense` in one of FORMATS."""
    weight = quantise(dense, quant)
    if isinstance(weight, FourBit) and not nested:
        return FourBit(weight.packed, block_scales(weight), weight.code, weight.block)
    return weight


def held(weight: Any) -> int:
    """Bytes of all tensors of a weight."""
    if isinstance(weight, Tensor):
        return weight.nbytes
    return sum(map(held, vars(weight).values())) if isinstance(weight, FourBit | EightBit | Nested) else 0


def attention(
    c: ModelConfig, device: torch.device, dtype: torch.dtype, timer: Timer, cycled: int, contexts: Sequence[int]
) -> Rows:
    """A chain of rows after a number of tokens, combination of splits included; specchat uses SPLIT."""
    mixer = c.recipe.attentions[0]
    query = torch.randn(PASS_ROWS, mixer.heads, mixer.head_dim, device=device).to(dtype)
    out = torch.empty(PASS_ROWS, mixer.heads * mixer.head_dim, device=device, dtype=dtype)
    found: Rows = []
    for context in contexts:
        shape = (mixer.kv_heads, context + PASS_ROWS, mixer.head_dim)
        read = 2 * mixer.kv_heads * context * mixer.head_dim * query.element_size()
        caches = [torch.randn(2, *shape, device=device).to(dtype) for _ in range(1 + cycled // read)]
        length = torch.full((1,), context, device=device, dtype=torch.int32)
        for split in SPLITS:
            partial_sums = workspace(
                VERIFY_ROWS, mixer.heads, mixer.head_dim, attention_splits(shape[1], split=split), device, split
            )

            def launch(cache: Tensor, rows: int, sums: Any = partial_sums, length: Tensor = length) -> None:
                attend(query, KvEntries(*cache), RowPlaces(length), sums, out, rows)

            for rows in ROWS:
                call = partial(launched, launch, caches, rows)
                found.append({"tokens": context, "split": split, "rows": rows} | timed(timer, call, len(caches), read))
    return found


def _on_gpu(measured: Callable[..., Rows], *more: Any) -> Rows:
    return measured(QWEN3_8B, torch.device("cuda"), torch.bfloat16, replayed, CYCLED, *more)


CHECKS: Mapping[str, Check] = {
    "products": lambda _: _on_gpu(products),
    "attention": lambda _: _on_gpu(attention, CONTEXTS),
}


if __name__ == "__main__":
    with torch.no_grad():
        command(CHECKS)()
