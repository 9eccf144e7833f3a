"""This machine's free memory and the packages that run models, found without torch."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from specchat.engine.backends import GGUF_BACKEND, HF_BACKEND
from specchat.engine.cpu import compiled
from specchat.engine.hardware.bandwidth import processor_bandwidth
from specchat.engine.hardware.free_memory import free_memory
from specchat.engine.hardware.gpu_counters import ASSUMED_BUS, Installed, installed
from specchat.engine.kernels.gpu_shapes import OLDEST
from specchat.engine.llama_cpp.library import PACKAGE
from specchat.engine.memory.need import Place
from specchat.engine.protocol.pair import QUANTS, PairSpec
from specchat.installing import install_command

QUICK_S = 0.02
"""Length of a measurement of memory, for an estimate beside a list."""
OF_RATED = 0.9
"""Share of its rated bandwidth that a GPU reads."""
PACKAGES = ("llama_cpp", "accelerate", "bitsandbytes")
"""Packages that only some pairs need."""


@dataclass(frozen=True)
class FreeMemory:
    """Free bytes of the GPU, None where there is none for us, and of the main memory, None where it is unknown.

    `second` are those of another GPU, for a draft; 0 where there is none.
    `llama_gpu` is the same for llama.cpp, which may be built without; `missing` are those of PACKAGES that are not
    installed. `threads` are those that a compiled pass may have; 0 where there is none. `bus` are the bytes a second
    that the GPU reads of the main memory. `rates` are the bytes a second that the processor and the GPU read of their
    own, where they are known.
    """

    gpu: int | None
    memory: int | None
    llama_gpu: int | None = None
    missing: frozenset[str] = frozenset()
    threads: int = 0
    bus: float = ASSUMED_BUS
    rates: Mapping[Place, float] = field(default_factory=dict)
    second: int = 0


def this_machine(environ: Mapping[str, str] = os.environ) -> FreeMemory:
    """The machine at hand, with its roomiest GPU."""
    hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    ours, llamas = not hidden and _torch_uses_gpus(), not hidden and _llama_uses_gpus()
    gpus = installed() if ours or llamas else ()
    roomy = sorted((gpu for gpu in gpus if ours and gpu.capability >= OLDEST), key=lambda gpu: -gpu.free)
    roomiest = roomy[0] if roomy else None
    return FreeMemory(
        gpu=roomiest.free if roomiest else None,
        memory=free_memory(),
        llama_gpu=max((gpu.free for gpu in gpus if llamas), default=None),
        missing=missing_packages(),
        threads=max(1, (os.cpu_count() or 1) // 2) if compiled.likely_available() else 0,
        bus=roomiest.bus if roomiest else ASSUMED_BUS,
        rates=_rates(roomiest),
        second=roomy[1].free if len(roomy) > 1 else 0,
    )


def _rates(gpu: Installed | None) -> Mapping[Place, float]:
    rates: dict[Place, float] = {"cpu": _processor_rate()}
    if gpu is not None and gpu.rate:
        rates["cuda"] = OF_RATED * gpu.rate
    return rates


@cache
def _processor_rate() -> float:
    return processor_bandwidth(seconds=QUICK_S)


def missing_packages() -> frozenset[str]:
    """The PACKAGES that are not installed."""
    return frozenset(name for name in PACKAGES if find_spec(name) is None)


def unable(spec: PairSpec, missing: Collection[str], foreign: bool = False) -> str:
    """The `missing` packages that a pair needs and how to get them, in words; empty for none.

    `foreign` means that specchat's decoder, which stands in for llama.cpp, is known not to run it.
    """
    if spec.backend == GGUF_BACKEND:
        return f"needs llama-cpp-python: {install_command(PACKAGE)}" if foreign and "llama_cpp" in missing else ""
    sources = [source for source in (spec.target, spec.draft) if source is not None]
    quantised = any(source.quant in QUANTS for source in sources)
    if not quantised and not spec.head and all(source.head is None for source in sources):
        return ""
    needed = ("accelerate", "bitsandbytes") if spec.backend == HF_BACKEND else ("bitsandbytes",)
    absent = [name for name in needed if name in missing]
    return (
        f"needs {' and '.join(absent)} for its {'quant' if quantised else 'head'}: {install_command(*absent)}"
        if absent
        else ""
    )


def _torch_uses_gpus() -> bool:
    """True if our decoder could run on a GPU at all."""
    try:
        built = version("torch")
    except PackageNotFoundError:
        return False
    return not built.endswith("+cpu") and find_spec("triton") is not None


def _llama_uses_gpus() -> bool:
    """True if llama.cpp is built for NVIDIA's GPUs: a library of its own shows it, so nothing is loaded."""
    origin = getattr(find_spec("llama_cpp"), "origin", None)
    return origin is not None and any((Path(origin).parent / "lib").glob("*ggml-cuda*"))
