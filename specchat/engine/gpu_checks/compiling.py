"""All kernels that the demo pair launches, compiled anew: registers, stack, spills and shared memory of each."""

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
from specchat.engine.gpu_failure import first_line
from specchat.engine.kernels.products import as_with, processors
from specchat.engine.model.gpu import Gpu, find_gpu
from specchat.engine.pair import Quant
from specchat.engine.runners.device import rehearse

STAND_IN = GPUTarget("cuda", 89, 32)
"""Where there is no GPU."""
BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SHARED = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 120: 101_376}
"""Bytes of shared memory that a block may use."""


def compile_demo(notes: Notes) -> None:
    """Each form of a kernel that the pair launches in bfloat16 and with NF4 weights; one of each without a GPU."""
    there = isinstance(find_gpu(), Gpu)
    target = driver.active.get_current_target() if there else STAND_IN
    if not there:
        driver.set_active(Absent(target))
    found: dict[str, Kernel] = {}
    quants: tuple[Quant | None, ...] = (None, "nf4") if there else ("nf4",)
    draft = decoder(notes.demo / "draft", None, HOST)
    for quant in quants:
        big = decoder(notes.demo / "target", quant, HOST)
        with as_with(processors(torch.device("cuda")) if there else processors(HOST)):
            launched = rehearsed(partial(rehearse, big, draft, big.config.vocab))
        found |= {kernel.wanted: kernel for kernel in launched}
    if not there:
        found = {kernel.name: kernel for kernel in found.values()}

    def made(*, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: object) -> None:
        report(notes, metadata, {Path(name).suffix: Path(path) for name, path in metadata_group.items()}, target.arch)

    knobs.compilation.listener = made
    compile_all(list(found.values()), print)


def report(notes: Notes, metadata: Mapping[str, Any], files: Mapping[str, Path], architecture: int) -> None:
    """Note what became of one kernel, whose `files` are known by their endings."""
    name, shared = metadata["name"], metadata["shared"]
    usage = _tool(notes, name, BIN / "cuobjdump", "-res-usage", str(files[".cubin"]))
    registers, stack = _number(r"REG:(\d+)", usage), _number(r"STACK:(\d+)", usage)
    spilled: int | None = 0
    if stack:
        # Arrays lie on the stack too: the assembler tells them from spills.
        told = _tool(notes, name, get_ptxas(architecture).path, "-v", f"--gpu-name=sm_{_full(architecture)}",
                     "-o", "/dev/null", str(files[".ptx"]))  # fmt: skip
        spilled = _number(r"(\d+) bytes spill stores", told)
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
    """As Triton names it: with the instructions of that GPU alone, from Hopper on."""
    return f"{architecture}a" if architecture >= 90 else str(architecture)


def _tool(notes: Notes, kernel: str, program: Path | str, *arguments: str) -> str:
    """What a program of the CUDA tools writes of a kernel; that it fails is noted as wrong."""
    named = Path(program).name
    try:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        notes.expect(False, f"{kernel}: {named} does not start: {first_line(error)}")
        return ""
    told = done.stdout + done.stderr
    notes.expect(not done.returncode, f"{kernel}: {named} ends with code {done.returncode}: {told[-200:].strip()}")
    return told


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found[1]) if found else None
