"""Measures the compilation of a pair's kernels, serially and in parallel; needs no GPU.

    python -m measure.compiling

Layers are narrow and the vocabulary small. That changes constants in the kernels, not their compile time. It leaves out
the wide programs of products with few rows, which narrow layers have too few outputs for.
"""

import os
from collections import Counter
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from specchat.bench.published import PUBLISHED, narrowed
from specchat.engine.device.compile import Absent, compile_all, rehearsed
from specchat.engine.device.decoder import DeviceDecoder
from specchat.engine.device.rehearsal import HOST
from specchat.engine.device.weights import random
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import rehearse
from specchat.engine.weights.config import ModelConfig

CONTEXT = 8192
DTYPE = torch.bfloat16
ARCHITECTURE = 89
ROUNDS = 3


def main() -> None:
    driver.set_active(Absent(GPUTarget("cuda", ARCHITECTURE, 32)))
    shapes = PUBLISHED["qwen3-8b"].cut(5)
    target, draft = _narrow(shapes.target, "nf4"), _narrow(shapes.draft, "int8")
    started = _clocks()
    kernels = rehearsed(lambda: rehearse(target, draft, target.config.vocab))
    print(f"{len(kernels)} kernels, found in {_since(started)}")
    print(", ".join(f"{count} {name}" for name, count in Counter(kernel.name for kernel in kernels).most_common()))
    for _ in range(ROUNDS):
        for threads in (1, len(os.sched_getaffinity(0))):
            with TemporaryDirectory() as folder:
                knobs.cache.dir = folder
                started = _clocks()
                compile_all(kernels, lambda _: None, threads)
                print(f"{threads} threads: {_since(started)}")
                started = _clocks()
                compile_all(kernels, lambda _: None, threads)
                print(f"{threads} threads, all there: {_since(started)}")


def _narrow(config: ModelConfig, quant: Quant) -> DeviceDecoder:
    narrow = narrowed(config, hidden=512, intermediate=1024, vocab=1000)
    return DeviceDecoder(narrow, random(narrow, quant, HOST, DTYPE), CONTEXT, HOST, DTYPE)


def _clocks() -> tuple[float, float]:
    """Wall-clock and processor seconds, ptxas included."""
    return perf_counter(), sum(os.times()[:4])


def _since(before: tuple[float, float]) -> str:
    wall, used = (now - then for now, then in zip(_clocks(), before, strict=True))
    return f"{wall:.1f} s, {used:.1f} s of processors"


if __name__ == "__main__":
    main()
