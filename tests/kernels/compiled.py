"""Compiles kernels for GPUs that are not here and reads what came out: registers, spills, shared memory, SASS.

Runs in a process of its own, without the interpreter: `python -m tests.kernels.compiled` reads lines of
`MODULE[:LIST] ARCHITECTURE...`, imports the module's list of `Case`, `CASES` by default, and prints a JSON list of a
report a case and architecture, or what was raised. For the newest architecture alone it leaves out the names in the
module's `ALIKE`, whose programs others resemble.
"""

import atexit
import contextlib
import functools
import importlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import traceback
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.kernels import ptx

NEWEST = pytest.mark.parametrize("architectures", [(120,), pytest.param((80, 86, 89, 90, 120), marks=pytest.mark.slow)])
"""Of what becomes nearly the same on every one; this one has the least shared memory."""

BFLOAT16_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
"""The tensor cores' product of bfloat16, in PTX."""

FLOAT = frozenset(("FADD", "FFMA", "FMUL", "HFMA2", "HMMA", "MUFU"))
"""Operations of SASS that round: in another number of them, two programs do not round alike."""

CONSTANT = ", -RZ, RZ, "
"""Operands by which one of these makes a constant."""

INTEGERS = re.compile(
    "BMSK|F2FP|FMNMX|FSEL|FSETP|I2FP|IABS|IADD3?|IMNMX|ISETP|LEA|LOP3|PLOP3|PRMT|SEL|SGXT|SHF|VIADD|VIMNMX"
)
"""Operations of SASS on the pipe of integers, 16 lanes a cycle on each of a multiprocessor's four schedulers."""

SCHEDULERS = 4
"""Of a multiprocessor; each has a quarter of the warps."""

Listing = list[tuple[int, str]]
"""Addresses and instructions in SASS."""

SHARED_LIMIT = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 120: 101_376}
"""Bytes of shared memory that one block may use."""


@dataclass(frozen=True)
class Case:
    """One kernel as it is launched.

    `signature` gives the type of each argument by name ("*bf16", "*u8", "i32", or "constexpr"), for one with fields a
    tuple of types; `constants` the values of the constexpr ones, `aligned` those divisible by 16: both by name, or by
    the indices of an argument and its field. `weights` is how many weights one pass of the innermost loop multiplies a
    block of rows by, 0 where instructions a weight mean nothing.
    """

    name: str
    kernel: Any
    signature: Mapping[str, Any]
    constants: Mapping[Any, Any]
    aligned: tuple[str | tuple[int, ...], ...]
    num_warps: int = 4
    num_stages: int = 3
    weights: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def launched(name: str, wanted: Any, launch: Callable[[], object], weights: int = 0) -> Case:
    """The kernel `wanted` as `launch` launches it and Triton specialises it for its arguments; no kernel runs."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    backend, made = make_backend(GPUTarget("cuda", 90, 32)), list[Case]()

    def run(kernel: Any, *arguments: Any, grid: object, warmup: bool, **options: Any) -> None:
        del grid, warmup
        bind = create_function_from_signature(kernel.signature, kernel.params, backend)
        bound, kinds, given = bind(*arguments, **options)
        _, signature, constants, attributes = kernel._pack_args(backend, options, bound, kinds, given)
        aligned = tuple(at for at, found in attributes.items() if found)
        own = {option: value for option, value in options.items() if option not in (*kernel.arg_names, "num_warps")}
        made.append(Case(name, kernel, signature, constants, aligned, given["num_warps"], 3, weights, own))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", run)
        launch()
    return next(one for one in made if one.kernel is wanted)


@dataclass(frozen=True)
class Report:
    """What the compiler made of a case for one architecture.

    `loop` is the longest loop in SASS instructions, `operations` which of them compute with floats, and how many;
    `exchanged` counts the fused products that are added to a value of another thread: threads disagree on such a sum.
    `integers` are the cycles of the pipe of integers in one pass of it, `wavefronts` those of shared memory;
    `barriers`, `loads` and `lines_ahead` are those of a pass too, `chains` the order in which its products are
    added, as `ptx.Loop` has them. `tensor_cores` are the PTX instructions for products, `operands` the layouts of their
    operands; `prefetches` counts instructions that ask the second cache for a line.
    """

    name: str
    architecture: int
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    threads: int
    loop: int
    instructions_a_weight: float
    tensor_cores: str
    operands: list[str]
    operations: dict[str, int]
    exchanged: int
    integers: int
    wavefronts: int
    barriers: int
    loads: int
    lines_ahead: int
    chains: list[str]
    prefetches: int


@dataclass(frozen=True)
class Compiled:
    """A case compiled for an architecture; `log` is the assembler's, `code` are the bytes of its instructions."""

    case: Case
    architecture: int
    made: Any
    log: str
    usage: str
    code: bytes


def compile_case(case: Case, architecture: int) -> Compiled:
    """Compile one case for compute capability `architecture` (86 is 8.6); no GPU or driver is asked."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = case.kernel.arg_names
    source = ASTSource(
        fn=case.kernel,
        signature=dict(case.signature),
        constexprs=dict(case.constants),
        attrs={(names.index(at),) if isinstance(at, str) else at: [["tt.divisibility", 16]] for at in case.aligned},
    )
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages, "enable_fp_fusion": True, **case.options}
    # A kernel from Triton's cache would have no log of the assembler, which tells of spills.
    knobs.compilation.always_compile = knobs.nvidia.dump_ptxas_log = True
    with contextlib.redirect_stdout(io.StringIO()) as log:
        made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    cubin = made.asm["cubin"]
    usage = _tool("cuobjdump", "-res-usage", given=cubin)
    return Compiled(case, architecture, made, log.getvalue(), usage, instructions(cubin))


def instructions(cubin: bytes) -> bytes:
    """The bytes of the instructions of the one kernel in an ELF file of 64 bits."""
    (headers,), (size, count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<3H", cubin, 0x3A)
    sections = [struct.unpack_from("<2I4Q", cubin, headers + at * size) for at in range(count)]
    strings = sections[names][4]
    ((start, length),) = (
        (start, length) for name, _, _, _, start, length in sections if cubin[strings + name :].startswith(b".text.")
    )
    return cubin[start : start + length]


def disassembled(codes: Sequence[bytes], architecture: int) -> list[Listing]:
    """The SASS of several kernels, read at once: the disassembler takes a third of a second to start."""
    sass = _tool("nvdisasm", "--binary", f"SM{architecture}" + "a" * (architecture >= 90), given=b"".join(codes))
    ends, made = list(accumulate(map(len, codes))), [Listing() for _ in codes]
    for address, text in re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", sass, re.MULTILINE):
        made[bisect_right(ends, int(address, 16))].append((int(address, 16), text))
    assert all(made)
    return made


def report(compiled: Compiled, listing: Listing) -> Report:
    """The figures that tests assert of a kernel."""
    case, asm, threads = compiled.case, compiled.made.asm, 32 * compiled.case.num_warps
    sass, inner = longest_loop(listing), ptx.loop(asm["ptx"], threads)
    loop, computing = len(sass), [line for line in sass if CONSTANT not in line]
    return Report(
        name=case.name,
        architecture=compiled.architecture,
        registers=_number(r"REG:(\d+)", compiled.usage),
        stack=_number(r"STACK:(\d+)", compiled.usage),
        spill_stores=_number(r"(\d+) bytes spill stores", compiled.log),
        spill_loads=_number(r"(\d+) bytes spill loads", compiled.log),
        shared=compiled.made.metadata.shared,
        threads=threads,
        loop=loop,
        instructions_a_weight=round(loop * threads / case.weights, 2) if case.weights else 0.0,
        tensor_cores=" ".join(sorted(set(re.findall(r"\b(?:wg|tcgen05\.)?mma\.\S+", asm["ptx"])))),
        operands=operands(asm["ttgir"]),
        operations=dict(sorted(Counter(kind for line in computing if (kind := _kind(line)) in FLOAT).items())),
        exchanged=exchanged(listing),
        integers=sum(INTEGERS.fullmatch(_kind(line)) is not None for line in sass) * 2 * case.num_warps // SCHEDULERS,
        wavefronts=inner.wavefronts(),
        barriers=inner.barriers(),
        loads=inner.loads(),
        lines_ahead=inner.lines_ahead(),
        chains=inner.chains(),
        prefetches=asm["ptx"].count("prefetch.global.L2"),
    )


def longest_loop(listing: Listing) -> list[str]:
    """The instructions between the farthest-reaching backward branch and its target; none without a loop."""
    longest = list[str]()
    for here, text in listing:
        if "BRA" in text and (found := re.search(r"0x([0-9a-f]+)", text)):
            inside = [line for address, line in listing if int(found[1], 16) <= address <= here]
            longest = max(longest, inside, key=len)
    return longest


def exchanged(listing: Listing) -> int:
    """The fused products whose addend is what a shuffle gave."""
    count, shuffled = 0, set[str]()
    for _, text in listing:
        kind, names = _kind(text), re.findall(r"\bR\d+\b", text)
        count += kind == "FFMA" and names[-1] in shuffled
        if kind == "SHFL":
            shuffled.add(names[0])
        elif names and not kind.startswith("ST"):
            shuffled.discard(names[0])
    return count


def operands(ttgir: str) -> list[str]:
    """The layouts of both operands of each product and of its sum, without the names that a program gives them."""
    layouts = dict(re.findall(r"^(#\w+) = (#ttg\.\S.*)$", ttgir, re.MULTILINE))
    products = re.findall(r"\btt\.dot [^:]*: (.*?)(?: loc\(|$)", ttgir, re.MULTILINE)
    return sorted({re.sub(r"#mma\d*", lambda name: layouts[name[0]], product) for product in products})


def _kind(instruction: str) -> str:
    """The operation of an instruction in SASS, without its predicate and its variants."""
    return re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0].partition(".")[0]


def _tool(name: str, *arguments: str, given: bytes) -> str:
    """The output of one of the CUDA tools for a file of the given bytes."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(given)
        file.flush()
        done = subprocess.run([tool, *arguments, file.name], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise AssertionError(f"{pattern} not found in:\n{text}")
    return int(found[1])


@functools.cache
def _compiler() -> "subprocess.Popen[str]":
    """The process that compiles for this one until its end: torch and Triton take seconds to import."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels.compiled"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(process.communicate)
    return process


@functools.cache
def reports(module: str, architectures: tuple[int, ...]) -> list[Report]:
    """Compile every case of `module`, or of "module:list", in a process without the interpreter."""
    compiler = _compiler()
    assert compiler.stdin is not None
    assert compiler.stdout is not None
    print(module, *architectures, file=compiler.stdin, flush=True)
    answer = json.loads(next((line for line in compiler.stdout if line.startswith(("[", '"'))), '"the compiler ended"'))
    if isinstance(answer, str):
        raise AssertionError(f"{module} does not compile:\n{answer[-4000:]}")
    return [Report(**one) for one in answer]


def check_names(found: Sequence[Report], names: Collection[str], architectures: tuple[int, ...]) -> None:
    """Assert that all of the names were compiled, or some of them for the newest architecture alone."""
    compiled = {report.name for report in found}
    assert compiled == set(names) if len(architectures) > 1 else compiled and compiled <= set(names)


def check_limits(report: Report, registers: int, shared: int, spilled: int = 0) -> None:
    """Assert what every kernel must keep: memory and registers that let it launch, and its own ceilings.

    `spilled` is how many bytes may go to memory and come back, each.
    """
    where = f"{report.name} for sm_{report.architecture}: {report}"
    assert max(report.spill_stores, report.spill_loads) <= spilled, where
    assert report.shared <= SHARED_LIMIT[report.architecture], where
    assert report.registers * report.threads <= 65_536, where
    assert report.registers <= registers, where
    assert report.shared <= shared, where


def check_loop(report: Report, instructions: float, wavefronts: int, barriers: int) -> None:
    """Assert the ceilings of a pass of the innermost loop."""
    assert report.instructions_a_weight <= instructions, report
    assert report.wavefronts <= wavefronts, report
    assert report.barriers <= barriers, report


def reported(cases: Sequence[Case], architecture: int) -> list[dict[str, Any]]:
    """The reports of cases, compiled."""
    made = [compile_case(case, architecture) for case in cases]
    listings = disassembled([one.code for one in made], architecture)
    return [asdict(report(one, listing)) for one, listing in zip(made, listings, strict=True)]


def _reported(module: str, *architectures: str) -> list[dict[str, Any]]:
    from tests.kernels import kept_reports

    name, _, cases = module.partition(":")
    imported = importlib.import_module(name)
    left_out = getattr(imported, "ALIKE", ()) if architectures == ("120",) else ()
    listed = [case for case in getattr(imported, cases or "CASES") if case.name not in left_out]
    if architectures == ("120",) and (cases or "CASES") in kept_reports.LISTS:
        return _mostly_kept(listed)
    return [one for architecture in map(int, architectures) for one in reported(listed, architecture)]


def _mostly_kept(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Reports as they are kept; of a case without one, and of one case in any way, of what the compiler makes."""
    from tests.kernels import kept_reports

    known, names = kept_reports.read(), [kept_reports.name_of(case) for case in cases]
    first = min(names, key=lambda name: name.rpartition(" ")[2])
    anew = [(case, name) for case, name in zip(cases, names, strict=True) if name not in known or name == first]
    made = reported([case for case, _ in anew], kept_reports.NEWEST)
    found = {name: json.loads(json.dumps(one)) for (_, name), one in zip(anew, made, strict=True)}
    assert known.get(first, found[first]) == found[first], f"{first} is kept as {known[first]}, compiled {found[first]}"
    return [found.get(name) or known[name] for name in names]


def main() -> None:
    from tests.kernels import recorded

    recorded.normalise()
    for line in sys.stdin:
        try:
            answer: object = _reported(*line.split())
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
