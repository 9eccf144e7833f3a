"""Compilation of all kernels of the demo pair: registers, stack, spills and shared memory of each."""

import re
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime import driver

from specchat.engine.device.compile import Absent, Kernel, compile_all, rehearsed
from specchat.engine.device.rehearsal import HOST
from specchat.engine.gpu_checks.demo import decoder
from specchat.engine.gpu_checks.notes import Notes
from specchat.engine.hardware.gpu import Gpu, find_gpu
from specchat.engine.hardware.gpu_failure import first_line
from specchat.engine.kernels.ahead import as_of, memory_of
from specchat.engine.kernels.processors import as_with, processors
from specchat.engine.protocol.pair import Quant
from specchat.engine.runners.device import rehearse

STAND_IN = GPUTarget("cuda", 89, 32)
"""Target of the compilation without a GPU."""
BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SHARED = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 120: 101_376}
"""Shared memory of a block, in bytes, by compute capability."""


def compile_demo(notes: Notes) -> None:
    """Compile the variants of the pair's kernels, in bfloat16 and with NF4 weights; one each without a GPU."""
    there = isinstance(find_gpu(), Gpu)
    target = driver.active.get_current_target() if there else STAND_IN
    if not there:
        driver.set_active(Absent(target))
    found: dict[str, Kernel] = {}
    quants: tuple[Quant | None, ...] = (None, "nf4") if there else ("nf4",)
    draft = decoder(notes.demo / "draft", None, HOST)
    for quant in quants:
        big = decoder(notes.demo / "target", quant, HOST)
        place = torch.device("cuda") if there else HOST
        with as_with(processors(place)), as_of(memory_of(place)):
            launched = rehearsed(partial(rehearse, big, draft, big.config.vocab))
        found |= {kernel.wanted: kernel for kernel in launched}
    if not there:
        found = {kernel.name: kernel for kernel in found.values()}

    def made(*, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: object) -> None:
        report(notes, metadata, {Path(name).suffix: Path(path) for name, path in metadata_group.items()}, target.arch)

    knobs.compilation.listener = made
    compile_all(list(found.values()), print)


def report(notes: Notes, metadata: Mapping[str, Any], files: Mapping[str, Path], architecture: int) -> None:
    """Note the figures of one compiled kernel; `files` are by suffix."""
    name, shared = metadata["name"], metadata["shared"]
    usage = _tool(notes, name, BIN / "cuobjdump", "-res-usage", str(files[".cubin"]))
    registers, stack = _number(r"REG:(\d+)", usage), _number(r"STACK:(\d+)", usage)
    spilled: int | None = 0
    if stack:
        # Arrays also use the stack: the assembler reports spills apart.
        listing = _tool(notes, name, get_ptxas(architecture).path, "-v", f"--gpu-name=sm_{_full(architecture)}",
                     "-o", "/dev/null", str(files[".ptx"]))  # fmt: skip
        spilled = _number(r"(\d+) bytes spill stores", listing)
    notes.row(
        kernel=name,
        registers=registers,
        stack=stack,
        spilled=spilled,
        shared=shared,
        warps=metadata["num_warps"],
        file=files[".cubin"].parent.name,
    )
    notes.expect(bool(registers), f"{name}: how many registers it takes is not told")
    notes.expect(spilled is not None, f"{name}: what it spills is not told")
    allowed = SHARED.get(architecture)
    notes.expect(
        allowed is None or shared <= allowed, f"{name}: {shared} bytes of shared memory, and sm_{architecture} has less"
    )


def _full(architecture: int) -> str:
    """Triton's name of an architecture: from Hopper on with its own instructions."""
    return f"{architecture}a" if architecture >= 90 else str(architecture)


def _tool(notes: Notes, kernel: str, program: Path | str, *arguments: str) -> str:
    """Output of a CUDA tool on a kernel; its failure is noted as a fault."""
    named = Path(program).name
    try:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        notes.expect(False, f"{kernel}: {named} does not start: {first_line(error)}")
        return ""
    output = done.stdout + done.stderr
    notes.expect(not done.returncode, f"{kernel}: {named} ends with code {done.returncode}: {output[-200:].strip()}")
    return output


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found[1]) if found else None
